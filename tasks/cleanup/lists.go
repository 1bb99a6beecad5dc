package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// ErrForeignWorkTable means that a relation that does not belong to the application's owner has the name of a list's
// table.
var ErrForeignWorkTable = errors.New("the relation named like its table is not owned by the application's owner")

// deletedLists are obsolete lists, and the tables that belong to them.
type deletedLists struct {
	IDs    []int64
	Tables []campaign.WorkTable
	// From is the FROM and WHERE of a statement on the rows of the lists.
	From sqlexpr.Expr
}

// readDeletedLists reads, in a transaction, those lists of a sweep that are still obsolete. lock is a locking clause,
// or "".
func readDeletedLists(
	ctx context.Context, tx pgx.Tx, catalog *campaign.Catalog, j rules.Job, s purge.Sweep, lock string,
) (l deletedLists, err error) {
	l.From = sqlexpr.Format("%s AS r WHERE %s", s.Relation, s.Where)
	rows := sqlexpr.Format("SELECT r.%s::bigint, %s FROM %s%s", s.ByKey, j.TypedTables, l.From, lock).
		Query(ctx, tx)
	var (
		id        int64
		hasTable  bool
		withTable []int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&id, &hasTable}, func() error {
		l.IDs = append(l.IDs, id)
		if hasTable {
			withTable = append(withTable, id)
		}
		return nil
	}); err != nil || len(withTable) == 0 {
		return l, err
	}
	l.Tables, err = ofLists(ctx, tx, catalog, j.Step.Tables.Prefix, withTable)
	return l, err
}

// ofLists returns the tables of lists. It fails with ErrForeignWorkTable if another relation has the name of one.
func ofLists(
	ctx context.Context, tx pgx.Tx, catalog *campaign.Catalog, prefix string, ids []int64,
) ([]campaign.WorkTable, error) {
	tables, err := catalog.WorkTablesOf(ctx, tx, prefix, ids)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, w := range tables {
		known[w.Name] = true
	}
	var names []string
	for _, id := range ids {
		if name := campaign.WorkTableName(prefix, id); !known[name] {
			names = append(names, name)
		}
	}
	var foreign string
	err = tx.QueryRow(ctx, "SELECT COALESCE(min(c.relname), '') FROM pg_class c JOIN pg_namespace n ON n.oid = "+
		"c.relnamespace WHERE n.nspname = $1 AND c.relname = ANY ($2) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')",
		catalog.Schema, names).
		Scan(&foreign)
	if err == nil && foreign != "" {
		err = fmt.Errorf("%w: %s", ErrForeignWorkTable, foreign)
	}
	return tables, err
}

// ErrUnplanned means that the saved plan retains the list, or does not drop its table.
var ErrUnplanned = errors.New("it is not in the plan")

// RetainedBy returns the counts of a list that is retained because of an error. They are zero if the error concerns
// more than this list. A foreign key that forbids the deletion is not a failure.
func RetainedBy(err error) purge.Retained {
	switch {
	case errors.Is(err, ErrTableOnHold):
		return purge.Retained{OnHold: 1}
	case errors.Is(err, ErrForeignWorkTable), errors.Is(err, ErrUnplanned), errors.Is(err, purge.ErrSuppressed),
		errors.Is(err, purge.ErrTookMore),
		sqlstate.Is(err, pgerrcode.ForeignKeyViolation):
		return purge.Retained{Suppressed: 1}
	case sqlstate.OfRow(err):
		return purge.Retained{Failed: 1}
	case sqlstate.Is(err, pgerrcode.LockNotAvailable):
		return purge.Retained{Locked: 1}
	case sqlstate.Of(err) != "" && !sqlstate.LostInDrop(err):
		return purge.Retained{Suppressed: 1}
	}
	return purge.Retained{}
}

const maxLists = 256

var errNotObsolete = errors.New("the list is no longer to be deleted")

// eachListGroup calls do for groups of lists, and adapts their size to how long they take. If a group fails, it tries
// fewer lists, down to a single one, which it counts as retained. It stops if too many lists have failed.
func (a *Attempt) eachListGroup(ctx context.Context, ids []int64, limit int, do func(group []int64) error) error {
	var failed int64
	for size := FirstDropGroup; len(ids) > 0 && a.Retained.Failed <= purge.MaxFailedRows; {
		group, begun := ids[:min(size, len(ids), limit)], time.Now()
		if err := do(group); err != nil && !errors.Is(err, errNotObsolete) {
			if len(group) > 1 && !endsAttempt(err) && !sqlstate.LostInDrop(err) {
				size = len(group) / 2
				continue
			}
			retained := RetainedBy(err)
			if retained == (purge.Retained{}) {
				return err
			}
			a.Retained = a.Retained.Plus(retained)
			failed += retained.Failed
			if retained.Failed > 0 {
				a.RowError = cmp.Or(a.RowError, err)
			}
			if retained.OnHold == 0 && (retained.Failed == 0 || failed <= purge.FailedRowsLogged) {
				a.Log(ctx, message.ListRetained.With("list", group[0], "error", purge.Message(err)))
			}
		}
		ids = ids[len(group):]
		size = nextSize(size, limit, time.Since(begun))
	}
	return nil
}

