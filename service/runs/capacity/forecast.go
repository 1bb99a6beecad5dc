// Package capacity reports which tables exist and how fast they grow, which task covers them or which policy would, and
// whether runs keep up with what becomes obsolete. It samples the tables once a day and after each run, on one replica.
// Package runs samples and forecasts, package service lists tables.
package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

// maxForecastAge is how long a forecast is used before the next one is made, unless what it was made from has changed.
const maxForecastAge = time.Minute

type Task struct {
	insight.Due
	Outlook
	// Took is how long the next run is expected to work on the task; 0 if unknown.
	Took time.Duration
}

// Forecast says whether runs keep up, and when sequences reach their limits.
type Forecast struct {
	Time      time.Time
	Tasks     []Task
	Sequences []Sequence
	// SequencesProblem says which sequences are missing and why; "" if none is missing.
	SequencesProblem string
	Size             Size
}

// Forecaster makes one forecast at a time. It also records one after each sampling of the tables, when no run is queued
// or running.
type Forecaster struct {
	Pool  *pgxpool.Pool
	Owner *store.Owner
	// Config returns the configuration of a run with all tasks as they are now.
	Config   func(ctx context.Context, db campaign.Querier) (cleanup.Config, error)
	Schedule func(ctx context.Context) (*schedule.Schedule, error)
	// Undo is how long the trash keeps rows unless the policy or the schedule says.
	Undo time.Duration

	mu   sync.Mutex
	made time.Time
	from string // what basis was
	last *Forecast
}

// basis is SQL that changes when a run ends, and with policies, the schedule, guards and holds.
const basis = `SELECT md5(concat_ws('|', (SELECT max(end_time) FROM cleanupd.run),
  (SELECT string_agg(p::text, '|' ORDER BY p.name) FROM cleanupd.policy p), (SELECT s::text FROM cleanupd.schedule s),
  (SELECT g::text FROM cleanupd.guards g), (SELECT string_agg(h::text, '|' ORDER BY h.number) FROM cleanupd.hold h)))`

// Forecast returns a forecast that is at most a minute old, and made after the last run ended, and after the last
// change of policies, schedule, guards and holds.
func (f *Forecaster) Forecast(ctx context.Context) (*Forecast, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var from string
	if err := f.Pool.QueryRow(ctx, basis).Scan(&from); err != nil {
		return nil, err
	}
	if f.last != nil && time.Since(f.made) < maxForecastAge && f.from == from {
		return f.last, nil
	}
	made, err := f.forecast(ctx)
	if err == nil {
		f.last, f.made, f.from = made, time.Now(), from
	}
	return made, err
}

func (f *Forecaster) forecast(ctx context.Context) (*Forecast, error) {
	config, err := f.Config(ctx, f.Pool)
	if err != nil {
		return nil, err
	}
	config.Pool = f.Pool
	plan, err := f.Schedule(ctx)
	if err != nil {
		return nil, err
	}
	holds, _, err := store.EffectiveHolds(ctx, f.Pool, time.Now())
	if err != nil {
		return nil, err
	}
	nights, err := nights(ctx, f.Pool)
	if err != nil {
		return nil, err
	}
	next, scheduled := time.Time{}, plan.Enabled && plan.NextRunTime != nil
	if scheduled {
		next = *plan.NextRunTime
	}
	tasks, err := insight.NewForecaster(ctx, config, holds, next)
	if err != nil {
		return nil, err
	}
	made := &Forecast{Time: tasks.Now()}
	proven, err := store.ProvenBases(ctx, f.Pool, "")
	if err != nil {
		return nil, err
	}
	refusesAll, err := store.NextIsUnattended(ctx, f.Pool)
	if err != nil {
		return nil, err
	}
	guarded := plan.Enabled && plan.NextPlan == "" // a plan passes these guards
	refusesAll = refusesAll && guarded
	var members []member
	for _, t := range config.Pipeline {
		due, err := tasks.Task(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("forecast %s: %w", t.Name, err)
		}
		basis, isPolicy := proven[t.Name]
		if t.Disabled {
			due.NextRun = 0
		}
		refused := refusesAll || guarded && isPolicy && basis != t.Basis
		if scheduled && !refused && due.NextRun > 0 {
			t.Undo = cmp.Or(t.Undo, plan.Undo, &f.Undo)
			if refused, err = tasks.IsRefused(ctx, t); err != nil {
				return nil, err
			}
		}
		members = append(members, member{due: due, nights: nights[t.Name], disabled: t.Disabled, refused: refused})
	}
	for i, o := range judge(made.Time, members, plan.MaxDuration, scheduled) {
		t := Task{Due: members[i].due, Outlook: o}
		if o.Rate > 0 {
			t.Took = time.Duration(float64(t.NextRun) / o.Rate * float64(time.Second))
		}
		made.Tasks = append(made.Tasks, t)
	}
	made.Sequences, err = Sequences(ctx, f.Pool)
	if err == nil {
		made.SequencesProblem, err = hiddenSequences(ctx, f.Pool)
	}
	if sqlstate.Lost(err) || ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		made.SequencesProblem = sqlstate.Explain(err)
	}
	made.Size, err = readSize(ctx, f.Pool)
	return made, err
}

