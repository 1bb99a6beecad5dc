package rollup

import (
	"context"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
)

// Prepare finds the period and counts its rows. If there is nothing to roll up, it logs that and returns no rows.
// ok is false if the task rolls nothing up in this database.
func Prepare(ctx context.Context, a *pipeline.Attempt) (p *Period, rows int64, ok bool, err error) {
	if a.Task.RollUp == nil {
		return nil, 0, false, nil
	}
	p, skip := New(a.Binder.Env, *a.Task.RollUp)
	if skip != nil {
		a.Log(ctx, *skip)
		return nil, 0, false, nil
	}
	if err := p.Check(); err != nil {
		return nil, 0, false, err
	}
	err = a.Binder.Engine.Retry(ctx, p.Table.Name, func() (err error) {
		if err := p.Find(ctx, a.Binder.Pool); err != nil {
			return err
		}
		rows, err = p.Count(ctx, a.Binder.Pool)
		return err
	})
	switch {
	case err != nil:
		return nil, 0, false, err
	case p.UpToDate():
		a.Log(ctx, message.Infof("coalesceUpToDate"))
		return p, 0, true, nil
	case rows > 0 && p.OnHold(a.Binder.Env, a.Plan):
		a.Log(ctx, message.Infof("%s, or XtkOption, is on hold: its rows are not changed", p.Table.Name))
		a.Retained.OnHold += rows
		return p, 0, true, nil
	case rows > 0:
		a.Log(ctx, message.Infof("coalescingErrors"))
	}
	return p, rows, true, nil
}
