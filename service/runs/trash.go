package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

// ErrNoTrash means that the trash has nothing of what was asked for.
var ErrNoTrash = failure.New(failure.NotFound, "the trash has nothing of that: cleanupd trash list shows what it has")

// UndoMaxBytes returns how large the trash may become.
func (m *Manager) UndoMaxBytes(ctx context.Context) (int64, error) {
	if m.config.UndoMaxBytes > 0 {
		return m.config.UndoMaxBytes, nil
	}
	return trash.DefaultMaxBytes(ctx, m.calls)
}

// withUndo returns tasks with the time for which the trash keeps what they delete: as the request for the run says, or
// else the task's policy, the schedule, or the service.
func (m *Manager) withUndo(tasks []rules.Task, run, scheduled *time.Duration) []rules.Task {
	tasks = slices.Clone(tasks)
	for i, t := range tasks {
		tasks[i].Undo = cmp.Or(run, t.Undo, scheduled, &m.config.Undo)
	}
	return tasks
}

// PurgeTrash deletes what is in the trash for good: what matches all that is given. It fails with ErrNoTrash.
func (m *Manager) PurgeTrash(
	ctx context.Context, run, table string, olderThan time.Duration, where map[string]string,
) (rows, entries int64, err error) {
	if err := m.owner.Check(ctx, m.calls); err != nil {
		return 0, 0, err
	}
	if len(where) > 0 {
		if err := trash.Unpublished(ctx, m.calls); err != nil {
			return 0, 0, err
		}
	}
	all, err := trash.Entries(ctx, m.calls, run)
	if err != nil {
		return 0, 0, err
	}
	now, err := store.Now(ctx, m.calls)
	if err != nil {
		return 0, 0, err
	}
	all = slices.DeleteFunc(all, func(e trash.Entry) bool {
		return table != "" && !e.Of(table) || now.Sub(e.Created) < olderThan || e.Expires == nil
	})
	if len(all) == 0 {
		return 0, 0, ErrNoTrash
	}
	if err := checkHeld(ctx, m.calls, all...); err != nil { // before anything is purged
		return 0, 0, err
	}
	has := false
	for _, e := range all {
		var p trash.Purged
		err := m.discard(ctx, m.calls, e, func(tx pgx.Tx) (err error) {
			if p, err = e.Purge(ctx, tx, where); err != nil {
				return err
			}
			return audit.Note(ctx, tx, audit.Details{
				"run_id": e.Run, "table": e.Root, "rows": p.Rows, "where": len(where),
			})
		})
		if err != nil {
			if rows > 0 {
				err = fmt.Errorf("%d rows are gone; then %s: %w", rows, e.Root, err)
			}
			return rows, entries, err
		}
		rows, has = rows+p.Rows, has || p.Has
		if p.Gone {
			entries++
		}
	}
	if !has && len(where) > 0 {
		return 0, 0, failure.Field("where", fmt.Sprintf("what the trash has of %s has no such columns", table))
	}
	return rows, entries, nil
}

// discard runs work, which deletes rows of an entry for good, in a transaction that keeps it from being restored or
// held meanwhile. It does nothing if nothing of the entry is left, and fails with a failure.Refusal if a hold may be
// about its rows, or with a store.ActiveError if a run restores it.
func (m *Manager) discard(
	ctx context.Context, pool *pgxpool.Pool, e trash.Entry, work func(tx pgx.Tx) error,
) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := m.owner.Lock(ctx, tx); err != nil {
			return err
		}
		if err := store.LockHolds(ctx, tx); err != nil {
			return err
		}
		if open, err := store.LockTrash(ctx, tx, e.ID); err != nil || len(open) == 0 {
			return err
		}
		if err := checkHeld(ctx, tx, e); err != nil {
			return err
		}
		return work(tx)
	})
}

func checkHeld(ctx context.Context, db campaign.Querier, entries ...trash.Entry) error {
	now, err := store.Now(ctx, db)
	if err != nil {
		return err
	}
	holds, _, err := store.EffectiveHolds(ctx, db, now)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if (e.Rows > 0 || e.Kind != trash.Rows) && mayHold(holds, e) {
			return &failure.Refusal{
				Reason:   failure.ReasonOnHold,
				Metadata: map[string]string{"table": e.Root},
				Message:  fmt.Sprintf("a hold may be about rows of %s in the trash: release it first", e.Root),
			}
		}
	}
	return nil
}

// mayHold reports whether a hold may be about rows of an entry. Those of single rows count whatever their table is,
// since rows that belong to these are on hold as well, and those of tables if the entry's may have another name by now.
func mayHold(h rules.Holds, e trash.Entry) bool {
	return h.Everything || len(h.Deliveries)+len(h.Lists)+len(h.Workflows)+len(h.Recipients)+len(h.Rows) > 0 ||
		slices.ContainsFunc(h.Tables, func(t rules.HeldTable) bool {
			return e.Gone || e.IsOf(t.Schema, t.Name) || e.IsOf(t.NowSchema, t.NowName)
		})
}

// expireTrash drops what has waited in the trash for long enough, unless a hold may be about its rows or a run restores
// it.
func (m *Manager) expireTrash(ctx context.Context) error {
	entries, err := trash.Due(ctx, m.pool)
	if err != nil || len(entries) == 0 {
		return err
	}
	if err := m.owner.Check(ctx, m.pool); err != nil {
		return nil // a copy keeps its trash
	}
	var failed error
	var onHold []string
	for _, e := range entries {
		err := m.discard(ctx, m.pool, e, func(tx pgx.Tx) error {
			rows, err := trash.Drop(ctx, tx, e, "rows_expired")
			if err == nil {
				m.log.Info("deleting trash for good", "table", e.Root, "run", e.Run, "rows", rows)
			}
			return err
		})
		restored, held := (*store.ActiveError)(nil), (*failure.Refusal)(nil)
		switch {
		case errors.As(err, &held) && held.Reason == failure.ReasonOnHold:
			onHold = append(onHold, e.Root)
		case errors.As(err, &restored):
			m.log.Info("trash that is due stays until a restore of it has ended", "table", e.Root, "run", e.Run)
		case err != nil: // the others need not wait
			failed = errors.Join(failed, fmt.Errorf("delete what expired of %s: %w", e.Root, err))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if onHold != nil && time.Since(m.saidOnHold) > sayOnHoldEvery {
		m.saidOnHold = time.Now()
		m.log.Warn("trash that is due stays: a hold may be about its rows", "entries", len(onHold),
			"tables", slices.Compact(slices.Sorted(slices.Values(onHold))))
	}
	return failed
}
