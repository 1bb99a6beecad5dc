package guard

import (
	"maps"
	"math"
	"slices"
	"time"
)

// A Refusal trips in every run until a saved plan that accepted it has run, or an option of the task has changed.
type Refusal struct {
	Trip
	Options map[string]string
}

type Deletions struct {
	// Recent is how many rows there were within SharePeriod, RecentDeleted how many of them were deleted.
	Recent, RecentDeleted int64
	// The largest number of one run within TypicalPeriod; 0 without such a run.
	Typical int64
}

type CutoffRecord struct {
	At, ReferenceTime time.Time
	// How far the replica's clock was ahead of the database's.
	ClockOffset time.Duration
}

// History is what guards compare with.
type History struct {
	Limits
	// Refused are the guards that tripped in the current task, Accepted those that the run may pass, with the accepted
	// numbers.
	Refused  []Refusal
	Accepted []Trip
	// Of former runs, by the quoted names of tables.
	Deletions map[string]Deletions
	// Of the current task, by the names of its delays.
	Cutoffs map[string]CutoffRecord
	// Of the previous run; nil for the first run.
	LastStart *time.Time
	// Unattended: the schedule started the run, without a saved plan, and no run that somebody started by hand, or that
	// followed a saved plan, has succeeded in this database.
	Unattended bool
	// Proven is the basis of the current task, a policy, when a run last did it by a saved plan; empty if none has.
	Proven string
}

// -1 if no number was accepted.
func (h *History) accepted(name Name, table string) int64 {
	number := int64(-1)
	for _, a := range h.Accepted {
		if a.is(name, table) {
			number = max(number, a.Number)
		}
	}
	return number
}

// limit is the largest of the guard's limit, a floor, and an accepted number.
func (h *History) limit(name Name, table string, limit float64, floor int64) int64 {
	return max(int64(math.Min(limit, math.MaxInt64/2)), floor, h.accepted(name, table))
}

// Guards of rows never trip up to this number.
func (h *History) minRows() int64 { return max(h.MinRows-1, 0) }

// A refused guard trips with any number, while the options of the task are the same.
func (h *History) IsRefused(name Name, table string, options map[string]string) bool {
	return slices.ContainsFunc(h.Refused,
		func(r Refusal) bool { return r.is(name, table) && maps.Equal(r.Options, options) })
}

func (h *History) RefusedTrips(options map[string]string) (trips []Trip) {
	for _, r := range h.Refused {
		if maps.Equal(r.Options, options) && h.accepted(r.Guard, r.Table) < 0 {
			trips = append(trips, r.Trip)
		}
	}
	return trips
}

// AddRefused adds the guards that have refused the task and are not among the trips of a dry run: they would trip
// although nothing would be deleted now.
func (h *History) AddRefused(trips []Trip, options map[string]string) []Trip {
	for _, r := range h.Refused {
		shown := slices.ContainsFunc(trips, func(t Trip) bool { return t.is(r.Guard, r.Table) })
		if !shown && maps.Equal(r.Options, options) {
			trips = append(trips, Trip{Guard: r.Guard, Table: r.Table, Limit: r.Limit})
		}
	}
	return trips
}

// MovedFast: the cutoff has moved by more than the time that passed since its task last succeeded, by the clock that
// shows less of it. It returns the former cutoff.
func (h *History) MovedFast(name string, now CutoffRecord) (former time.Time, moved bool) {
	before, known := h.Cutoffs[name]
	passed := now.ReferenceTime.Sub(before.ReferenceTime) + min(0, now.ClockOffset-before.ClockOffset)
	return before.At, known && now.At.Sub(before.At) > passed+cutoffSlack
}
