package cleanup

import (
	"context"

	"github.com/cleanupd/cleanupd/tasks/rules"
)

// compare adds the results of a dry run with the stored options to the outcome.
func (x *counting) compare(ctx context.Context, t rules.Task, o *Outcome) error {
	stored, err := x.baseline.run.Task(ctx, x.baseline, t)
	if err != nil || o.Preview == nil || stored.Preview == nil {
		return err
	}
	o.Preview.Tables = compareTables(o.Preview.Tables, stored.Preview.Tables)
	return nil
}

// compareTables adds the numbers of rows with the stored options to the tables, and the tables from which only the
// stored options would delete rows.
func compareTables(tables, stored []PreviewTable) []PreviewTable {
	type key struct {
		table  string
		action PreviewAction
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
			tables = append(tables, PreviewTable{
				Table:     t.Table,
				Action:    t.Action,
				RowsTotal: t.RowsTotal, TotalEstimated: t.TotalEstimated,
				BaselineRows: &n,
				Rule:         t.Rule,
			})
		}
	}
	return tables
}
