package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

var ErrNoTrash = failure.New(failure.NotFound, "not in the trash: see cleanupd trash list")

// UndoMaxBytes returns how large the trash may become.
func (m *Manager) UndoMaxBytes(ctx context.Context) (int64, error) {
	if m.config.UndoMaxBytes > 0 {
		return m.config.UndoMaxBytes, nil
	}
	return trash.DefaultMaxBytes(ctx, m.calls)
}

// withUndo returns the tasks with how long the trash keeps their rows: as set by the request for the run, or else by
// the task's policy, the schedule, or the service.
func (m *Manager) withUndo(tasks []rules.Task, run, scheduled *time.Duration) []rules.Task {
	tasks = slices.Clone(tasks)
	for i, t := range tasks {
		tasks[i].Undo = cmp.Or(run, t.Undo, scheduled, &m.config.Undo)
	}
	return tasks
}

// Purged is what PurgeTrash deleted: rows, entries of which nothing is left, and the quoted names of tables. Left is as
// in trash.Purged.
type Purged struct {
	Rows, Entries int64
	Tables        []string
	Left          map[string]int64
}

// PurgeTrash permanently deletes the trash that matches all conditions, and with rows those of their run that refer to
// them. It fails with ErrNoTrash.
func (m *Manager) PurgeTrash(
	ctx context.Context, run, table string, olderThan time.Duration, where map[string]string,
) (purged Purged, err error) {
	if err := m.owner.Check(ctx, m.calls); err != nil {
		return purged, err
	}
	if len(where) > 0 {
		if err := trash.Unpublished(ctx, m.calls); err != nil {
			return purged, err
		}
	}
	all, err := trash.Entries(ctx, m.calls, run)
	if err != nil {
		return purged, err
	}
	every := slices.Clone(all)
	now, err := store.Now(ctx, m.calls)
	if err != nil {
		return purged, err
	}
	all = slices.DeleteFunc(all, func(e trash.Entry) bool {
		return table != "" && !e.Of(table) || now.Sub(e.Created) < olderThan || e.Expires == nil
	})
	if len(all) == 0 {
		return purged, ErrNoTrash
	}
	if columns := slices.Collect(maps.Keys(where)); len(columns) > 0 {
		has := false
		for i := 0; i < len(all) && !has; i++ {
			if has, err = all[i].Has(ctx, m.calls, columns); err != nil {
				return purged, err
			}
		}
		if !has {
			return purged, failure.Field("where", fmt.Sprintf("the trash of %s has no such columns", table))
		}
	}
	chosen := make([][]trash.Entry, len(all)) // each with those whose rows may have to go with its rows
	for i, e := range all {
		chosen[i] = []trash.Entry{e}
		if len(where) > 0 {
			referring, err := e.Referring(ctx, m.calls, ofRun(every, e.Run))
			if err != nil {
				return purged, err
			}
			chosen[i] = append(chosen[i], referring...)
		}
		if err := m.checkHeld(ctx, m.calls, chosen[i]...); err != nil { // before anything is purged
			return purged, err
		}
	}
	purged.Left = map[string]int64{}
	for i, e := range all {
		var p trash.Purged
		err := m.discard(ctx, m.calls, chosen[i], func(tx pgx.Tx) (err error) {
			if p, err = e.Purge(ctx, tx, where, chosen[i][1:]); err != nil {
				return err
			}
			return audit.Note(ctx, tx, audit.Details{
				"run_id": e.Run, "table": e.Root, "rows": p.Rows, "where": len(where),
			})
		})
		if err != nil {
			if purged.Rows > 0 {
				err = fmt.Errorf("deleted %d rows, then %s: %w", purged.Rows, e.Root, err)
			}
			return purged, err
		}
		purged.Rows += p.Rows
		for table, n := range p.Left {
			purged.Left[table] += n
		}
		for _, table := range p.Tables {
			if !slices.Contains(purged.Tables, table) {
				purged.Tables = append(purged.Tables, table)
			}
		}
		if p.Gone {
			purged.Entries++
		}
	}
	return purged, nil
}

func ofRun(entries []trash.Entry, run string) []trash.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e trash.Entry) bool { return e.Run != run })
}

// discard runs work, which deletes rows of entries for good, in a transaction during which these cannot be restored or
// put on hold. It does nothing if nothing of the first is left. It fails with a failure.Refusal if one may have rows on
// hold, or with a store.ActiveError if a run is restoring one.
func (m *Manager) discard(
	ctx context.Context, pool *pgxpool.Pool, entries []trash.Entry, work func(tx pgx.Tx) error,
) error {
	var ids []int64
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := m.owner.Lock(ctx, tx); err != nil {
			return err
		}
		if err := store.LockHolds(ctx, tx); err != nil {
			return err
		}
		if open, err := store.LockTrash(ctx, tx, ids...); err != nil || !slices.Contains(open, ids[0]) {
			return err
		}
		if err := m.checkHeld(ctx, tx, entries...); err != nil {
			return err
		}
		return work(tx)
	})
}

