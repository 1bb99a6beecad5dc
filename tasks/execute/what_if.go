package execute

import (
	"context"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// unheard is the journal of what a dry run finds by the options as they are stored: it is told beside the rest, table by table.
type unheard struct{ Journal }

// Count counts nothing, but may stop the run.
func (u *unheard) Count(ctx context.Context, _ purge.Delta) error { return u.Proceed(ctx) }

// Log says nothing: what is left undone is said once.
func (u *unheard) Log(context.Context, severity.Level, ...string) error { return nil }

// History is nothing: guards are judged by the options that are supposed.
func (u *unheard) History(context.Context) (*History, error) { return nil, nil }

// compare adds what a task would do by the options as they are stored.
func (o *Outcome) compare(now Outcome) {
	if o.Planned == nil || now.Planned == nil {
		return
	}
	type of struct {
		table  string
		action Action
	}
	before := map[of]int64{}
	for _, p := range now.Planned.Preview {
		before[of{p.Table, p.Action}] = p.Rows + p.Tables
	}
	all := o.Planned.Preview
	for i, p := range all {
		n := before[of{p.Table, p.Action}]
		all[i].RowsNow = &n
		delete(before, of{p.Table, p.Action})
	}
	for _, p := range now.Planned.Preview {
		if n, alone := before[of{p.Table, p.Action}]; alone {
			all = append(all, TablePreview{Table: p.Table, Action: p.Action, RowsTotal: p.RowsTotal, RowsNow: &n, Rule: p.Rule})
		}
	}
	o.Planned.Preview = all
}
