package guard

import "time"

type Name string

const (
	Share  Name = "share"
	Cutoff Name = "cutoff"
	Growth Name = "growth"
	Tables Name = "tables"
	Bytes  Name = "bytes"
	Clock  Name = "clock"
	First  Name = "first"
	Idle   Name = "idle"
	Policy Name = "policy"
)

// Limits are the limits of guards. A guard is off if its limit is 0 or false.
type Limits struct {
	// MinRows is the number of rows below which the guards of rows never trip.
	MinRows int64 `json:"MinRows"`
	// MinProcessInstances is MinRows for process instances of AEM Forms.
	MinProcessInstances int64 `json:"MinProcessInstances"`
	// MaxSharePercent is the share of a table's rows that may be deleted within SharePeriod.
	MaxSharePercent float64 `json:"MaxSharePercent"`
	// Cutoff turns on the guard of cutoffs that move faster than time.
	Cutoff bool `json:"Cutoff"`
	// MaxGrowth limits how many rows the rules without a delay may delete from a table, as a multiple of
	// Deletions.Typical.
	MaxGrowth float64 `json:"MaxGrowth"`
	// MaxTables is how many work tables a task may drop, and MaxDropPercent their largest share of the database's size.
	MaxTables      int64   `json:"MaxTables"`
	MaxDropPercent float64 `json:"MaxDropPercent"`
	// MaxClockDifference is the largest allowed difference between the clocks of the database and a replica. MaxIdle is
	// how long ago the application may have last written something.
	MaxClockDifference time.Duration `json:"MaxClockDifference"`
	MaxIdle            time.Duration `json:"MaxIdle"`
	// First turns on the guard of scheduled runs in a database that was never cleaned by hand.
	First bool `json:"First"`
}

var DefaultLimits = Limits{
	MinRows:             100_000,
	MinProcessInstances: 100,
	MaxSharePercent:     50,
	Cutoff:              true,
	MaxGrowth:           10,
	MaxTables:           5_000,
	MaxDropPercent:      20,
	MaxClockDifference:  5 * time.Minute,
	MaxIdle:             45 * 24 * time.Hour,
	First:               true,
}

const (
	// SharePeriod is the time within which deletions are added up. It is a little less than a day, so that a nightly
	// run is not added to that of the night before.
	SharePeriod = 24*time.Hour - 10*time.Minute
	// TypicalPeriod is how old a run may be for Deletions.Typical to include it.
	TypicalPeriod = 400 * 24 * time.Hour
	// cutoffSlack is how much further a cutoff may move than the elapsed time.
	cutoffSlack = 2 * 24 * time.Hour
)

// Changed returns the guards whose limits differ, in the order in which they are shown. MinProcessInstances is left
// out, since it concerns only tasks on other databases.
func (l Limits) Changed(to Limits) (changed []Name) {
	add := func(name Name, differs bool) {
		if differs {
			changed = append(changed, name)
		}
	}
	ofRows := l.MinRows != to.MinRows
	add(Share, ofRows || l.MaxSharePercent != to.MaxSharePercent)
	add(Cutoff, ofRows || l.Cutoff != to.Cutoff)
	add(Growth, ofRows || l.MaxGrowth != to.MaxGrowth)
	add(Tables, l.MaxTables != to.MaxTables)
	add(Bytes, l.MaxDropPercent != to.MaxDropPercent)
	add(Clock, l.MaxClockDifference != to.MaxClockDifference)
	add(First, l.First != to.First)
	add(Idle, l.MaxIdle != to.MaxIdle)
	return changed
}
