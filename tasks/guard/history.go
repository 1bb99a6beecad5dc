package guard

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Refusal is a guard that tripped in a task. It trips in every run until a saved plan that accepted it has run, or an
// option of the task has changed.
type Refusal struct {
	Trip
	// Options are the values of the task's options when the guard tripped.
	Options map[string]string
}

// Deletions are the rows of a table that runs have deleted or updated.
type Deletions struct {
	// Recent is how many rows there were within SharePeriod, and RecentDeleted how many of them were deleted.
	Recent, RecentDeleted int64
	// Typical is the largest number of a run within TypicalPeriod; 0 without such a run.
	Typical int64
}

// CutoffRecord is a cutoff as it was when its task last succeeded.
type CutoffRecord struct {
	At, ReferenceTime time.Time
	// ClockOffset is how far the replica's clock was ahead of the database's.
	ClockOffset time.Duration
}

// History is what guards compare with.
type History struct {
	Limits
	// Refused are the guards that tripped in the current task. Accepted are the guards that the run may pass, with the
	// accepted numbers.
	Refused  []Refusal
	Accepted []Trip
	// Deletions are the deletions of former runs, by the quoted names of tables.
	Deletions map[string]Deletions
	// Cutoffs are the cutoffs of the current task, by the names of their delays.
	Cutoffs map[string]CutoffRecord
	// LastStart is when the previous run started; nil for the first run.
	LastStart *time.Time
	// Unattended says that the schedule started the run, without a saved plan, and that no run that somebody started by
	// hand, or that followed a saved plan, has succeeded in this database.
	Unattended bool
	// Proven is the basis of the current task, a policy, when a run last did it by a saved plan; empty if none has.
	Proven string
}

// accepted returns the number that was accepted for a guard and a table, or -1.
func (h *History) accepted(name Name, table string) int64 {
	number := int64(-1)
	for _, a := range h.Accepted {
		if a.is(name, table) {
			number = max(number, a.Number)
		}
	}
	return number
}

// limit returns how many rows, tables or bytes a guard lets pass: the largest of its limit, a floor, and an accepted
// number.
func (h *History) limit(name Name, table string, limit float64, floor int64) int64 {
	return max(int64(math.Min(limit, math.MaxInt64/2)), floor, h.accepted(name, table))
}

// minRows returns the largest number of rows for which guards of rows never trip.
func (h *History) minRows() int64 { return max(h.MinRows-1, 0) }

// IsRefused reports whether a guard trips for a table with any number, by the current options of the task.
func (h *History) IsRefused(name Name, table string, options map[string]string) bool {
	return slices.ContainsFunc(h.Refused,
		func(r Refusal) bool { return r.is(name, table) && maps.Equal(r.Options, options) })
}

// RefusedTrips returns the trips of guards that have refused the task, by its current options, and were not accepted.
func (h *History) RefusedTrips(options map[string]string) (trips []Trip) {
	for _, r := range h.Refused {
		if maps.Equal(r.Options, options) && h.accepted(r.Guard, r.Table) < 0 {
			trips = append(trips, r.Trip)
		}
	}
	return trips
}

// AddRefused adds to the trips of a dry run the guards that have refused the task and are not among them, since they
// would trip although nothing would be deleted now.
func (h *History) AddRefused(trips []Trip, options map[string]string) []Trip {
	for _, r := range h.Refused {
		shown := slices.ContainsFunc(trips, func(t Trip) bool { return t.is(r.Guard, r.Table) })
		if !shown && maps.Equal(r.Options, options) {
			trips = append(trips, Trip{Guard: r.Guard, Table: r.Table, Limit: r.Limit})
		}
	}
	return trips
}

// MovedFast reports whether a cutoff has moved by more than the time that passed since its task last succeeded, and
// returns the former cutoff. The time that passed is taken from the clock that shows less of it.
func (h *History) MovedFast(name string, now CutoffRecord) (former time.Time, moved bool) {
	before, known := h.Cutoffs[name]
	passed := now.ReferenceTime.Sub(before.ReferenceTime) + min(0, now.ClockOffset-before.ClockOffset)
	return before.At, known && now.At.Sub(before.At) > passed+cutoffSlack
}
