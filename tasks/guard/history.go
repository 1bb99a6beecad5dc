package guard

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Refusal is a guard that has tripped. It trips in every run until a saved plan that accepted it has run, or an
// option of the task has changed.
type Refusal struct {
	Trip
	Options map[string]string
}

type Deletions struct {
	// Recent is how many rows runs within SharePeriod deleted or updated; RecentDeleted is how many of them they
	// deleted.
	Recent, RecentDeleted int64
	// Typical is the largest number of one run within TypicalPeriod; 0 if there was no such run.
	Typical int64
}

type CutoffRecord struct {
	At, ReferenceTime time.Time
	// ClockOffset is how far the replica's clock was ahead of the database's.
	ClockOffset time.Duration
}

// History has the limits and the earlier figures with which guards compare.
type History struct {
	Limits
	// Refused are the guards that tripped in the current task. Accepted are those that the run may pass, with the
	// accepted numbers.
	Refused  []Refusal
	Accepted []Trip
	// Deletions are those of earlier runs, by the quoted names of tables.
	Deletions map[string]Deletions
	// Cutoffs are those of the current task when it last succeeded, by the names of its delays.
	Cutoffs map[string]CutoffRecord
	// LastStart is when the previous run began; nil for the first run.
	LastStart *time.Time
	// Unattended is set if the schedule started the run without a saved plan, before any run started by hand or following
	// a saved plan has succeeded in this database.
	Unattended bool
	// Proven is the basis that the current task, a policy, had when a run that followed a saved plan last executed it;
	// empty if none has.
	Proven string
}

// accepted returns the largest number that was accepted for a guard and a table; -1 if none was.
func (h *History) accepted(name Name, table string) int64 {
	number := int64(-1)
	for _, a := range h.Accepted {
		if a.is(name, table) {
			number = max(number, a.Number)
		}
	}
	return number
}

// limit returns the largest of the guard's limit, a floor, and an accepted number.
func (h *History) limit(name Name, table string, limit float64, floor int64) int64 {
	return max(int64(math.Min(limit, math.MaxInt64/2)), floor, h.accepted(name, table))
}

// minRows is the number of rows up to which guards of rows never trip.
func (h *History) minRows() int64 { return max(h.MinRows-1, 0) }

// IsRefused reports whether a guard has refused the task before. It then trips with any number, as long as the
// task's options are the same.
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

// AddRefused adds to the trips of a dry run the guards that have refused the task before: they would trip although
// nothing would be deleted now.
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
// returns the former cutoff. The time that passed is the smaller of the elapsed times measured by the clocks of the
// replica and the database.
func (h *History) MovedFast(name string, now CutoffRecord) (former time.Time, moved bool) {
	before, known := h.Cutoffs[name]
	passed := now.ReferenceTime.Sub(before.ReferenceTime) + min(0, now.ClockOffset-before.ClockOffset)
	return before.At, known && now.At.Sub(before.At) > passed+cutoffSlack
}
