package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/hold"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
	"github.com/cleanupd/cleanupd/tasks/worktables"
)

const maxLists = 256

var errNotObsolete = errors.New("the list is no longer to be deleted")

type listDeleter struct {
	task   *task
	job    plan.Job
	failed int64 // failed lists
}

// delete deletes each list in one transaction with its tables, and as many lists together as can be deleted
// quickly. If a group with a list that cannot be deleted fails, it tries fewer lists, down to that single one.
func (l *listDeleter) delete(ctx context.Context, ids []int64) error {
	t := l.task
	limit := maxLists
	for _, setting := range []int{t.Binder.Engine.MaxRows, t.Binder.Engine.Limits.RowsPerSecond} {
		if setting > 0 {
			limit = min(limit, setting)
		}
	}
	for size := worktables.FirstGroup; len(ids) > 0; {
		group, begun := ids[:min(size, len(ids), limit)], time.Now()
		t.journal.Progress.At(fmt.Sprintf("%s %d", l.job.Name, group[0]), t.expected)
		err := l.deleteTogether(ctx, group)
		if err != nil && !errors.Is(err, errNotObsolete) {
			if len(group) > 1 && !pipeline.EndsAttempt(err) && !sqlstate.LostInDrop(err) {
				size = len(group) / 2
				continue
			}
			retained := worktables.RetainedBy(err)
			if retained == (purge.Retained{}) {
				return err
			}
			l.failed += retained.Failed
			l.retain(ctx, group[0], retained, err)
		}
		if t.Retained.Failed > purge.MaxFailedRows {
			t.giveUp(ctx, l.job.Name)
			break
		}
		ids = ids[len(group):]
		size = nextSize(size, limit, time.Since(begun))
	}
	if l.failed > 0 {
		t.Log(ctx, message.RowsFailed.With("table", l.job.Name, "rows", l.failed))
	}
	return nil
}

// retain counts a list that is not deleted. It logs the error, unless the list is on hold or many lists have
// failed.
func (l *listDeleter) retain(ctx context.Context, id int64, retained purge.Retained, err error) {
	t := l.task
	t.Retained = t.Retained.Plus(retained)
	if retained.Failed > 0 {
		t.RowError = cmp.Or(t.RowError, err)
	}
	if retained.OnHold > 0 || (retained.Failed > 0 && l.failed > purge.FailedRowsLogged) {
		return
	}
	t.Log(ctx, worktables.ListRetained(id, err))
}

// deleteTogether deletes several lists in one transaction. Lists that are no longer obsolete are left. A
// transaction of several lists does not wait for a list that is locked.
func (l *listDeleter) deleteTogether(ctx context.Context, ids []int64) error {
	work := func(tx pgx.Tx) (purge.Delta, error) { return l.deleteInTx(ctx, tx, ids) }
	if len(ids) == 1 {
		return l.task.inBatch(ctx, fmt.Sprintf("list %d", ids[0]), work)
	}
	return l.task.tryBatch(ctx, work)
}

// deleteInTx deletes lists, and then drops their tables: a drop has a short timeout.
func (l *listDeleter) deleteInTx(ctx context.Context, tx pgx.Tx, ids []int64) (d purge.Delta, err error) {
	t := l.task
	lock, timeouts := " FOR UPDATE NOWAIT", groupTimeouts
	if len(ids) == 1 {
		lock, timeouts = " FOR UPDATE", singleTimeouts
	}
	s, err := t.Binder.Sweep(ctx, &l.job, ids)
	if err != nil {
		return d, err
	}
	lists, err := worktables.ReadLists(ctx, tx, t.Binder.Env.Catalog, l.job, s, lock)
	if err != nil {
		return d, err
	}
	if len(lists.IDs) == 0 {
		return d, errNotObsolete
	}
	holds := hold.WorkTables{Attempt: t.Attempt}
	if err := holds.Check(ctx, tx, lists.Tables); err != nil {
		return d, err
	}
	if err := l.checkPlanned(lists); err != nil {
		return d, err
	}
	d.Deleted, d.Dropped = int64(len(lists.IDs)), int64(len(lists.Tables))
	d.Space = []purge.Space{{Relation: s.Relation, Root: s.Root, Rows: d.Deleted}}
	sql, args := sqlexpr.Format("DELETE FROM %s", lists.From).Build()
	err = s.CountCascade(ctx, tx, &d, func() error {
		tag, err := tx.Exec(ctx, sql, args...)
		if err == nil && tag.RowsAffected() != d.Deleted {
			err = worktables.ErrSuppressed
		}
		return err
	})
	if err != nil {
		return d, err
	}
	for _, views := range []bool{true, false} {
		if tables := worktables.OfKind(lists.Tables, views); len(tables) > 0 {
			if err := drop(ctx, tx, tables, timeouts); err != nil {
				return d, err
			}
		}
	}
	return d, nil
}

// checkPlanned fails with worktables.ErrUnplanned if the saved plan retained one of the lists, or the table of one.
func (l *listDeleter) checkPlanned(lists worktables.Lists) error {
	saved := l.task.Saved()
	if saved == nil {
		return nil
	}
	if i := slices.IndexFunc(lists.IDs, func(id int64) bool { return slices.Contains(saved.Retained, id) }); i >= 0 {
		return fmt.Errorf("%w: list %d", worktables.ErrUnplanned, lists.IDs[i])
	}
	unplanned := func(w campaign.WorkTable) bool { return !drops{l.task}.isPlanned(w) }
	if i := slices.IndexFunc(lists.Tables, unplanned); i >= 0 {
		return fmt.Errorf("%w: table %s", worktables.ErrUnplanned, lists.Tables[i].Name)
	}
	return nil
}
