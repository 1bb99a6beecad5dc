package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type task struct {
	*pipeline.Attempt
	run     *pipeline.Run // the main run, even if the task is on a mid-sourcing server
	journal pipeline.Journal
	bounds  *bounded // nil on a mid-sourcing server
	// expected is how many rows will be deleted or updated; negative if unknown.
	expected int64
	// detached is set once a partition was detached, of which no row counts as deleted.
	detached bool
}

// resume takes over the retained rows of a previous worker, and counts the rows that it left pending on another
// server.
func (t *task) resume(ctx context.Context) error {
	done, err := t.journal.Counts.DoneByTable(ctx)
	if err != nil {
		return fmt.Errorf("read what the task has deleted so far: %w", err)
	}
	t.bounds.startTask(t.Saved(), done)
	if err := t.settlePending(ctx); err != nil {
		return err
	}
	if t.Task.ParentSet != nil { // a cursor does not include the parent set: the task starts over
		*t.Cursor = purge.Cursor{}
	}
	if slices.ContainsFunc(t.Jobs, func(j plan.Job) bool { return j.Unit == t.Cursor.Unit }) {
		t.Retained = t.Cursor.Before
	}
	return nil
}

func (t *task) settlePending(ctx context.Context) error {
	if t.Cursor.Pending == nil {
		return nil
	}
	defer func() { t.Cursor.Pending = nil }()
	rows := len(t.Cursor.Pending.Keys)
	uncounted := func(why string) error {
		t.Log(ctx, message.OtherServerRowsUncounted.With("rows", rows, "problem", why))
		return nil
	}
	i := slices.IndexFunc(t.Jobs, func(j plan.Job) bool { return j.Unit == t.Cursor.Unit })
	if i < 0 {
		return uncounted("their table is no longer among those of the task")
	}
	s, err := t.Binder.Sweep(ctx, &t.Jobs[i], t.Parents)
	if err != nil {
		return err
	}
	err = t.Binder.Engine.SettlePending(ctx, s, *t.Cursor)
	if failed := (*purge.OtherServerError)(nil); errors.As(err, &failed) {
		return uncounted(failed.Reason)
	}
	return err
}

// advance stores the reference time in the task's option, unless rows were retained.
func (t *task) advance(ctx context.Context) error {
	option := t.Task.Advances
	catalog := t.Binder.Env.Catalog
	switch {
	case option == (campaign.Option{}) || t.Retained != (purge.Retained{}):
		return nil
	case !catalog.KeepsMoments():
		t.Log(ctx, message.Infof(
			"table XtkOption, or a column of it, is missing, which keeps when the last cleanup was: the next run "+
				"looks at all addresses again",
		))
		return nil
	case t.Binder.Env.Holds.WholeTable(catalog.Table("XtkOption")):
		t.Log(ctx, message.Infof(
			"table XtkOption is on hold, which keeps when the last cleanup was: the next run looks at the same "+
				"addresses again",
		))
		return nil
	}
	return t.inBatch(ctx, t.Task.Name, func(tx pgx.Tx) (purge.Delta, error) {
		return purge.Delta{}, campaign.StoreTime(ctx, tx, catalog, option, t.Binder.Env.Now)
	})
}

// inBatch runs fn in a batch, and retries it after transient errors. name stands for the batch in logs.
func (t *task) inBatch(ctx context.Context, name string, fn func(tx pgx.Tx) (purge.Delta, error)) error {
	return t.Binder.Engine.Retry(ctx, name, func() error { return t.tryBatch(ctx, fn) })
}

// tryBatch waits until the server's load allows a batch, and runs fn in it.
func (t *task) tryBatch(ctx context.Context, fn func(tx pgx.Tx) (purge.Delta, error)) error {
	if err := t.Binder.Engine.Wait(ctx); err != nil {
		return err
	}
	begun := time.Now()
	return t.Binder.Engine.InTx(ctx, func(tx pgx.Tx) error {
		delta, err := fn(tx)
		if err != nil {
			return err
		}
		delta.Begun, delta.Cursor.Before = begun, t.Retained
		if err := t.Binder.Engine.Commit(ctx, tx, delta); err != nil {
			return err
		}
		t.Binder.Engine.Spend(delta.Deleted+delta.Updated, begun)
		return nil
	})
}
