package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
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

// RestoreRequest says what comes back from the trash.
type RestoreRequest struct {
	Run           string
	Tasks, Tables []string // empty for all
	Keys          []string // of the rows of one table; empty for all
	Into          string   // a new schema; "" for the original tables
	RequestedBy   string
}

// StartRestore stores a run that brings back what another one deleted. It fails with ErrNoTrash, failure.Violations or
// a store.ActiveError.
func (m *Manager) StartRestore(ctx context.Context, req RestoreRequest) (*store.Run, error) {
	id, err := store.ParseID(req.Run)
	if err != nil {
		return nil, err
	}
	if err := m.owner.Check(ctx, m.calls); err != nil {
		return nil, err
	}
	entries, err := trash.Entries(ctx, m.calls, id.String())
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, ErrNoTrash
	}
	if entries, err = req.choose(entries); err != nil {
		return nil, err
	}
	slices.Reverse(entries) // what others refer to was deleted last
	new := store.NewRun{
		Slots:       store.DeletingSlots,
		RequestedBy: req.RequestedBy,
		Restore:     &store.RestoreParams{Run: id.String(), Keys: req.Keys, Into: req.Into},
	}
	var chosen []int64
	for _, e := range entries {
		chosen = append(chosen, e.ID)
		if !slices.Contains(new.Chosen, e.Task) {
			kind := rules.BuiltIn
			if strings.HasPrefix(e.Task, policy.Prefix) {
				kind = rules.Policy
			}
			new.Chosen = append(new.Chosen, e.Task)
			new.Pipeline = append(new.Pipeline, rules.Task{Name: e.Task, Kind: kind})
		}
	}
	for {
		var run *store.Run
		err := pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) (err error) {
			if err := m.owner.Lock(ctx, tx); err != nil {
				return err
			}
			open, err := store.LockTrash(ctx, tx, chosen...)
			if err != nil {
				return err
			}
			new.Restore.Entries = slices.DeleteFunc(slices.Clone(chosen), func(id int64) bool {
				return !slices.Contains(open, id)
			})
			if len(open) == 0 {
				return ErrNoTrash
			}
			if run, err = store.InsertRun(ctx, tx, new); err != nil || run == nil {
				return err
			}
			return audit.Note(ctx, tx, audit.Details{
				"run_id": run.ID, "restored_run_id": id.String(), "tasks": req.Tasks, "tables": req.Tables,
				"keys": len(req.Keys), "into_schema": req.Into,
			})
		})
		if err != nil || run != nil {
			return run, err
		}
		active, err := store.ActiveRuns(ctx, m.calls, store.DeletingSlots)
		if err != nil {
			return nil, err
		}
		if len(active) == 1 {
			return nil, &store.ActiveError{RunID: active[0].ID}
		}
	}
}

// choose returns the entries that the request names.
func (r RestoreRequest) choose(entries []trash.Entry) ([]trash.Entry, error) {
	var wrong failure.Violations
	find := func(field string, names []string, of func(trash.Entry, string) bool) {
		for i, name := range names {
			if !slices.ContainsFunc(entries, func(e trash.Entry) bool { return of(e, name) }) {
				wrong.Addf(fmt.Sprintf("%s[%d]", field, i), "the trash has nothing of %q of this run", name)
			}
		}
	}
	ofTask := func(e trash.Entry, task string) bool { return e.Task == task }
	find("tasks", r.Tasks, ofTask)
	find("tables", r.Tables, trash.Entry.Of)
	if strings.HasPrefix(r.Into, "pg_") || strings.HasPrefix(r.Into, "cleanupd") {
		wrong.Add("into_schema", "must be a schema of yours")
	}
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	named := func(e trash.Entry, names []string, of func(trash.Entry, string) bool) bool {
		return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return of(e, name) })
	}
	chosen := slices.DeleteFunc(slices.Clone(entries), func(e trash.Entry) bool {
		return !named(e, r.Tasks, ofTask) || !named(e, r.Tables, trash.Entry.Of)
	})
	if len(chosen) == 0 {
		return nil, ErrNoTrash
	}
	if r.Keys != nil && slices.ContainsFunc(chosen, func(e trash.Entry) bool { return e.Root != chosen[0].Root }) {
		return nil, failure.Field("keys", "needs one table (tables)")
	}
	return chosen, nil
}

// restorePasses is how often entries are tried again as long as rows come back: rows may need rows of others first.
const restorePasses = 10

