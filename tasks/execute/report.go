package execute

import (
	"cmp"
	"context"
	"errors"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func (t *task) report(ctx context.Context, table string, r purge.Result) purge.Retained {
	if r.Locked > 0 {
		t.Log(ctx, message.RowsLocked.With("table", table, "rows", r.Locked))
	}
	if r.TableLocked {
		t.Log(ctx, message.TableLocked.With("table", table))
	}
	if r.Suppressed > 0 {
		t.Log(ctx, message.RowsSuppressed.With("table", table, "rows", r.Suppressed))
	}
	if r.Dependent > 0 {
		t.Log(ctx, message.RowsDependent.With("table", table, "rows", r.Dependent))
	}
	for _, a := range r.Affected {
		t.Log(ctx,
			message.RowsCascaded.With("table", table, "child", a.Root, "deleted", a.Deleted, "updated", a.Updated))
	}
	if r.Failed > 0 {
		t.Log(ctx, message.RowsFailed.With("table", table, "rows", r.Failed))
	}
	if r.GaveUp {
		t.giveUp(ctx, table)
	}
	if r.Dropped {
		t.Log(ctx, message.PartitionDropped.With("table", table))
	}
	if t.detached = t.detached || r.Detached; r.Detached {
		t.Log(ctx, message.PartitionDetached.With("table", table))
	}
	t.RowError = cmp.Or(t.RowError, r.FirstError)
	retained := r.Retained
	if r.NotDetached != "" {
		t.Log(ctx, message.PartitionNotDetached.With("table", table, "problem", r.NotDetached))
		retained.Tables++
	}
	if r.TableLocked || r.GaveUp {
		retained.Tables++
	}
	t.Retained = t.Retained.Plus(retained)
	return retained
}

// giveUp records that too many rows of a table failed, so that the task fails at its end.
func (t *task) giveUp(ctx context.Context, table string) {
	m := message.TooManyRowsFailed.With("table", table, "rows", purge.MaxFailedRows)
	t.Log(ctx, m)
	t.Unfinished = errors.Join(t.Unfinished, errors.New(m.Text))
}