// isForecastDue is the SQL condition that a forecast has to be recorded: the tables have been sampled since the last
// one, no run is queued or running, and the sampling is at least five minutes old, because another run may follow soon.
const isForecastDue = `
EXISTS (SELECT FROM cleanupd.table_sampler WHERE last_time < clock_timestamp() - interval '5 minutes'
  AND last_time > COALESCE((SELECT max(forecast_time) FROM cleanupd.forecast), '-infinity'))
AND NOT EXISTS (SELECT FROM cleanupd.run WHERE state IN ('QUEUED', 'RUNNING'))`

func (f *Forecaster) Tick(ctx context.Context) error {
	if owns, err := f.Owner.Owns(ctx, f.Pool); err != nil || !owns {
		return err
	}
	var due bool
	if err := f.Pool.QueryRow(ctx, "SELECT "+isForecastDue).Scan(&due); err != nil || !due {
		return err
	}
	return f.Record(ctx)
}

// Record makes a forecast, and stores a sample of the sequences and the part of the forecast that metrics need.
func (f *Forecaster) Record(ctx context.Context) error {
	made, err := f.Forecast(ctx)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, f.Pool, func(tx pgx.Tx) error {
		return errors.Join(sampleSequences(ctx, tx), made.store(ctx, tx))
	})
}

// store stores only what metrics need.
func (f *Forecast) store(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	b.Queue("LOCK TABLE cleanupd.forecast IN SHARE ROW EXCLUSIVE MODE") // replicas may make forecasts at the same time
	b.Queue("DELETE FROM cleanupd.forecast")
	for _, t := range f.Tasks {
		b.Queue("INSERT INTO cleanupd.forecast VALUES ($1, $2, $3, $4)", t.Task, t.Trend, t.Bound, f.Time)
	}
	return tx.SendBatch(ctx, b).Close()
}

// FallingBehindTasks returns whether tasks fall behind, by the last forecast of any replica. It leaves out tasks
// without a trend, and forecasts that are more than two days old.
func FallingBehindTasks(ctx context.Context, db campaign.Querier) (map[string]bool, error) {
	rows, _ := db.Query(ctx, `SELECT task, trend = $1 FROM cleanupd.forecast
		WHERE trend <> '' AND forecast_time > clock_timestamp() - interval '2 days'`, FallingBehind)
	var (
		task   string
		behind bool
		tasks  = map[string]bool{}
	)
	_, err := pgx.ForEachRow(rows, []any{&task, &behind}, func() error {
		tasks[task] = behind
		return nil
	})
	return tasks, err
}

// selectNights reads the results of the last runs for each task, newest first, and how long the tasks worked, without
// pauses. It leaves out runs that callers cancelled, because they show nothing. If a task was not run, the query names
// the failed task that prevented it: the one on which it depends, or else the last one before it.
const selectNights = `
SELECT t.name, r.start_time, t.rows_deleted + t.rows_updated,
  COALESCE(extract(epoch FROM t.end_time - t.start_time - t.paused_for), 0)::float8,
  CASE WHEN t.state IN ('CANCELLED', 'NOT_RUN') AND r.error = @stopped THEN
      CASE WHEN EXISTS (SELECT FROM cleanupd.event e WHERE e.run_id = r.id AND strpos(e.body::text,
	'"BATCHES_WAIT"') > 0)
        THEN @throttled::text ELSE @max_duration::text END
    WHEN t.state = 'NOT_RUN' AND blocked.task IS NOT NULL THEN @not_reached::text
    WHEN t.state IN ('FAILED', 'NOT_RUN') THEN @failing::text
    WHEN t.tables_retained > 0 OR t.rows_locked > 0 THEN @locks::text
    ELSE '' END,
  CASE WHEN t.state = 'NOT_RUN' THEN COALESCE(blocked.task, '') ELSE '' END
FROM (SELECT * FROM cleanupd.run WHERE NOT dry_run AND restore IS NULL AND end_time IS NOT NULL
    AND start_time IS NOT NULL AND (state <> 'CANCELLED' OR error = @stopped) ORDER BY create_time DESC LIMIT 30) AS r
JOIN cleanupd.task t ON t.run_id = r.id AND t.chosen
LEFT JOIN LATERAL (SELECT f.name AS task FROM cleanupd.task f
  WHERE t.state = 'NOT_RUN' AND f.run_id = r.id AND f.state = 'FAILED' AND f.kind <> 'POLICY'
    AND f.position < t.position
  ORDER BY f.name = t.details -> 0 -> 'Params' ->> 'task' DESC NULLS LAST, f.position DESC LIMIT 1) AS blocked ON true
ORDER BY r.create_time DESC`

