package execute

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Guard is the name of a guard.
type Guard string

// Guards by their names.
const (
	GuardShare  Guard = "share"
	GuardCutoff Guard = "cutoff"
	GuardGrowth Guard = "growth"
	GuardTables Guard = "tables"
	GuardBytes  Guard = "bytes"
	GuardClock  Guard = "clock"
	GuardIdle   Guard = "idle"
)

// Guards say what is unusual: it needs somebody's word. Each is off where its limit is 0, or false.
type Guards struct {
	// MinRows is how many rows are too few for the guards of rows to trip, whatever they are compared with.
	MinRows int64 `json:"MinRows"`
	// MinProcessInstances is the same for process instances of AEM Forms.
	MinProcessInstances int64 `json:"MinProcessInstances"`
	// MaxSharePercent is of a table's rows, within SharePeriod.
	MaxSharePercent float64 `json:"MaxSharePercent"`
	// Cutoff is about cutoffs that move faster than time.
	Cutoff bool `json:"Cutoff"`
	// MaxGrowth is how many times the rows that a run usually takes from a table may go by rules without a delay.
	MaxGrowth float64 `json:"MaxGrowth"`
	// MaxTables are dropped by a task at most, and of the database's size no more than MaxDropPercent.
	MaxTables      int64   `json:"MaxTables"`
	MaxDropPercent float64 `json:"MaxDropPercent"`
	// MaxClockDifference is that between the database's clock and the replica's, MaxIdle how long ago the application
	// last did something.
	MaxClockDifference time.Duration `json:"MaxClockDifference"`
	MaxIdle            time.Duration `json:"MaxIdle"`
}

// DefaultGuards are in force until others are set.
var DefaultGuards = Guards{
	MinRows:             100_000,
	MinProcessInstances: 100,
	MaxSharePercent:     50,
	Cutoff:              true,
	MaxGrowth:           10,
	MaxTables:           5_000,
	MaxDropPercent:      20,
	MaxClockDifference:  5 * time.Minute,
	MaxIdle:             45 * 24 * time.Hour,
}

// SharePeriod is in which runs have begun that take rows of a table together. It is not quite a day, so that a nightly
// run is not judged with that of the night before. UsualPeriod is in which they have that tell how many rows a run
// usually takes.
const (
	SharePeriod = 24*time.Hour - 10*time.Minute
	UsualPeriod = 400 * 24 * time.Hour
)

// cutoffSlack is how much more than the time that passed a cutoff may move.
const cutoffSlack = 2 * 24 * time.Hour

// limit is what says where a guard trips.
func (g Guards) limit(of Guard) any {
	return map[Guard]any{
		GuardShare:  g.MaxSharePercent,
		GuardCutoff: g.Cutoff,
		GuardGrowth: g.MaxGrowth,
		GuardTables: g.MaxTables,
		GuardBytes:  g.MaxDropPercent,
		GuardClock:  g.MaxClockDifference, GuardIdle: g.MaxIdle,
	}[of]
}

// Changed are the guards that are judged otherwise by other settings; MinProcessInstances concerns only tasks on other
// databases.
func (g Guards) Changed(to Guards) (changed []Guard) {
	for _, of := range []Guard{GuardShare, GuardCutoff, GuardGrowth, GuardTables, GuardBytes, GuardClock, GuardIdle} {
		ofRows := of == GuardShare || of == GuardCutoff || of == GuardGrowth
		if g.limit(of) != to.limit(of) || (ofRows && g.MinRows != to.MinRows) {
			changed = append(changed, of)
		}
	}
	return changed
}

// Trip is a guard that trips.
type Trip struct {
	Guard Guard `json:"Guard"`
	// Table is the quoted name of a table with its schema, or the mask of the names of work tables.
	Table string `json:"Table"`
	// Number is how many rows, tables or bytes would go, and Most how many may; a run counts up to one more.
	Number int64 `json:"Number"`
	Most   int64 `json:"Most"`
}

