package forecast

import (
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/tasks/forecast"
)

// Whether runs keep up with what becomes obsolete.
type Trend string

const (
	// Nothing is known of the task.
	Unknown Trend = ""
	// Each run deletes what is obsolete.
	InBalance Trend = "IN_BALANCE"
	// Some rows wait for later runs, and become fewer.
	CatchingUp Trend = "CATCHING_UP"
	// Some rows wait for later runs, and become more.
	FallingBehind Trend = "FALLING_BEHIND"
)

// What keeps a run from deleting all that is obsolete.
type Bound string

const (
	MaxDuration Bound = "MAX_DURATION" // the run stopped after its time
	Throttled   Bound = "THROTTLED"    // batches waited for the server's load, so that the run stopped after its time
	Locks       Bound = "LOCKS"        // tables or rows remained locked
	Failing     Bound = "FAILING"      // the task failed, or was refused
)

// What one run did of a task.
type Night struct {
	Start time.Time
	Rows  int64
	Took  time.Duration
	Bound Bound // empty if nothing kept it from deleting all
}

// How a task will do.
type Outlook struct {
	Trend Trend
	// When a task that catches up has done so, or since when it falls behind; zero: unknown.
	At    time.Time
	Bound Bound
	// Rows a second that it deletes; 0: unknown.
	Rate float64
}

// A task of a pipeline, with its former nights, newest first.
type member struct {
	due    forecast.Due
	nights []Night
}

// The pipeline runs daily. budget is how long a run may take; 0: no limit.
func judge(now time.Time, pipeline []member, budget time.Duration) []Outlook {
	outlooks := make([]Outlook, len(pipeline))
	rates := make([]float64, len(pipeline))
	for i, m := range pipeline {
		rates[i] = medianRate(m.nights)
	}
	backlogs := simulate(pipeline, rates, budget)
	for i, m := range pipeline {
		outlooks[i] = m.outlook(now, rates[i], backlogs[i])
	}
	return outlooks
}

// How many rows a night must have to show how fast a task is, and how many such nights count.
const (
	minRows     = 1_000
	recentRates = 7
)

// medianRate returns the rows a second of the last nights that had enough; 0: none had.
func medianRate(nights []Night) float64 {
	var rates []float64
	for _, n := range nights {
		if n.Rows >= minRows && n.Took > 0 && len(rates) < recentRates {
			rates = append(rates, float64(n.Rows)/n.Took.Seconds())
		}
	}
	if rates == nil {
		return 0
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// simulate returns how many rows of each task are left after each of the next nights, if runs are as fast as before and
// stop after their budget.
func simulate(pipeline []member, rates []float64, budget time.Duration) [][forecast.Days]float64 {
	left := make([][forecast.Days]float64, len(pipeline))
	backlog := make([]float64, len(pipeline))
	for i, m := range pipeline {
		backlog[i] = float64(m.due.Now)
	}
	for night := range forecast.Days {
		seconds := budget.Seconds()
		for i, m := range pipeline {
			if night > 0 {
				backlog[i] += float64(m.due.PerDay[night-1])
			}
			switch {
			case budget == 0 || rates[i] == 0:
				backlog[i] = 0
			default:
				done := min(backlog[i], seconds*rates[i])
				backlog[i] -= done
				seconds -= done / rates[i]
			}
			left[i][night] = backlog[i]
		}
	}
	return left
}

// A task is judged by its former nights, and by what the next ones will leave.
func (m member) outlook(now time.Time, rate float64, left [forecast.Days]float64) Outlook {
	o := Outlook{Rate: rate}
	if !m.due.Known {
		return o
	}
	if since, bound := m.bounded(); bound != "" && m.due.Now > 0 {
		o.Bound = bound
		done, comes := m.usual(), m.arrivals()
		if bound == Failing || done <= comes {
			o.Trend, o.At = FallingBehind, since
			return o
		}
		days := float64(m.due.Now) / (done - comes)
		o.Trend, o.At = CatchingUp, now.Add(time.Duration(days*24*float64(time.Hour)))
		return o
	}
	first := slices.IndexFunc(left[:], func(rows float64) bool { return rows >= 1 })
	switch {
	case grows(left):
		o.Trend, o.Bound, o.At = FallingBehind, MaxDuration, night(now, first)
	case left[0] >= 1:
		o.Trend, o.Bound = CatchingUp, MaxDuration
		if done := slices.IndexFunc(left[:], func(rows float64) bool { return rows < 1 }); done > 0 {
			o.At = night(now, done)
		}
	default: // a single night that leaves rows for the next ones is no trend
		o.Trend = InBalance
	}
	return o
}

// Nights for which a backlog must grow to be a trend.
const lasting = 5

// grows reports whether more and more rows are left in the last nights of a simulation.
func grows(left [forecast.Days]float64) bool {
	for i := len(left) - lasting; i < len(left); i++ {
		if left[i] < 1 || left[i] <= left[i-1] {
			return false
		}
	}
	return true
}

func night(now time.Time, i int) time.Time { return now.Add(time.Duration(i) * 24 * time.Hour) }

// bounded returns since when the task has not deleted all that was obsolete, and why; "" if it has last time.
func (m member) bounded() (since time.Time, bound Bound) {
	for i, n := range m.nights {
		if n.Bound == "" {
			break
		}
		if since = n.Start; i == 0 {
			bound = n.Bound
		}
	}
	return since, bound
}

// Nights that show how much runs delete, and how much comes.
const (
	recentRuns     = 3
	recentArrivals = 7
)

// usual is the average of the last nights in which something kept runs from deleting all.
func (m member) usual() float64 {
	rows, nights := int64(0), 0
	for _, n := range m.nights[:min(recentRuns, len(m.nights))] {
		if n.Bound == "" {
			break
		}
		rows, nights = rows+n.Rows, nights+1
	}
	return float64(rows) / float64(max(nights, 1))
}

// arrivals returns the rows that become obsolete a day on average; for a task without dates, those that the last nights
// deleted that nothing bounded.
func (m member) arrivals() float64 {
	rows, days := int64(0), 0
	if m.due.Dated {
		for _, n := range m.due.PerDay {
			rows, days = rows+n, days+1
		}
	} else {
		for _, n := range m.nights {
			if n.Bound == "" && days < recentArrivals {
				rows, days = rows+n.Rows, days+1
			}
		}
	}
	return float64(rows) / float64(max(days, 1))
}
