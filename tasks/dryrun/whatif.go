package dryrun

import (
	"context"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// compare makes the dry run of a task by the stored options, and adds its results to the outcome.
func (x *executor) compare(ctx context.Context, t plan.Task, o *pipeline.Outcome) error {
	stored, err := x.baseline.run.Task(ctx, x.baseline, t)
	if err != nil || o.Preview == nil || stored.Preview == nil {
		return err
	}
	o.Preview.Tables = compareTables(o.Preview.Tables, stored.Preview.Tables)
	return nil
}

// compareTables adds to what a task would do how many rows, or tables, it would delete by the stored options. Tables of
// which it would delete rows only by those are added.
func compareTables(tables, stored []preview.Table) []preview.Table {
	type key struct {
		table  string
		action preview.Action
	}
	baseline := map[key]int64{}
	for _, t := range stored {
		baseline[key{t.Table, t.Action}] = t.Rows + t.Tables
	}
	for i, t := range tables {
		n := baseline[key{t.Table, t.Action}]
		tables[i].BaselineRows = &n
		delete(baseline, key{t.Table, t.Action})
	}
	for _, t := range stored {
		if n, only := baseline[key{t.Table, t.Action}]; only {
			tables = append(tables, preview.Table{
				Table:        t.Table,
				Action:       t.Action,
				RowsTotal:    t.RowsTotal,
				BaselineRows: &n,
				Rule:         t.Rule,
			})
		}
	}
	return tables
}

// silent returns the journal of a dry run by the stored options: it counts and logs nothing, since its results are
// shown with the results of the other one, and judges no guards.
func silent(j pipeline.Journal) pipeline.Journal {
	j.Counts, j.Progress, j.Safety = silentCounts{j.Proceed}, silentProgress{j.Progress.At}, onlyHolds{j.Safety.Holds}
	return j
}

// silentCounts implements pipeline.Counts.
type silentCounts struct {
	proceed func(ctx context.Context) error
}

func (c silentCounts) Count(ctx context.Context, _ purge.Delta) error { return c.proceed(ctx) }

func (silentCounts) Done() int64 { return 0 }

func (silentCounts) DoneByTable(context.Context) ([]purge.Space, error) { return nil, nil }

func (silentCounts) Emptied(context.Context, string) ([]string, error) { return nil, nil }

// silentProgress implements pipeline.Progress.
type silentProgress struct {
	at func(object string, expected int64)
}

func (p silentProgress) At(object string, expected int64) { p.at(object, expected) }

func (silentProgress) Log(context.Context, ...message.Message) error { return nil }

// onlyHolds implements pipeline.Safety.
type onlyHolds struct {
	holds func(ctx context.Context) (plan.Holds, error)
}

func (s onlyHolds) Holds(ctx context.Context) (plan.Holds, error) { return s.holds(ctx) }

func (onlyHolds) History(context.Context) (*guard.History, error) { return nil, nil }
