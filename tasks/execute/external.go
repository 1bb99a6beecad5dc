package execute

import (
	"context"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/tasks/figures"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func (x *executor) DoExternal(ctx context.Context, a *pipeline.Attempt, o external.Task) (pipeline.State, error) {
	counts := x.run.Journal.Counts
	// The task reports the number of all rows that it has deleted in this run so far.
	deleted := func(ctx context.Context, rows int64) error {
		return counts.Count(ctx, purge.Delta{Deleted: rows - counts.Done(), Statements: 1})
	}
	id := x.run.Config.ID
	if a.Binder.Env.Holds.Everything {
		a.Retained.OnHold = int64(len(a.Candidates.Items))
		a.Log(ctx, figures.EverythingOnHold(a.Candidates))
		rows, err := o.Deleted(ctx, id) // rows deleted before everything was on hold
		if err != nil {
			return pipeline.Failed, err
		}
		return pipeline.Skipped, deleted(ctx, rows)
	}
	if a.History != nil {
		trips := a.History.RefusedTrips(a.Options())
		if trips == nil {
			var err error
			if trips, err = figures.JudgeItems(ctx, a, o, id, 0, false); err != nil {
				return pipeline.Failed, err
			}
		}
		if err := guard.Refuse(trips); err != nil {
			return pipeline.Failed, err
		}
	}
	return pipeline.Succeeded, o.Delete(ctx, id, a.Candidates, deleted)
}
