package dryrun

import (
	"context"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/tasks/figures"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func (x *executor) DoExternal(ctx context.Context, a *pipeline.Attempt, o external.Task) (pipeline.State, error) {
	candidates, name := a.Candidates, a.Task.Name
	if a.Binder.Env.Holds.Everything {
		a.Retained.OnHold = int64(len(candidates.Items))
		a.Log(ctx, figures.EverythingOnHold(candidates))
		return pipeline.Skipped, nil
	}
	var sum purge.Tally
	for _, i := range candidates.Items {
		x.found.parents[name] = append(x.found.parents[name], i.ID)
		sum.Add(purge.Tally{Oldest: &i.Date, Newest: &i.Date, Keys: []int64{i.ID}})
	}
	x.found.state.Deleted[name] = x.found.parents[name]
	items := x.found.tables.at(candidates.Table, preview.Delete, candidates.Rule)
	items.RowsTotal, items.Oldest, items.Newest, items.Sample = candidates.Total, sum.Oldest, sum.Newest, sum.Keys
	if a.History != nil {
		var err error
		before := x.found.deleted[candidates.Table]
		if items.Guards, err = figures.JudgeItems(ctx, a, o, x.run.Config.ID, before, true); err != nil {
			return pipeline.Failed, err
		}
		x.found.deleted[candidates.Table] += int64(len(candidates.Items))
	}
	return pipeline.Succeeded, o.Preview(ctx, candidates, func(ctx context.Context, rows map[string]int64) error {
		d := purge.Delta{Statements: 1}
		for table, n := range rows {
			t := items
			if table != candidates.Table {
				t = x.found.tables.at(table, preview.Delete, "of a row of "+candidates.Table+": "+candidates.Rule)
			}
			t.Rows += n
			d.Deleted += n
		}
		return x.run.Journal.Counts.Count(ctx, d)
	})
}