func nights(ctx context.Context, db campaign.Querier) (map[string][]Night, error) {
	rows, _ := db.Query(ctx, selectNights, pgx.StrictNamedArgs{
		"stopped":      store.StopMaxDuration,
		"throttled":    Throttled,
		"max_duration": MaxDuration,
		"failing":      Failing,
		"not_reached":  NotReached,
		"locks":        Locks,
	})
	var (
		task    string
		n       Night
		seconds float64
		found   = map[string][]Night{}
	)
	if _, err := pgx.ForEachRow(rows, []any{&task, &n.Start, &n.Rows, &seconds, &n.Bound, &n.FailingTask}, func() error {
		n.Took = time.Duration(seconds * float64(time.Second))
		found[task] = append(found[task], n)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the last runs: %w", err)
	}
	return found, nil
}

// Trend is whether runs keep up with rows that become obsolete.
type Trend string

const (
	// Unknown means that the task's rows are unknown, or that no run is expected.
	Unknown Trend = ""
	// InBalance means that each run deletes everything that is obsolete.
	InBalance Trend = "IN_BALANCE"
	// CatchingUp means that runs leave some obsolete rows to later ones, and that these become fewer.
	CatchingUp Trend = "CATCHING_UP"
	// FallingBehind means that runs leave some obsolete rows to later ones, and that these become more.
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
	// NotScheduled means that the task is disabled, or that no run is scheduled.
	NotScheduled Bound = "NOT_SCHEDULED"
)

// Night is what one run did for a task.
type Night struct {
	Start time.Time
	Rows  int64
	Took  time.Duration
	Bound Bound // empty if the run deleted everything
	// FailingTask is the task that failed if this one was not reached; otherwise empty.
	FailingTask string
}

// Outlook is the forecast for a task.
type Outlook struct {
	Trend Trend
	// At is when a task that is catching up will finish, or when a task began, or will begin, to fall behind; zero if
	// unknown.
	At    time.Time
	Bound Bound
	// FailingTask is as in the last Night.
	FailingTask string
	// Rate is how many rows a second the task deletes; 0 if unknown.
	Rate float64
}

// member is a task of a pipeline with its past nights, newest first.
type member struct {
	due      insight.Due
	nights   []Night
	disabled bool
	refused  bool // the next scheduled run refuses the task, by a guard or because of undo
}

// judge returns the outlook of each task of a pipeline that runs daily. budget is how long a run may take; 0 means no
// limit. Without a schedule, no runs are expected, whoever started some: they may never come again.
func judge(now time.Time, pipeline []member, budget time.Duration, scheduled bool) []Outlook {
	outlooks := make([]Outlook, len(pipeline))
	rates := make([]float64, len(pipeline))
	for i, m := range pipeline {
		rates[i] = medianRate(m.nights)
	}
	backlogs := simulate(pipeline, rates, budget)
	for i, m := range pipeline {
		outlooks[i] = m.outlook(now, rates[i], backlogs[i], scheduled)
	}
	return outlooks
}

// minRows is how many rows a night needs to count for the rate of a task. recentRates is how many such nights count.
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

// simulate returns how many rows of each task are left after each of the next nights, if runs are as fast as before and
// stop when their budget is used up. A task without a known rate is taken to leave none.
func simulate(pipeline []member, rates []float64, budget time.Duration) [][insight.ForecastDays]float64 {
	left := make([][insight.ForecastDays]float64, len(pipeline))
	backlog := make([]float64, len(pipeline))
	for i, m := range pipeline {
		backlog[i] = float64(m.due.Now)
	}
	for night := range insight.ForecastDays {
		seconds := budget.Seconds()
		for i, m := range pipeline {
			if m.disabled {
				continue
			}
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

// outlook assesses a task by its past nights, and by the rows that the simulation leaves after the next ones.
func (m member) outlook(now time.Time, rate float64, left [insight.ForecastDays]float64, scheduled bool) Outlook {
	o := Outlook{Rate: rate}
	if !m.due.Known {
		return o
	}
	if since, bound := m.bounded(); bound != "" && m.due.Now > 0 && !m.disabled {
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
	if !scheduled || m.disabled && m.hasWork() {
		o.Bound = NotScheduled
		return o
	}
	if m.refused && m.hasWork() {
		o.Trend, o.Bound = FallingBehind, Failing
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

// hasWork reports whether rows are obsolete, or will be within the forecast.
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

// bounded returns since when runs have not deleted everything that was obsolete, and what kept the last one from it; ""
// if the last one deleted everything.
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

// recentRuns is over how many nights usual averages, and recentArrivals over how many arrivals does.
const (
	recentRuns     = 3
	recentArrivals = 7
)

// usual returns the average number of rows in the last nights with a bound.
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
