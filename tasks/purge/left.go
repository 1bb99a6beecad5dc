package purge

import "github.com/jackc/pgx/v5/pgtype"

// Left is how many obsolete rows stay, by the reason.
type Left struct {
	// Refused are rows that a trigger, a constraint or a view of the application refused with an error.
	Refused int64 `json:"refused,omitempty"`
	// Locked are rows that others had locked.
	Locked int64 `json:"locked,omitempty"`
	// Kept are rows that stayed without an error, though they were not locked: a trigger or rule of the application
	// keeps them.
	Kept int64 `json:"kept,omitempty"`
	// Bound are rows that stay since rows that belong to them do.
	Bound int64 `json:"bound,omitempty"`
	// Held are rows that are held; they were not tried.
	Held int64 `json:"held,omitempty"`
	// Tables are tables that were not done to their end: how many rows stay there is not known.
	Tables int64 `json:"tables,omitempty"`
}

// Plus is the sum of both.
func (l Left) Plus(o Left) Left {
	return Left{
		l.Refused + o.Refused,
		l.Locked + o.Locked,
		l.Kept + o.Kept,
		l.Bound + o.Bound,
		l.Held + o.Held,
		l.Tables + o.Tables,
	}
}

// Rows is how many rows stay, but for those that are held, and those of Tables.
func (l Left) Rows() int64 { return l.Refused + l.Locked + l.Kept + l.Bound }

// stay is what stays between the position before and another one.
type stay struct {
	below int64
	Left
}

// leave records what stays below a position.
func (sw *sweep) leave(below int64, l Left) {
	if l != (Left{}) {
		sw.stays = append(sw.stays, stay{below, l})
	}
}

// left is all that stays.
func (sw *sweep) left() (sum Left) {
	for _, s := range sw.stays {
		sum = sum.Plus(s.Left)
	}
	return sum
}

// leftBelow is what stays below a position.
func (sw *sweep) leftBelow(place int64) (sum Left) {
	for _, s := range sw.stays {
		if s.below <= place {
			sum = sum.Plus(s.Left)
		}
	}
	return sum
}

// forget forgets what stays: the sweep starts over.
func (sw *sweep) forget() {
	sw.stays, sw.counted = nil, 0
	clear(sw.refused)
}

// again begins another pass over rows that are found anew. Those that refused are not tried again.
func (sw *sweep) again() {
	sw.stays = nil
	sw.leave(0, Left{Refused: int64(len(sw.refused))})
}

// refusedIn is how many rows between two positions have refused.
func (sw *sweep) refusedIn(from, to int64) (n int64) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	for row := range sw.refused {
		if place := sw.place(row); from <= place && place < to {
			n++
		}
	}
	return n
}

// place is the position of a row.
func (a axis) place(row pgtype.TID) int64 {
	if a.found == nil {
		return int64(row.BlockNumber)
	}
	after, _ := a.after(row)
	return after - 1
}

// uncounted is the position from which on what stays has to be counted.
func (sw *sweep) uncounted(from int64) int64 {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	return max(from, sw.counted)
}
