package forecast

import (
	"context"
	"errors"
	"fmt"
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

// maxAge is how long a forecast is used before the next one is made.
const maxAge = time.Minute

type Task struct {
	insight.Due
	Outlook
	// NextRun is how many rows the next run will find, and Took how long it will work on them; 0 if unknown.
	NextRun int64
	Took    time.Duration
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

// Forecaster makes one forecast at a time. It also records one after each sampling of the tables, while no run
// works.
type Forecaster struct {
	Pool  *pgxpool.Pool
	Owner *store.Owner
	// Config returns the configuration of a run with all tasks as they are now.
	Config   func(ctx context.Context, db campaign.Querier) (cleanup.Config, error)
	Schedule func(ctx context.Context) (*schedule.Schedule, error)

	mu   sync.Mutex
	made time.Time
	last *Forecast
}

// Forecast returns a forecast that is at most a minute old.
func (f *Forecaster) Forecast(ctx context.Context) (*Forecast, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && time.Since(f.made) < maxAge {
		return f.last, nil
	}
	made, err := f.forecast(ctx)
	if err == nil {
		f.last, f.made = made, time.Now()
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
	tasks, err := insight.NewForecaster(ctx, config, holds)
	if err != nil {
		return nil, err
	}
	made := &Forecast{Time: tasks.Now()}
	var members []member
	for _, t := range config.Pipeline {
		due, err := tasks.Task(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("forecast %s: %w", t.Name, err)
		}
		members = append(members, member{due, nights[t.Name]})
	}
	next := made.Time
	scheduled := plan.Enabled && plan.NextRunTime != nil
	if scheduled {
		next = *plan.NextRunTime
	}
	for i, o := range judge(made.Time, members, plan.MaxDuration, scheduled) {
		t := Task{Due: members[i].due, Outlook: o, NextRun: members[i].due.Within(next.Sub(made.Time))}
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
	made.Size, err = ReadSize(ctx, f.Pool)
	return made, err
}

// isDue is the SQL condition that a forecast has to be recorded: the tables have been sampled since the last one,
// but not in the last five minutes, because runs may follow each other, and no run is queued or works.
const isDue = `
EXISTS (SELECT FROM cleanupd.table_sampler WHERE last_time < clock_timestamp() - interval '5 minutes'
  AND last_time > COALESCE((SELECT max(forecast_time) FROM cleanupd.forecast), '-infinity'))
AND NOT EXISTS (SELECT FROM cleanupd.run WHERE state IN ('QUEUED', 'RUNNING'))`

func (f *Forecaster) Tick(ctx context.Context) error {
	if owns, err := f.Owner.Owns(ctx, f.Pool); err != nil || !owns {
		return err
	}
	var due bool
	if err := f.Pool.QueryRow(ctx, "SELECT "+isDue).Scan(&due); err != nil || !due {
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
		return errors.Join(SampleSequences(ctx, tx), made.store(ctx, tx))
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

// FallingBehindTasks returns the tasks whose trend the last forecast of any replica knows, and whether they fall
// behind. Forecasts that are more than two days old do not count.
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
