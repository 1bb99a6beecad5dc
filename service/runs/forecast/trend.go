package forecast

import (
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/tasks/insight"
)

// Trend says whether runs keep up with what becomes obsolete.
type Trend string

const (
	// Unknown means that nothing is known about the task.
	Unknown Trend = ""
	// InBalance means that each run deletes everything that is obsolete.
	InBalance Trend = "IN_BALANCE"
	// CatchingUp means that some rows wait for later runs, and that they become fewer.
	CatchingUp Trend = "CATCHING_UP"
	// FallingBehind means that some rows wait for later runs, and that they become more.
	FallingBehind Trend = "FALLING_BEHIND"
)

// Bound is what keeps a run from deleting everything that is obsolete.
type Bound string

const (
	MaxDuration Bound = "MAX_DURATION" // the run reached its time limit
	Throttled   Bound = "THROTTLED"    // batches waited for the load to fall until the time limit was reached
	Locks       Bound = "LOCKS"        // tables or rows remained locked
	Failing     Bound = "FAILING"      // the task failed, or was refused
	NotReached  Bound = "NOT_REACHED"  // the run ended before the task, because another one failed
	// NotScheduled means that no run is scheduled, and that none has ended lately.
	NotScheduled Bound = "NOT_SCHEDULED"
)

// Night is what one run did of a task.
type Night struct {
	Start time.Time
	Rows  int64
	Took  time.Duration
	Bound Bound // empty if the run deleted everything
	// FailingTask is the task that failed if this one was not reached; otherwise empty.
	FailingTask string
}

// Outlook says how a task will do.
type Outlook struct {
	Trend Trend
	// At is when a task that catches up will have caught up, or since when a task falls behind; zero if unknown.
	At    time.Time
	Bound Bound
	// FailingTask is as in the last Night.
	FailingTask string
	// Rate is how many rows a second the task deletes; 0 if unknown.
	Rate float64
}

// member is a task of a pipeline with its past nights, newest first.
type member struct {
	due    insight.Due
	nights []Night
}

// judge returns the outlook of each task of a pipeline that runs daily. budget is how long a run may take; 0 means
// no limit. Without a schedule, the last runs show whether somebody starts them.
func judge(now time.Time, pipeline []member, budget time.Duration, scheduled bool) []Outlook {
	outlooks := make([]Outlook, len(pipeline))
	rates := make([]float64, len(pipeline))
	for i, m := range pipeline {
		rates[i] = medianRate(m.nights)
	}
	backlogs := simulate(pipeline, rates, budget)
	runs := scheduled || slices.ContainsFunc(pipeline, func(m member) bool {
		return len(m.nights) > 0 && now.Sub(m.nights[0].Start) < lately
	})
	for i, m := range pipeline {
		outlooks[i] = m.outlook(now, rates[i], backlogs[i], runs)
	}
	return outlooks
}

// minRows is how many rows a night must have to show how fast a task is. recentRates is how many such nights count.
const (
	minRows     = 1_000
	recentRates = 7
)

// medianRate returns the median of rows a second in the last nights that had enough rows, or 0 if none had.
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

// simulate returns how many rows of each task are left after each of the next nights, if runs are as fast as before
// and stop when their budget is used up.
func simulate(pipeline []member, rates []float64, budget time.Duration) [][insight.ForecastDays]float64 {
	left := make([][insight.ForecastDays]float64, len(pipeline))
	backlog := make([]float64, len(pipeline))
	for i, m := range pipeline {
		backlog[i] = float64(m.due.Now)
	}
	for night := range insight.ForecastDays {
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

// lately is how long ago a run may have begun that is not of the schedule, for others to be expected: a cron job may
// start them.
const lately = 48 * time.Hour

// outlook judges a task by its past nights, and by what the next nights will leave. runs is set if runs are to be
// expected.
func (m member) outlook(now time.Time, rate float64, left [insight.ForecastDays]float64, runs bool) Outlook {
	o := Outlook{Rate: rate}
	if !m.due.Known {
		return o
	}
	if since, bound := m.bounded(); bound != "" && m.due.Now > 0 {
		o.Bound, o.FailingTask = bound, m.nights[0].FailingTask
		done, comes := m.usual(), m.arrivals()
		if bound == Failing || bound == NotReached || done <= comes {
			o.Trend, o.At = FallingBehind, since
			return o
		}
		days := float64(m.due.Now) / (done - comes)
		o.Trend, o.At = CatchingUp, now.Add(time.Duration(days*24*float64(time.Hour)))
		return o
	}
	if !runs && m.hasWork() {
		o.Bound = NotScheduled
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
	default: // a single night that leaves rows is no trend
		o.Trend = InBalance
	}
	return o
}

// hasWork reports whether rows are obsolete, or will be in the days of the forecast.
func (m member) hasWork() bool { return m.due.Now > 0 || m.due.PerDay != [insight.ForecastDays]int64{} }

// lasting is for how many nights a backlog must grow to count as a trend.
const lasting = 5

// grows reports whether the rows left become more in each of the last nights of a simulation.
func grows(left [insight.ForecastDays]float64) bool {
	for i := len(left) - lasting; i < len(left); i++ {
		if left[i] < 1 || left[i] <= left[i-1] {
			return false
		}
	}
	return true
}

func night(now time.Time, i int) time.Time { return now.Add(time.Duration(i) * 24 * time.Hour) }

// bounded returns since when the task has not deleted everything that was obsolete, and what kept it from that; ""
// if the last run deleted everything.
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

// recentRuns is how many nights show how much runs delete. recentArrivals is how many show how much becomes
// obsolete.
const (
	recentRuns     = 3
	recentArrivals = 7
)

// usual returns the average of the last nights in which something kept runs from deleting everything.
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

// arrivals returns how many rows become obsolete a day on average. For a task without dates, it is what the last
// nights without a bound deleted.
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
