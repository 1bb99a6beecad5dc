package tasks

import (
	"context"
	"fmt"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Env is what a task at work has at hand.
type Env struct {
	Config
	Catalog *campaign.Catalog
	Options *campaign.Options

	engine  *purge.Engine
	journal Journal
}

// log tells the journal. That it could not be written is found out again by the next batch, which must.
func (e *Env) log(ctx context.Context, level Level, messages ...string) {
	_ = e.journal.Log(ctx, level, messages...)
}

// run carries out one task.
func (e *Env) run(ctx context.Context, t Task) (State, error) {
	var err error
	if e.Catalog, err = campaign.LoadCatalog(ctx, e.Pool); err != nil {
		return Failed, err
	}
	p, err := e.plan(ctx, t)
	if err != nil {
		return Failed, err
	}
	for _, n := range p.notes {
		e.log(ctx, n.level, n.text)
	}
	if err := rightsError(p.rights); err != nil {
		return Failed, err
	}
	if t.Do != nil {
		return Succeeded, t.Do(ctx, e)
	}
	if len(p.sweeps) == 0 {
		return Skipped, nil
	}
	if err := e.sweep(ctx, p.sweeps); err != nil {
		return Failed, err
	}
	if t.After == nil || e.DryRun {
		return Succeeded, nil
	}
	err = e.engine.Retry(ctx, func() error {
		tx, err := e.engine.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if err := t.After(ctx, tx, e); err != nil {
			return err
		}
		return e.journal.Commit(ctx, tx, purge.Delta{})
	})
	return Succeeded, err
}

// sweep carries out the sweeps from the cursor on, or counts for a dry run.
func (e *Env) sweep(ctx context.Context, sweeps []purge.Sweep) error {
	for i, s := range sweeps { // another worker may have come as far as one of them
		if s.Unit == e.Cursor.Unit {
			sweeps = sweeps[i:]
			break
		}
	}
	expected := int64(0)
	for _, s := range sweeps {
		rows, ok, err := e.engine.Estimate(ctx, s)
		if err != nil || !ok { // an estimate is a courtesy: without it there is no bar
			expected = -1
			break
		}
		expected += rows
	}
	for _, s := range sweeps {
		e.journal.At(s.Name, expected)
		if e.DryRun {
			if err := e.engine.Count(ctx, s, func(ctx context.Context, rows int64) error {
				return e.journal.Count(ctx, purge.Delta{Deleted: rows})
			}); err != nil {
				return err
			}
			continue
		}
		result, err := e.engine.Run(ctx, s, e.Cursor)
		if vanished(err) {
			e.log(ctx, Warning, s.Name+": the table was dropped meanwhile: skipped")
			continue
		}
		if err != nil {
			return err
		}
		e.report(ctx, s, result)
	}
	return nil
}

func (e *Env) report(ctx context.Context, s purge.Sweep, r purge.Result) {
	if r.Locked > 0 {
		e.log(ctx, Warning, fmt.Sprintf("%s: %d obsolete rows stayed locked by others; left for the next run", s.Name, r.Locked))
	}
	if r.TableLocked {
		e.log(ctx, Warning, s.Name+": someone keeps the whole table locked; the rest of it is left for the next run")
	}
	if r.Kept > 0 {
		e.log(ctx, Warning, s.Name+": obsolete rows can not be deleted, a trigger of the table prevents it; left")
	}
}
