package dryrun

import (
	"cmp"
	"context"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Run does a dry run. Its error is that of the failed tasks, pipeline.ErrStopped, or one that wraps
// pipeline.ErrLost; nil if no task failed.
func Run(ctx context.Context, c pipeline.Config, j pipeline.Journal) error {
	x := newExecutor(ctx, c, j)
	if c.WhatIf != nil {
		stored := c
		stored.WhatIf = nil
		x.baseline = newExecutor(ctx, stored, j.Silent())
	}
	engine := x.run.Database.Engine
	err := engine.Retry(ctx, "the standby", func() error { return x.awaitStandby(ctx) })
	if err == nil {
		err = x.run.Begin(ctx)
	}
	if err != nil {
		return pipeline.Lost(x.standbyError(ctx, err))
	}
	x.resume()
	if x.baseline != nil {
		x.baseline.resume()
	}
	return pipeline.Lost(x.run.Tasks(ctx, x))
}

type executor struct {
	run   *pipeline.Run
	found *results
	// baseline is the dry run by the stored options, if this one replaces some of them.
	baseline *executor
	// setsOnly is set if only the parents of tasks are determined and no rows are counted.
	setsOnly bool
}

// newExecutor returns an executor that reads from the standby, if there is one.
func newExecutor(ctx context.Context, c pipeline.Config, j pipeline.Journal) *executor {
	x := &executor{run: pipeline.New(ctx, c, j, cmp.Or(c.Standby.Pool, c.Pool))}
	x.found = newResults(x.run.Config.Chosen)
	x.run.State.DryRun = &x.found.state
	x.run.Database.Predecessors = x.found.predecessors
	return x
}

func (x *executor) resume() {
	for _, t := range x.found.chosen {
		if done, ok := x.run.Config.Done[t.Name]; ok {
			x.found.resume(t, done)
		}
		if x.run.Config.Failed[t.Name] {
			x.markIneffective(t)
		}
	}
}

// markIneffective notes that a task which failed or was not run would change nothing. If its parents are known it
// is not ineffective, since it does a part of its work.
func (x *executor) markIneffective(t plan.Task) {
	if x.found.state.Deleted[t.Name] == nil {
		x.found.ineffective[t.Name] = true
		x.run.Database.ForgetPlans() // the compiled tasks depend on its changes
	}
}

// Try calls attempt only once, since a second attempt would count rows twice.
func (x *executor) Try(ctx context.Context, _ string, attempt func() error) error {
	return x.standbyError(ctx, attempt())
}

func (x *executor) Finish(ctx context.Context, t plan.Task, a *pipeline.Attempt, o *pipeline.Outcome) error {
	x.found.problems[t.Name] = cmp.Or(o.Problem, message.Join(o.Details))
	if a != nil {
		o.Preview = x.preview(x.run.Database.InZone(ctx), a)
	}
	if x.baseline != nil && a != nil {
		if err := x.compare(ctx, t, o); err != nil {
			return err
		}
	}
	if o.State == pipeline.Failed || o.State == pipeline.NotRun {
		x.markIneffective(t)
		if x.baseline != nil {
			x.baseline.markIneffective(t)
		}
	}
	return nil
}
