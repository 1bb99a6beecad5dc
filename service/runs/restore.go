package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

// RestoreRequest selects entries of the trash.
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
	if req.Into != "" {
		err = trash.CheckSchema(ctx, m.calls, req.Into)
	} else {
		var tables []string
		for _, e := range entries {
			if e.Kind == trash.Rows && e.Rows > 0 {
				tables = append(tables, e.Root)
			}
		}
		err = trash.CheckOwners(ctx, m.calls, tables)
	}
	if err != nil {
		return nil, err
	}
	if len(req.Keys) > 0 {
		err := checkKeys(ctx, m.calls, entries, req.Keys, 5*time.Second)
		timedOut := sqlstate.Is(err, pgerrcode.QueryCanceled, pgerrcode.LockNotAvailable) && ctx.Err() == nil
		if err != nil && !timedOut { // the run has more time to find the keys
			return nil, err
		}
	}
	slices.Reverse(entries) // referenced rows were deleted last
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

// checkKeys fails with a failure.NotFound if the trash has no row of a key.
func checkKeys(
	ctx context.Context, pool *pgxpool.Pool, entries []trash.Entry, keys []string, limit time.Duration,
) error {
	missing, err := trash.Missing(ctx, pool, entries, keys, limit)
	if err != nil || len(missing) == 0 {
		return err
	}
	return failure.New(failure.NotFound, fmt.Sprintf("the trash of the run has no row of %s with the key %s",
		entries[0].Root, strings.Join(missing, ", or ")))
}

// choose returns the entries that the request names.
func (r RestoreRequest) choose(entries []trash.Entry) ([]trash.Entry, error) {
	var wrong failure.Violations
	find := func(field string, names []string, of func(trash.Entry, string) bool) {
		for i, name := range names {
			if !slices.ContainsFunc(entries, func(e trash.Entry) bool { return of(e, name) }) {
				wrong.Addf(fmt.Sprintf("%s[%d]", field, i), "this run has no trash of %q", name)
			}
		}
	}
	ofTask := func(e trash.Entry, task string) bool { return e.Task == task }
	find("tasks", r.Tasks, ofTask)
	find("tables", r.Tables, trash.Entry.Of)
	if strings.HasPrefix(r.Into, "pg_") || strings.HasPrefix(r.Into, "cleanupd") {
		wrong.Add("into_schema", "must not be a schema of PostgreSQL or cleanupd")
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
	if len(r.Keys) == 0 {
		return chosen, nil
	}
	chosen = slices.DeleteFunc(chosen, func(e trash.Entry) bool { return e.Kind != trash.Rows })
	switch {
	case len(chosen) == 0:
		return nil, failure.Field("keys", "cannot be given: what was dropped comes back as a whole")
	case slices.ContainsFunc(chosen, func(e trash.Entry) bool { return e.Root != chosen[0].Root }):
		return nil, failure.Field("keys", "needs one table (tables)")
	case r.Into != "":
		return nil, failure.Field("keys", "cannot be given with another schema (--into), whose tables have no keys")
	}
	return chosen, nil
}

// restorePasses limits how often entries are tried while rows still come back, because rows may need rows of other
// entries first.
const restorePasses = 10

// restore restores the entries that the run's request names, task by task.
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
	var chosen []trash.Entry
	for _, id := range a.claim.Restore.Entries {
		if i := slices.IndexFunc(all, func(e trash.Entry) bool { return e.ID == id }); i >= 0 {
			chosen = append(chosen, all[i])
		}
	}
	if keys := a.claim.Restore.Keys; len(keys) > 0 && !a.claim.Resumed { // some may have come back before
		if err := checkKeys(ctx, a.m.pool, chosen, keys, 10*time.Minute); err != nil {
			return err
		}
	}
	for _, task := range a.claim.todo {
		if err := a.TaskStarted(ctx, task); err != nil {
			return err
		}
		entries := slices.DeleteFunc(slices.Clone(chosen), func(e trash.Entry) bool { return e.Task != task })
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
			r, err := a.restoreEntry(ctx, engine, e, pass%2 == 1)
			if err != nil {
				return o, err
			}
			came = came || r.Rows > 0 || e.Kind != trash.Rows && len(r.Reasons) == 0
			entries[i].Rows -= r.Rows
			r.Rows += before.Rows
			if pass > 0 {
				r.Left = before.Left
			}
			results[i] = r
			if r.Existing > 0 && r.Failed == 0 {
				a.existing = append(a.existing, e.ID)
			}
		}
		if !came {
			break
		}
	}
	var why []string
	for i, r := range results {
		why = append(why, r.Reasons...)
		o.Existing += r.Existing
		o.Retained.Failed += r.Failed
		table := entries[i].Root
		if r.Rows > 0 {
			_ = a.Log(ctx, message.RowsRestored.With("table", table, "rows", r.Rows))
		}
		var left []message.Message
		if r.Existing > 0 {
			left = append(left, message.RowsExist.With("table", table, "rows", r.Existing))
		}
		switch {
		case entries[i].Kind != trash.Rows && len(r.Reasons) > 0:
			o.Retained.Tables++
			left = append(left, message.RelationNotRestored.With("table", table, "error", r.Reasons[0]))
		case r.Failed > 0:
			reasons := strings.Join(r.Reasons, "; ")
			left = append(left, message.RowsNotRestored.With("table", table, "rows", r.Failed, "reasons", reasons))
		}
		for _, other := range slices.Sorted(maps.Keys(r.Left)) {
			left = append(left, message.RowsLeftInTrash.With("table", other, "rows", r.Left[other], "restored", table))
		}
		o.Details = append(o.Details, left...)
		for _, m := range left {
			_ = a.Log(ctx, m)
		}
	}
	if len(why) > 0 && a.task.done() == 0 && o.Existing == 0 {
		o.State, o.Problem = cleanup.Failed, "nothing came back: "+why[0]
	}
	return o, nil
}

// restoreEntry brings back the rows of one entry that its table accepts.
func (a *attempt) restoreEntry(
	ctx context.Context, engine *purge.Engine, e trash.Entry, backwards bool,
) (r trash.Restored, err error) {
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
		if errors.Is(err, trash.ErrTarget) {
			return trash.Restored{Failed: e.Rows, Reasons: []string{err.Error()}}, nil
		}
		if err != nil {
			return r, err
		}
	}
	restore := trash.Restore{Engine: engine, Entry: e, Existing: a.existing, Backwards: backwards}
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

// recorder writes the warnings of a restore's engine to the run's log.
type recorder struct {
	*attempt
	ctx context.Context
}

func (r recorder) Warn(m message.Message) { _ = r.Log(r.ctx, m) }
