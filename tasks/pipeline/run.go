package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type Executor interface {
	// Try calls attempt, and repeats it after errors that another attempt may not meet.
	Try(ctx context.Context, task string, attempt func() error) error
	// Do does the task of an attempt. done is false if there was nothing to do.
	Do(ctx context.Context, a *Attempt) (done bool, err error)
	// DoExternal does a task on another database. Its items are in a.Candidates.
	DoExternal(ctx context.Context, a *Attempt, t external.Task) (State, error)
	// Finish completes the outcome of a task. a is nil if the task was not run.
	Finish(ctx context.Context, t plan.Task, a *Attempt, o *Outcome) error
}

// DoEach does several parts of a task. done is true if at least one of them had something to do.
func DoEach(ctx context.Context, parts ...func(context.Context) (bool, error)) (done bool, err error) {
	for _, do := range parts {
		some, err := do(ctx)
		if err != nil {
			return false, err
		}
		done = done || some
	}
	return done, nil
}

type Run struct {
	Config   Config
	Journal  Journal
	Database *Database
	// State is what attempts know of the tasks before theirs.
	State binding.State
	// ClockOffset is how far the clock of this process is ahead of the database's.
	ClockOffset time.Duration

	failed map[string]bool
	cursor purge.Cursor
}

// New returns a run whose tasks read from the pool, which is the database's or a standby's.
func New(ctx context.Context, c Config, j Journal, pool *pgxpool.Pool) *Run {
	if c.Chosen == nil {
		c.Chosen = c.Todo
	}
	r := &Run{Config: c, Journal: j, cursor: c.Cursor, failed: map[string]bool{}}
	maps.Copy(r.failed, c.Failed)
	r.State = binding.State{Succeeded: map[string]bool{}, RetainedParents: map[string]bool{}}
	maps.Copy(r.State.Succeeded, c.Succeeded)
	for done := range c.Succeeded { // a previous worker may have retained parents
		r.State.RetainedParents[done] = !slices.ContainsFunc(c.Todo, func(t plan.Task) bool { return t.Name == done })
	}
	engine := purge.Engine{Pool: pool, Ledger: j.Ledger, Settings: c.Settings, Lock: c.Lock}
	r.Database = NewDatabase(ctx, c, j, c.Pool, engine)
	return r
}

// Tasks does the tasks of the run. Its error is that of the failed tasks, ErrStopped, or one that wraps ErrLost;
// nil if no task failed.
func (r *Run) Tasks(ctx context.Context, x Executor) (failed error) {
	for _, t := range r.Config.Todo {
		if err := r.Journal.Tasks.TaskStarted(ctx, t.Name); err != nil {
			return unwritten(err)
		}
		o, err := r.Task(ctx, x, t)
		if err != nil {
			return err
		}
		if err := r.Journal.Tasks.TaskFinished(ctx, o); err != nil {
			return unwritten(err)
		}
		if o.State == Failed {
			failed = errors.Join(failed, o.err(t.Name))
			if !r.Config.ContinueOnError && t.Kind != plan.Policy { // policies do not depend on each other
				break
			}
		}
		r.cursor = purge.Cursor{}
	}
	return failed
}

// Task does one task. Its error is about the run; an error of the task is in the outcome.
func (r *Run) Task(ctx context.Context, x Executor, t plan.Task) (o Outcome, err error) {
	if i := slices.IndexFunc(t.Requires, func(name string) bool { return r.failed[name] }); i >= 0 {
		o = Outcome{State: NotRun, Details: []message.Message{message.DependencyFailed.With("task", t.Requires[i])}}
		r.failed[t.Name] = true
		return o, x.Finish(ctx, t, nil, &o)
	}
	r.Database.recorder.startTask()
	var a *Attempt
	err = x.Try(ctx, t.Name, func() (err error) {
		a = &Attempt{Task: t, run: r, Cursor: &r.cursor}
		if o.State, err = a.traceTask(ctx, x); err != nil {
			r.Database.Forget()
		}
		return err
	})
	if EndsAttempt(err) || sqlstate.Lost(err) || ctx.Err() != nil {
		return o, cmp.Or(err, ctx.Err())
	}
	if err != nil {
		rescue.Log(cmp.Or(r.Config.Log, slog.Default()), "task "+t.Name, err)
		o.fail(sqlstate.Explain(err), err)
	}
	o.Options, o.Cutoffs = optionsOf(r.Config, r.Database.Env, t), r.cutoffs(a)
	o.Retained, o.Details = a.Retained, append(retainedDetails(a.Retained), a.Stopped...)
	if failed := a.Retained.Tables; t.Vacuums && failed > 0 {
		o.Details = []message.Message{message.ResultVacuum.With("tables", failed)}
	}
	r.State.RetainedParents[t.Name] = a.ParentsRetained
	if err := x.Finish(ctx, t, a, &o); err != nil {
		return o, err
	}
	r.State.Succeeded[t.Name], r.failed[t.Name] = o.State == Succeeded, o.State == Failed
	return o, nil
}

// cutoffs returns the cutoffs of an attempt by the names of their delays.
func (r *Run) cutoffs(a *Attempt) map[string]guard.CutoffRecord {
	times := a.Task.Cutoffs(r.Database.Env)
	if a.Candidates != nil {
		times[a.Task.Name] = a.Candidates.Cutoff
	}
	cutoffs := map[string]guard.CutoffRecord{}
	for name, at := range times {
		cutoffs[name] = guard.CutoffRecord{At: at, ReferenceTime: r.Config.Now, ClockOffset: r.ClockOffset}
	}
	return cutoffs
}

// unwritten returns the error of writing to the journal. Another worker may have the run then, unless the run must
// stop.
func unwritten(err error) error {
	if EndsAttempt(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

func Lost(err error) error {
	if sqlstate.Lost(err) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// EndsAttempt reports whether an error is about the run rather than the current task, or ends the attempt.
func EndsAttempt(err error) bool {
	return errors.Is(err, ErrStopped) || errors.Is(err, ErrLost) || errors.Is(err, ErrHoldCreated) ||
		errors.Is(err, ErrPolicyChanged) || errors.Is(err, context.Canceled)
}
