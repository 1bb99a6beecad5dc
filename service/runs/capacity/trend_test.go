package capacity

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/tasks/insight"
)

var now = time.Date(2026, time.March, 1, 4, 0, 0, 0, time.UTC)

// year has the rows that become obsolete on each day of a year.
type year [365]int64

// made simulates a year of nights, each with a run that stops after its budget, if that is not 0. rate returns how many
// rows a second the run of a day deletes. made calls judged with each day's outlook and backlog, after the run of that
// day.
func (y year) made(budget time.Duration, rate func(day int) float64, judged func(day int, o Outlook, backlog int64)) {
	var nights []Night
	backlog := int64(0)
	for day := range y {
		start := now.AddDate(0, 0, day)
		backlog += y[day]
		most := int64(rate(day) * budget.Seconds())
		n := Night{Start: start, Rows: backlog}
		if budget > 0 && backlog > most {
			n.Rows, n.Bound = most, MaxDuration
		}
		if rate(day) > 0 {
			n.Took = time.Duration(float64(n.Rows) / rate(day) * float64(time.Second))
		}
		backlog -= n.Rows
		nights = append([]Night{n}, nights[:min(29, len(nights))]...)
		due := insight.Due{Task: "t", Known: true, Exact: true, Dated: true, Now: backlog}
		for i := range insight.ForecastDays {
			if day+1+i < len(y) {
				due.PerDay[i] = y[day+1+i]
			} else {
				due.PerDay[i] = y[len(y)-1]
			}
		}
		judged(day, judge(start, []member{{due: due, nights: nights}}, budget, true)[0], backlog)
	}
}

func steady(int) float64 { return 1_000 }

// A steady history with weekdays, noise, and a holiday that a later night catches up with never falls behind.
func TestSteadyYears(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var y year
	for day := range y {
		y[day] = 100_000 + random.Int64N(30_000) - int64(day%7)*10_000
	}
	for _, budget := range []time.Duration{0, 10 * time.Minute} {
		y.made(budget, steady, func(day int, o Outlook, _ int64) {
			if o.Trend != InBalance {
				t.Fatalf("budget %s, day %d: %+v", budget, day, o)
			}
		})
	}
	y[200] = 700_000 // more than a night's work, and less than two
	y.made(10*time.Minute, steady, func(day int, o Outlook, _ int64) {
		if o.Trend == FallingBehind {
			t.Fatalf("one peak, day %d: %+v", day, o)
		}
	})
}

// Growth beyond what a night can delete is reported at least a week before the backlog exceeds two nights' work.
func TestGrowth(t *testing.T) {
	t.Parallel()
	var y year
	for day := range y {
		y[day] = 300_000 + int64(day)*2_000
	}
	said, exceeded := -1, -1
	y.made(10*time.Minute, steady, func(day int, o Outlook, backlog int64) {
		if said < 0 && o.Trend == FallingBehind {
			said = day
		}
		if exceeded < 0 && backlog > 2*600_000 {
			exceeded = day
		}
	})
	if said < 0 || exceeded < 0 || exceeded-said < 7 {
		t.Errorf("said on day %d, two nights' work on day %d", said, exceeded)
	}
}

// The backlog of a month with slow runs is caught up with afterwards, and the forecast says when.
func TestBrokenMonth(t *testing.T) {
	t.Parallel()
	var y year
	for day := range y {
		y[day] = 400_000
	}
	broken := func(day int) float64 {
		if day >= 100 && day < 130 {
			return 500
		}
		return 1_000
	}
	behind, promised, caught := 0, time.Time{}, 0
	y.made(10*time.Minute, broken, func(day int, o Outlook, backlog int64) {
		switch {
		case day < 100 && o.Trend != InBalance:
			t.Errorf("day %d: %+v", day, o)
		case o.Trend == FallingBehind && day < 130:
			behind++
		case o.Trend == CatchingUp && promised.IsZero() && day > 133:
			promised = o.At
		case caught == 0 && day > 130 && backlog == 0:
			caught = day
		}
	})
	if behind < 25 || promised.IsZero() || caught == 0 {
		t.Fatalf("%d %s %d", behind, promised, caught)
	}
	if actual := now.AddDate(0, 0, caught); promised.Sub(actual).Abs() > 3*24*time.Hour {
		t.Errorf("promised for %s, and caught up on %s", promised, actual)
	}
}

// A task that fails falls behind since it first did, and one that is not reached since the run first stopped.
func TestFailingTasks(t *testing.T) {
	t.Parallel()
	due := insight.Due{Known: true, Dated: true, Now: 5_000, PerDay: [insight.ForecastDays]int64{1_000}}
	failed := []Night{
		{Start: now.AddDate(0, 0, -1), Bound: Failing},
		{Start: now.AddDate(0, 0, -2), Bound: Failing},
		{Start: now.AddDate(0, 0, -3), Rows: 9},
	}
	o := judge(now, []member{{due: due, nights: failed}}, 0, true)[0]
	if o.Trend != FallingBehind || o.Bound != Failing || !o.At.Equal(now.AddDate(0, 0, -2)) {
		t.Errorf("%+v", o)
	}
	behind := []Night{{Start: now.AddDate(0, 0, -1), Bound: NotReached, FailingTask: "sessions"}, failed[1], failed[2]}
	o = judge(now, []member{{due: due, nights: behind}}, 0, true)[0]
	if o.Trend != FallingBehind || o.Bound != NotReached || o.FailingTask != "sessions" {
		t.Errorf("not reached: %+v", o)
	}
	due.Now = 0
	if o = judge(now, []member{{due: due, nights: failed}}, 0, true)[0]; o.Trend != InBalance {
		t.Errorf("without anything to do: %+v", o)
	}
	if o = judge(now, []member{{}}, 0, true)[0]; o.Trend != Unknown {
		t.Errorf("nothing is known: %+v", o)
	}
}

// If no run is scheduled, only tasks without work are in balance, even after a run by hand.
func TestNothingIsScheduled(t *testing.T) {
	t.Parallel()
	known := insight.Due{Known: true}
	work := insight.Due{Known: true, Dated: true, PerDay: [insight.ForecastDays]int64{7: 1}}
	run := func(days int) []Night { return []Night{{Start: now.AddDate(0, 0, -days)}} }
	for what, c := range map[string]struct {
		m         member
		scheduled bool
		trend     Trend
		bound     Bound
	}{
		"never run":        {member{due: work}, false, Unknown, NotScheduled},
		"run last week":    {member{due: work, nights: run(7)}, false, Unknown, NotScheduled},
		"run by hand":      {member{due: work, nights: run(1)}, false, Unknown, NotScheduled},
		"scheduled":        {member{due: work}, true, InBalance, ""},
		"refused":          {member{due: insight.Due{Known: true, Now: 1}, refused: true}, true, FallingBehind, Failing},
		"refused later":    {member{due: work, refused: true}, true, FallingBehind, Failing},
		"disabled":         {member{due: work, disabled: true, refused: true, nights: run(1)}, true, Unknown, NotScheduled},
		"disabled, idle":   {member{due: known, disabled: true}, true, InBalance, ""},
		"nothing to do":    {member{due: known}, false, Unknown, NotScheduled},
		"obsolete already": {member{due: insight.Due{Known: true, Now: 1}}, false, Unknown, NotScheduled},
	} {
		if o := judge(now, []member{c.m}, 0, c.scheduled)[0]; o.Trend != c.trend || o.Bound != c.bound {
			t.Errorf("%s: %q %q, want %q %q", what, o.Trend, o.Bound, c.trend, c.bound)
		}
	}
}