// readLists reads the lists of a group that are still obsolete, with their tables. It fails if one of them has to be
// retained, or if none is obsolete.
func (a *Attempt) readLists(
	ctx context.Context, tx pgx.Tx, j rules.Job, ids []int64, lock string,
) (lists deletedLists, s purge.Sweep, err error) {
	if s, err = a.Binder.Sweep(ctx, &j, ids); err != nil {
		return lists, s, err
	}
	if lists, err = readDeletedLists(ctx, tx, a.Binder.Env.Catalog, j, s, lock); err != nil {
		return lists, s, err
	}
	if len(lists.IDs) == 0 {
		return lists, s, errNotObsolete
	}
	return lists, s, heldWorkTables{Attempt: a}.Check(ctx, tx, "", lists.Tables)
}

// deleteLists deletes each list in one transaction with its tables. A transaction of several lists does not wait for a
// list that is locked.
func (t *executedTask) deleteLists(ctx context.Context, j rules.Job, ids []int64) error {
	limit := maxLists
	for _, setting := range []int{t.Binder.Engine.MaxRows, t.Binder.Engine.Limits.RowsPerSecond} {
		if setting > 0 {
			limit = min(limit, setting)
		}
	}
	before := t.Retained.Failed
	err := t.eachListGroup(ctx, ids, limit, func(group []int64) error {
		name := fmt.Sprintf("%s %d", j.Name, group[0])
		t.journal.At(name, t.expected)
		work := func(tx pgx.Tx) (purge.Delta, error) { return t.deleteInTx(ctx, tx, j, group) }
		if len(group) == 1 {
			return t.inBatch(ctx, name, work)
		}
		return t.tryBatch(ctx, work)
	})
	if failed := t.Retained.Failed - before; failed > 0 {
		t.Log(ctx, message.RowsFailed.With("table", j.Name, "rows", failed))
	}
	if err == nil && t.Retained.Failed > purge.MaxFailedRows {
		t.giveUp(ctx, j.Name)
	}
	return err
}

// deleteInTx deletes lists, and then drops their tables. The drops come last, since they shorten the timeouts of the
// transaction.
func (t *executedTask) deleteInTx(
	ctx context.Context, tx pgx.Tx, j rules.Job, ids []int64,
) (d purge.Delta, err error) {
	lock, timeouts := " FOR UPDATE NOWAIT", groupTimeouts
	if len(ids) == 1 {
		lock, timeouts = " FOR UPDATE", singleTimeouts
	}
	lists, s, err := t.readLists(ctx, tx, j, ids, lock)
	if err == nil {
		err = t.checkPlanned(lists)
	}
	if err != nil {
		return d, err
	}
	if err := t.keep(ctx, &s); err != nil {
		return d, err
	}
	if d, err = s.DeleteIn(ctx, tx, int64(len(lists.IDs))); err != nil {
		return d, err
	}
	d.Dropped = int64(len(lists.Tables))
	for _, views := range []bool{true, false} {
		if tables := WorkTablesOfKind(lists.Tables, views); len(tables) > 0 {
			if err := t.drop(ctx, tx, tables, timeouts); err != nil {
				return d, err
			}
		}
	}
	return d, nil
}

// checkPlanned fails with ErrUnplanned if the saved plan retained one of the lists, or the table of one.
func (t *executedTask) checkPlanned(lists deletedLists) error {
	saved := t.Saved()
	if saved == nil {
		return nil
	}
	if i := slices.IndexFunc(lists.IDs, func(id int64) bool { return slices.Contains(saved.Retained, id) }); i >= 0 {
		return fmt.Errorf("%w: list %d", ErrUnplanned, lists.IDs[i])
	}
	unplanned := func(w campaign.WorkTable) bool { return !drops{t}.isPlanned(w) }
	if i := slices.IndexFunc(lists.Tables, unplanned); i >= 0 {
		return fmt.Errorf("%w: table %s", ErrUnplanned, lists.Tables[i].Name)
	}
	return nil
}

// countLists counts lists and their tables. Rows of retained lists in other tables would be deleted all the same.
func (t *countedTask) countLists(ctx context.Context, j rules.Job, ids []int64) error {
	deleted := []int64{}
	err := t.eachListGroup(ctx, ids, maxLists, func(group []int64) error {
		t.run.Journal.At(fmt.Sprintf("%s %d", j.Name, group[0]), t.expected)
		err := pgx.BeginFunc(ctx, t.Binder.Pool, func(tx pgx.Tx) error { return t.countInTx(ctx, tx, j, group) })
		if err == nil {
			deleted = append(deleted, group...)
		}
		return err
	})
	t.found.state.Deleted[t.Task.Name] = deleted
	return err
}

func (t *countedTask) countInTx(ctx context.Context, tx pgx.Tx, j rules.Job, ids []int64) error {
	lists, _, err := t.readLists(ctx, tx, j, ids, "")
	if err != nil {
		return err
	}
	rows := purge.Tally{Rows: int64(len(lists.IDs)), Keys: lists.IDs[:min(len(lists.IDs), purge.SampleSize)]}
	if j.Date != "" {
		if err := addDates(ctx, tx, j.Date, lists.From, &rows); err != nil {
			return err
		}
	}
	parents := t.Plan.Parents
	t.found.tables.at(j.Table.Quoted(), ActionDelete, parents.Rule).add(j.Table, j.Relation, rows)
	t.found.recordDrops(WorkTableMask(j.Step.Tables.Prefix), "of a row of "+parents.Table.Name+": "+parents.Rule,
		lists.Tables)
	return t.run.Journal.Count(ctx, purge.Delta{
		Deleted: int64(len(lists.IDs)),
		Dropped: int64(len(lists.Tables)),
	})
}