// checkHeld fails with a failure.Refusal if one of the entries may have rows on hold.
func (m *Manager) checkHeld(ctx context.Context, db campaign.Querier, entries ...trash.Entry) error {
	held, err := m.held(ctx, db, entries)
	if err != nil || len(held) == 0 {
		return err
	}
	return &failure.Refusal{
		Reason:   failure.ReasonOnHold,
		Metadata: map[string]string{"table": held[0].Root},
		Message:  fmt.Sprintf("a hold may be about rows of %s in the trash: release it first", held[0].Root),
	}
}

// held returns the entries that may have rows on hold, judged by their tables. The conditions of holds cannot judge a
// single row in the trash, because the rows that it refers to may be in the trash as well.
func (m *Manager) held(
	ctx context.Context, db campaign.Querier, entries []trash.Entry,
) (held []trash.Entry, err error) {
	now, err := store.Now(ctx, db)
	if err != nil {
		return nil, err
	}
	holds, _, err := store.EffectiveHolds(ctx, db, now)
	if err != nil || len(holds.Names) == 0 {
		return nil, err
	}
	config, err := m.readConfig(ctx, db)
	if err != nil {
		return nil, err
	}
	config.DryRun = true // so that missing rights on tables do not matter
	var tables []string
	for _, e := range entries {
		tables = append(tables, e.Belongs())
	}
	env, err := cleanup.LoadEnv(ctx, config, db, holds, tables...)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		may := e.Rows > 0 || e.Kind != trash.Rows
		if may && !namesHeld(holds, e) {
			if may, err = rules.MayHold(env, e.Belongs()); err != nil {
				return nil, err
			}
		}
		if may {
			held = append(held, e)
		}
	}
	return held, nil
}

// namesHeld reports whether a hold may apply to an entry whatever its columns are: a hold of its table; any hold of a
// table if the entry's table no longer exists, since it may have been renamed; and any hold if a work table was
// dropped, whose columns are its own.
func namesHeld(h rules.Holds, e trash.Entry) bool {
	return e.Kind == trash.Table || e.Kind == trash.View || slices.ContainsFunc(h.Tables, func(t rules.HeldTable) bool {
		return e.Gone || e.IsOf(t.Schema, t.Name) || e.IsOf(t.NowSchema, t.NowName)
	})
}

// expireTrash drops expired entries, except those that may have rows on hold or that a run is restoring.
func (m *Manager) expireTrash(ctx context.Context) error {
	entries, err := trash.Due(ctx, m.pool)
	if err != nil || len(entries) == 0 {
		return err
	}
	if err := m.owner.Check(ctx, m.pool); err != nil {
		return nil // a copy keeps its trash
	}
	held, failed := m.held(ctx, m.pool, entries)
	if failed != nil {
		return fmt.Errorf("find what is on hold: %w", failed)
	}
	var onHold []string
	for _, e := range held {
		onHold = append(onHold, e.Root)
	}
	isHeld := func(e trash.Entry) bool {
		return slices.ContainsFunc(held, func(h trash.Entry) bool { return h.ID == e.ID })
	}
	for _, e := range slices.DeleteFunc(entries, isHeld) {
		err := m.discard(ctx, m.pool, []trash.Entry{e}, func(tx pgx.Tx) error {
			rows, err := trash.Drop(ctx, tx, e, "rows_expired")
			if err == nil {
				m.log.Info("deleting trash for good", "table", e.Root, "run_id", e.Run, "rows", rows)
			}
			return err
		})
		restored, held := (*store.ActiveError)(nil), (*failure.Refusal)(nil)
		switch {
		case errors.As(err, &held) && held.Reason == failure.ReasonOnHold:
			onHold = append(onHold, e.Root)
		case errors.As(err, &restored):
			m.log.Info("expired trash is retained while it is being restored", "table", e.Root, "run_id", e.Run)
		case err != nil: // the others need not wait
			failed = errors.Join(failed, fmt.Errorf("delete expired trash of %s: %w", e.Root, err))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if onHold != nil && time.Since(m.saidOnHold) > sayOnHoldEvery {
		m.saidOnHold = time.Now()
		m.log.Warn("expired trash is retained, because a hold may cover its rows: release the hold to let it expire",
			"entries", len(onHold), "tables", slices.Compact(slices.Sorted(slices.Values(onHold))))
	}
	return failed
}
