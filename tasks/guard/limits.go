package guard

import "time"

// Name is the name of a guard.
type Name string

// Names of the guards.
const (
	Share  Name = "share"
	Cutoff Name = "cutoff"
	Growth Name = "growth"
	Tables Name = "tables"
	Bytes  Name = "bytes"
	Clock  Name = "clock"
	First  Name = "first"
	Idle   Name = "idle"
)

// names lists the guards in the order in which they are shown.
var names = []Name{Share, Cutoff, Growth, Tables, Bytes, Clock, First, Idle}

// Limits configure the guards. A guard is off if its limit is 0, or false.
type Limits struct {
	// MinRows is the number of rows below which the guards of rows never trip.
	MinRows int64 `json:"MinRows"`
	// MinProcessInstances is MinRows for process instances of AEM Forms.
	MinProcessInstances int64 `json:"MinProcessInstances"`
	// MaxSharePercent is the largest share of a table's rows that runs may delete within SharePeriod.
	MaxSharePercent float64 `json:"MaxSharePercent"`
	// Cutoff turns on the guard of cutoffs that move faster than time.
	Cutoff bool `json:"Cutoff"`
	// MaxGrowth is how many times the usual number of rows of a run the rules without a delay may delete from a table.
	MaxGrowth float64 `json:"MaxGrowth"`
	// MaxTables is how many work tables a task may drop, and MaxDropPercent their share of the database's size.
	MaxTables      int64   `json:"MaxTables"`
	MaxDropPercent float64 `json:"MaxDropPercent"`
	// MaxClockDifference is the largest difference between the clocks of the database and of a replica, and MaxIdle the
	// longest time since the application last wrote something.
	MaxClockDifference time.Duration `json:"MaxClockDifference"`
	MaxIdle            time.Duration `json:"MaxIdle"`
	// First turns on the guard of scheduled runs in a database that nobody has cleaned by hand.
	First bool `json:"First"`
}

// DefaultLimits apply until others are set.
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
	// SharePeriod is the time within which the deletions of runs from a table are added up. It is a little less than a
	// day, so that a nightly run is not added to that of the night before.
	SharePeriod = 24*time.Hour - 10*time.Minute
	// UsualPeriod is the time within which runs show how many rows a run usually deletes.
	UsualPeriod = 400 * 24 * time.Hour
	// cutoffSlack is how much more than the elapsed time a cutoff may move.
	cutoffSlack = 2 * 24 * time.Hour
)

// limit returns the limit of a guard.
func (l Limits) limit(name Name) any {
	return map[Name]any{
		Share:  l.MaxSharePercent,
		Cutoff: l.Cutoff,
		Growth: l.MaxGrowth,
		Tables: l.MaxTables,
		Bytes:  l.MaxDropPercent,
		Clock:  l.MaxClockDifference,
		First:  l.First,
		Idle:   l.MaxIdle,
	}[name]
}

// Changed returns the guards that judge differently by other limits. MinProcessInstances is left out, since it concerns
// only tasks on other databases.
func (l Limits) Changed(to Limits) (changed []Name) {
	for _, name := range names {
		ofRows := name == Share || name == Cutoff || name == Growth
		if l.limit(name) != to.limit(name) || (ofRows && l.MinRows != to.MinRows) {
			changed = append(changed, name)
		}
	}
	return changed
}