func (t Trip) String() string {
	would, most := fmt.Sprintf("%s of %s: %d", t.Guard, t.Table, t.Number), t.Most
	switch t.Guard {
	case GuardShare:
		return fmt.Sprintf("%s rows would go within a day, and %d may", would, most)
	case GuardCutoff:
		return fmt.Sprintf(
			"%s rows would go since a cutoff has moved by more than the time that passed, and %d may",
			would,
			most,
		)
	case GuardGrowth:
		return fmt.Sprintf(
			"%s rows would go by a rule without a delay, and as compared with former runs %d may",
			would,
			most,
		)
	case GuardTables:
		return fmt.Sprintf("%s tables would be dropped, and %d may", would, most)
	}
	return fmt.Sprintf("%s bytes of tables would be dropped, and %d may", would, most)
}

// Latch is a guard that tripped in a task, and trips at every run until a plan that accepted it has run, or an option
// of the task has changed.
type Latch struct {
	Trip
	// Options are those that the task reads, as they were.
	Options map[string]string
}

// Taken is what runs have taken of a table: rows deleted and updated.
type Taken struct {
	// Lately is how many were within SharePeriod, and Deleted how many of these were deleted.
	Lately, Deleted int64
	// Usual is the most that one run took within UsualPeriod; 0: nothing to compare with.
	Usual int64
}

// Cutoff is what a cutoff was when a task last succeeded.
type Cutoff struct {
	At, ReferenceTime time.Time
	// ClockOffset is how far the replica's clock was ahead of the database's.
	ClockOffset time.Duration
}

// History is what guards compare with.
type History struct {
	Guards
	// Latched are the guards that tripped in the current task, Accepted those that the run may pass, with the numbers
	// that were accepted.
	Latched  []Latch
	Accepted []Trip
	// Taken is what runs have taken, by the quoted names of tables.
	Taken map[string]Taken
	// Cutoffs are those of the current task, by the names of their delays.
	Cutoffs map[string]Cutoff
	// LastStart is when the last run before this one began; nil: there is none.
	LastStart *time.Time
}

// accepted is the number that was accepted for a guard and a table, or -1.
func (h *History) accepted(of Guard, table string) int64 {
	most := int64(-1)
	for _, a := range h.Accepted {
		if a.Guard == of && a.Table == table {
			most = max(most, a.Number)
		}
	}
	return most
}

// most is how many may go where a limit allows some, and more may have been accepted.
func (h *History) most(of Guard, table string, limit float64, least int64) int64 {
	return max(int64(math.Min(limit, math.MaxInt64/2)), least, h.accepted(of, table))
}

// Guarded is the reason of a RefusedError.
const Guarded = "GUARD"

// tripped is the refusal by some guards; nil: none trips.
func tripped(trips []Trip) error {
	if len(trips) == 0 {
		return nil
	}
	var words []string
	for _, t := range trips {
		words = append(words, t.String())
	}
	first := trips[0]
	return &RefusedError{
		Reason: Guarded,
		Metadata: map[string]string{
			"guard": string(
				first.Guard,
			),
			"table":  first.Table,
			"number": fmt.Sprint(first.Number),
			"most":   fmt.Sprint(first.Most),
			"guards": strings.Join(words, "; "),
		},
		Message: "this is unusual: " + strings.Join(
			words,
			"; ",
		) + ". Nothing of it is done until a plan runs that accepts it",
		Trips: trips,
	}
}

// optionsOf are the options that a task reads, as they are in force. What one on another database goes by is like an
// option of its name.
func (d *database) optionsOf(t plan.Task) map[string]string {
	options, names := d.given.Options.InForce(), t.OptionNames()
	maps.DeleteFunc(options, func(name, _ string) bool { return !slices.Contains(names, name) })
	if o, ok := d.Outside[t.Name]; ok {
		options[t.Name] = o.Basis
	}
	return options
}
