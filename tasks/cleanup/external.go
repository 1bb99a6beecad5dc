package cleanup

import (
	"context"
	"time"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func (x *executing) DoExternal(ctx context.Context, a *Attempt, o external.Task) (State, error) {
	j := x.run.Journal
	// The task reports the number of all rows that it has deleted in this run so far.
	deleted := func(ctx context.Context, rows int64) error {
		return j.Count(ctx, purge.Delta{Deleted: rows - j.Done(), Statements: 1})
	}
	id := x.run.Config.ID
	if a.Binder.Env.Holds.Everything {
		a.Retained.OnHold = int64(len(a.Matches.Items))
		a.Log(ctx, everythingOnHold(a.Matches))
		rows, err := o.Deleted(ctx, id) // rows deleted before everything was on hold
		if err != nil {
			return Failed, err
		}
		return Skipped, deleted(ctx, rows)
	}
	if a.History != nil {
		trips := a.History.RefusedTrips(a.Options())
		if trips == nil {
			var err error
			if trips, err = judgeItems(ctx, a, o, id, 0, false); err != nil {
				return Failed, err
			}
		}
		if err := guard.Refuse(trips); err != nil {
			return Failed, err
		}
	}
	return Succeeded, o.Delete(ctx, id, a.Matches, deleted)
}

func (x *counting) DoExternal(ctx context.Context, a *Attempt, o external.Task) (State, error) {
	matches, name := a.Matches, a.Task.Name
	if a.Binder.Env.Holds.Everything {
		a.Retained.OnHold = int64(len(matches.Items))
		a.Log(ctx, everythingOnHold(matches))
		return Skipped, nil
	}
	var sum purge.Tally
	for _, i := range matches.Items {
		x.found.parents[name] = append(x.found.parents[name], i.ID)
		sum.Add(purge.Tally{Oldest: &i.Date, Newest: &i.Date, Keys: []int64{i.ID}})
	}
	x.found.state.Deleted[name] = x.found.parents[name]
	items := x.found.tables.at(matches.Table, ActionDelete, matches.Rule)
	items.RowsTotal, items.Oldest, items.Newest, items.Sample = matches.Total, sum.Oldest, sum.Newest, sum.Keys
	if a.History != nil {
		var err error
		before := x.found.deleted[matches.Table]
		if items.Guards, err = judgeItems(ctx, a, o, x.run.Config.ID, before, true); err != nil {
			return Failed, err
		}
		x.found.deleted[matches.Table] += int64(len(matches.Items))
	}
	return Succeeded, o.Preview(ctx, matches, func(ctx context.Context, rows map[string]int64) error {
		d := purge.Delta{Statements: 1}
		for table, n := range rows {
			t := items
			if table != matches.Table {
				t = x.found.tables.at(table, ActionDelete, "of a row of "+matches.Table+": "+matches.Rule)
			}
			t.Rows += n
			d.Deleted += n
		}
		return x.run.Journal.Count(ctx, d)
	})
}

// judgeItems checks how many items an external task would delete. before is how many of them earlier tasks of a dry run
// would delete.
func judgeItems(
	ctx context.Context, a *Attempt, o external.Task, run string, before int64, dryRun bool,
) ([]guard.Trip, error) {
	items := guard.Items{
		Table:   a.Matches.Table,
		Total:   a.Matches.Total,
		Number:  int64(len(a.Matches.Items)),
		Before:  before,
		Options: a.Options(),
		DryRun:  dryRun,
	}
	if a.History.MaxSharePercent > 0 {
		var err error
		if items.Recent, err = o.RecentlyDeleted(ctx, run, guard.SharePeriod); err != nil {
			return nil, err
		}
	}
	var former time.Time
	if former, items.CutoffMoved = a.MovedFast()[a.Task.Name]; items.CutoffMoved {
		for _, i := range a.Matches.Items {
			if !i.Date.Before(former) {
				items.SinceCutoff++
			}
		}
	}
	return a.History.JudgeItems(items), nil
}

func everythingOnHold(m *external.Matches) message.Message {
	return message.EverythingOnHold.With("rows", len(m.Items), "table", m.Table)
}
