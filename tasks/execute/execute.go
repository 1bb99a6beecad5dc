package execute

import (
	"context"
	"errors"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/figures"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/hold"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Run does the tasks of a run. Its error is that of the failed tasks, pipeline.ErrStopped, or one that wraps
// pipeline.ErrLost; nil if no task failed.
func Run(ctx context.Context, c pipeline.Config, j pipeline.Journal) error {
	b := &bounded{next: j.Ledger}
	j.Ledger = b
	x := &executor{run: pipeline.New(ctx, c, j, c.Pool), bounds: b}
	if err := x.run.Begin(ctx); err != nil {
		return pipeline.Lost(err)
	}
	return pipeline.Lost(x.run.Tasks(ctx, x))
}

type executor struct {
	run    *pipeline.Run
	bounds *bounded
}

// maxChanges is how often a task begins again because relations have changed.
const maxChanges = 10

// Try repeats a task after transient errors of queries outside of its batches, after a hold was created or the
// task's policy was changed, and after relations that its statements change or read were changed.
func (x *executor) Try(ctx context.Context, task string, attempt func() error) error {
	for changes := 0; ; {
		err := x.run.Database.Engine.Retry(ctx, task, attempt)
		changed := (*purge.ChangedError)(nil)
		switch {
		case errors.Is(err, pipeline.ErrHoldCreated):
			x.run.Database.Log(ctx, message.Infof("%s: a hold was created and applies to the rest of the task", task))
		case errors.Is(err, pipeline.ErrPolicyChanged): // the next attempt stops, and says why
		case errors.As(err, &changed) && changes < maxChanges:
			changes++
			x.run.Database.Forget()
			x.run.Database.Log(ctx, message.TablesChanged.With("tables", changed.Relations, "task", task))
		default:
			return err
		}
	}
}

func (x *executor) Finish(context.Context, plan.Task, *pipeline.Attempt, *pipeline.Outcome) error {
	return nil
}

func (x *executor) Do(ctx context.Context, a *pipeline.Attempt) (done bool, err error) {
	t := &task{Attempt: a, run: x.run, journal: x.run.Journal, bounds: x.bounds, expected: -1}
	if err := t.resume(ctx); err != nil {
		return false, err
	}
	if done, err = t.do(ctx); err != nil || !done || a.Err() != nil {
		return done, err
	}
	if err := t.advance(ctx); err != nil {
		return true, err
	}
	if a.ProvesRule() && t.journal.Counts.Done() == 0 && !t.detached {
		t.Log(ctx, message.PolicyNothingProven.With("guard", guard.Policy))
	}
	return true, t.vacuumEmptied(ctx)
}

// do does the parts of a task. done is false if there was nothing to do.
func (t *task) do(ctx context.Context) (done bool, err error) {
	parents, err := hold.Choose(ctx, t.Attempt)
	if err != nil {
		return false, err
	}
	if err := t.guard(ctx, parents); err != nil {
		return false, err
	}
	if parents.IDs, err = t.PurgeMidSourced(ctx, parents, remote{t}); err != nil {
		return false, err
	}
	t.expected = figures.Estimate(ctx, t.Binder, t.Jobs, parents)
	if _, err := t.sweepAll(ctx, t.Jobs, parents); err != nil {
		return false, err
	}
	if err := hold.Count(ctx, t.Attempt); err != nil {
		return false, err
	}
	done, err = pipeline.DoEach(ctx, t.rollUp, drops{t}.dropAll, t.vacuumAll)
	return done || len(t.Jobs) > 0, err
}

// guard fails with a guard.TrippedError, before anything is changed, if a guard trips.
func (t *task) guard(ctx context.Context, parents binding.Parents) error {
	if t.History == nil {
		return nil
	}
	if trips := t.History.RefusedTrips(t.Options()); trips != nil {
		return guard.Refuse(trips)
	}
	if saved := t.Saved(); saved != nil {
		parents.IDs = binding.Without(parents.IDs, saved.Retained)
	}
	var err error
	if parents.IDs, err = t.WithoutKept(ctx, parents.IDs); err != nil {
		return err
	}
	f := figures.Task{Attempt: t.Attempt, Jobs: t.Jobs, Parents: parents}
	trips, err := f.Judge(ctx, t.bounds.setShare)
	if err != nil {
		return err
	}
	more, err := drops{t}.judgeOfLists(ctx, parents)
	if err != nil {
		return err
	}
	return guard.Refuse(append(trips, more...))
}
