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
	"github.com/cleanupd/cleanupd/service/runs/instance"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/forecast"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
)

// How long a forecast is used.
const maxAge = time.Minute

type Task struct {
	forecast.Due
	Outlook
	// Rows that the next run will find, and how long it will work on them; 0: unknown.
	NextRun int64
	Took    time.Duration
}

// Whether runs keep up, and when sequences end.
type Forecast struct {
	Time      time.Time
	Tasks     []Task
	Sequences []Sequence
	// Which sequences are missing, and why; "" if none is.
	SequencesProblem string
	Size             Size
}

// Forecaster makes one forecast at a time, and records one after each sampling of the tables, while no run works.
type Forecaster struct {
	Pool  *pgxpool.Pool
	Owner *instance.Owner
	// Configuration of a run, with all tasks as they are now.
	Config   func(ctx context.Context, db campaign.Querier) (pipeline.Config, error)
	Schedule func(ctx context.Context) (*schedule.Schedule, error)

	mu   sync.Mutex
	made time.Time
	last *Forecast
}

// The forecast is at most a minute old.
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
	tasks, err := forecast.New(ctx, config, holds)
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
	if plan.Enabled && plan.NextRunTime != nil {
		next = *plan.NextRunTime
	}
	for i, o := range judge(made.Time, members, plan.MaxDuration) {
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

// A forecast is due if the tables have been sampled since the last one, no run works, and none has ended in the last
// minutes, since others may follow.
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

// Record stores what metrics need of a new forecast, with a sample of the sequences.
func (f *Forecaster) Record(ctx context.Context) error {
	made, err := f.Forecast(ctx)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, f.Pool, func(tx pgx.Tx) error {
		return errors.Join(SampleSequences(ctx, tx), made.store(ctx, tx))
	})
}

// Only what metrics need is stored.
func (f *Forecast) store(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	b.Queue("LOCK TABLE cleanupd.forecast IN SHARE ROW EXCLUSIVE MODE") // replicas may make one at the same time
	b.Queue("DELETE FROM cleanupd.forecast")
	for _, t := range f.Tasks {
		b.Queue("INSERT INTO cleanupd.forecast VALUES ($1, $2, $3, $4)", t.Task, t.Trend, t.Bound, f.Time)
	}
	return tx.SendBatch(ctx, b).Close()
}

// FallingBehindTasks returns the tasks of the last forecast that any replica made whose trend it knows, and whether
// they
// fall behind. Forecasts of more than two days ago do not count.
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