// restore brings back what the run's request names, task by task.
func (a *attempt) restore(ctx context.Context) error {
	if a.claim.Resumed {
		if err := a.awaitPredecessor(ctx); err != nil {
			return lost(err)
		}
	}
	all, err := trash.Entries(ctx, a.m.pool, a.claim.Restore.Run)
	if err != nil {
		return err
	}
	settings := a.m.config.Settings
	settings.Pace = a.pace
	engine := purge.New(purge.Engine{
		Pool: a.m.pool, Ledger: a, Recorder: recorder{a, ctx}, Settings: settings, Lock: advisoryLock(a.claim.RunID),
	})
	if err := trash.Unpublished(ctx, a.m.pool); err != nil {
		return err
	}
	if into := a.claim.Restore.Into; into != "" {
		if err := trash.MakeSchema(ctx, a.m.pool, into); err != nil {
			return err
		}
	}
	for _, task := range a.claim.todo {
		if err := a.TaskStarted(ctx, task); err != nil {
			return err
		}
		var entries []trash.Entry
		for _, id := range a.claim.Restore.Entries {
			i := slices.IndexFunc(all, func(e trash.Entry) bool { return e.ID == id && e.Task == task })
			if i >= 0 {
				entries = append(entries, all[i])
			}
		}
		outcome, err := a.restoreTask(ctx, engine, entries)
		if err != nil {
			return err
		}
		if err := a.TaskFinished(ctx, outcome); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) restoreTask(
	ctx context.Context, engine *purge.Engine, entries []trash.Entry,
) (cleanup.Outcome, error) {
	o := cleanup.Outcome{State: cleanup.Succeeded}
	results := make([]trash.Restored, len(entries))
	expected := int64(-1)
	if len(a.claim.Restore.Keys) == 0 {
		expected = a.task.done()
		for _, e := range entries {
			expected += e.Rows
		}
	}
	for pass := range restorePasses {
		came := false
		for i, e := range entries {
			before := results[i]
			if pass > 0 && len(before.Reasons) == 0 { // nothing of it is left that could come now
				continue
			}
			a.At(e.Root, expected)
			r, err := a.restoreEntry(ctx, engine, e)
			if err != nil {
				return o, err
			}
			came = came || r.Rows > 0 || e.Kind != trash.Rows && len(r.Reasons) == 0
			entries[i].Rows -= r.Rows
			r.Rows += before.Rows
			results[i] = r
		}
		if !came {
			break
		}
	}
	for i, r := range results {
		o.Existing += r.Existing
		o.Retained.Failed += r.Failed
		table := entries[i].Root
		if r.Rows > 0 {
			_ = a.Log(ctx, message.RowsRestored.With("table", table, "rows", r.Rows))
		}
		switch {
		case entries[i].Kind != trash.Rows && len(r.Reasons) > 0:
			o.Retained.Tables++
			m := message.RelationNotRestored.With("table", table, "error", r.Reasons[0])
			o.Details = append(o.Details, m)
			_ = a.Log(ctx, m)
		case r.Existing+r.Failed > 0:
			m := message.RowsNotRestored.With("table", table, "existing", r.Existing, "failed", r.Failed, "reasons",
				strings.Join(r.Reasons, "; "))
			o.Details = append(o.Details, m)
			_ = a.Log(ctx, m)
		}
	}
	return o, nil
}

// restoreEntry brings back one entry, as far as its table takes it.
func (a *attempt) restoreEntry(ctx context.Context, engine *purge.Engine, e trash.Entry) (r trash.Restored, err error) {
	into := a.claim.Restore.Into
	if e.Kind != trash.Rows {
		err := engine.Retry(ctx, e.Root, func() error {
			return engine.InTx(ctx, func(tx pgx.Tx) error {
				if err := trash.Return(ctx, tx, e, into); err != nil {
					return err
				}
				return engine.Commit(ctx, tx, purge.Delta{
					Restored: []purge.Trashed{{Entry: e.ID, Rows: e.Rows}}, Begun: time.Now(),
				})
			})
		})
		switch {
		case err == nil:
			return trash.Restored{Rows: e.Rows}, nil
		case sqlstate.Of(err) != "" && !sqlstate.Lost(err):
			return trash.Restored{Failed: e.Rows, Reasons: []string{purge.Message(err)}}, nil
		}
		return r, err
	}
	if into != "" {
		err := pgx.BeginFunc(ctx, a.m.pool, func(tx pgx.Tx) error { return e.Into(ctx, tx, into) })
		if err != nil {
			return r, err
		}
	}
	restore := trash.Restore{Engine: engine, Entry: e}
	if keys := a.claim.Restore.Keys; len(keys) > 0 {
		restore.Keys = keys
	}
	r, err = restore.Run(ctx)
	switch {
	case errors.Is(err, trash.ErrTarget): // also after some batches
		r.Failed, r.Reasons = e.Rows-r.Rows-r.Existing, append(r.Reasons, err.Error())
		return r, nil
	case err != nil:
		return r, err
	}
	return r, pgx.BeginFunc(ctx, a.m.pool, func(tx pgx.Tx) error { return e.Left(ctx, tx) })
}

// recorder reports what an engine of a restore does.
type recorder struct {
	*attempt
	ctx context.Context
}

func (r recorder) Warn(m message.Message) { _ = r.Log(r.ctx, m) }

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
	entries, err := trash.Entries(ctx, m.pool, "")
	if err != nil {
		return err
	}
	now, err := store.Now(ctx, m.pool)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e trash.Entry) bool { return e.Expires == nil || now.Before(*e.Expires) })
	if len(entries) == 0 {
		return nil
	}
	if err := m.owner.Check(ctx, m.pool); err != nil {
		return nil // a copy keeps its trash
	}
	var failed error
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
			m.log.Warn("trash that is due stays: a hold may be about its rows", "table", e.Root, "run", e.Run)
		case errors.As(err, &restored):
			m.log.Info("trash that is due stays until a restore of it has ended", "table", e.Root, "run", e.Run)
		case err != nil: // the others need not wait
			failed = errors.Join(failed, fmt.Errorf("delete what expired of %s: %w", e.Root, err))
		}
	}
	return failed
}
