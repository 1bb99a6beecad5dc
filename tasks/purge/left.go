package purge

import "github.com/jackc/pgx/v5/pgtype"

// Retained is how many obsolete rows stay, by the reason.
type Retained struct {
	// Failed are rows that a trigger, a constraint or a view of the application refused with an error.
	Failed int64 `json:"refused,omitempty"`
	// Locked are rows that others had locked.
	Locked int64 `json:"locked,omitempty"`
	// Suppressed are rows that stayed without an error, though they were not locked: a trigger or rule of the application
	// keeps them.
	Suppressed int64 `json:"kept,omitempty"`
	// Dependent are rows that stay since rows that belong to them do.
	Dependent int64 `json:"bound,omitempty"`
	// OnHold are rows that are held; they were not tried.
	OnHold int64 `json:"held,omitempty"`
	// Tables are tables that were not done to their end: how many rows stay there is not known.
	Tables int64 `json:"tables,omitempty"`
}

// Plus is the sum of both.
func (l Retained) Plus(o Retained) Retained {
	return Retained{
		l.Failed + o.Failed,
		l.Locked + o.Locked,
		l.Suppressed + o.Suppressed,
		l.Dependent + o.Dependent,
		l.OnHold + o.OnHold,
		l.Tables + o.Tables,
	}
}

// Rows is how many rows stay, but for those that are held, and those of Tables.
func (l Retained) Rows() int64 { return l.Failed + l.Locked + l.Suppressed + l.Dependent }

// stay is what stays between the position before and another one.
type stay struct {
	below int64
	Retained
}

// leave records what stays below a position.
func (sw *sweep) leave(below int64, l Retained) {
	if l != (Retained{}) {
		sw.stays = append(sw.stays, stay{below, l})
	}
}

// left is all that stays.
func (sw *sweep) left() (sum Retained) {
	for _, s := range sw.stays {
		sum = sum.Plus(s.Retained)
	}
	return sum
}

// leftBelow is what stays below a position.
func (sw *sweep) leftBelow(place int64) (sum Retained) {
	for _, s := range sw.stays {
		if s.below <= place {
			sum = sum.Plus(s.Retained)
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
	sw.leave(0, Retained{Failed: int64(len(sw.refused))})
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
