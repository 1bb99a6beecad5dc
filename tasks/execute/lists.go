package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// deleteLists deletes lists, each in one transaction with its tables, and as many together as go quickly. Where one
// cannot go, fewer are tried, down to that one.
func (t *task) deleteLists(ctx context.Context, j plan.Job, ids []int64) error {
	most := mostLists
	for _, limit := range []int{t.engine.MaxRows, t.engine.Limits.RowsPerSecond} {
		if limit > 0 {
			most = min(most, limit)
		}
	}
	var refused int64
	var gone []int64
	for size := firstGroup; len(ids) > 0; {
		group, begun := ids[:min(size, len(ids), most)], time.Now()
		t.journal.At(fmt.Sprintf("%s %d", j.Name, group[0]), t.expected)
		err := t.deleteTogether(ctx, j, group)
		switch stays := listStays(err); {
		case err != nil && !errors.Is(err, errGone) && len(group) > 1 && !endsRun(err) && !endsDrops(err):
			size = len(group) / 2
			continue
		case stays != (purge.Retained{}):
			t.left, refused = t.left.Plus(stays), refused+stays.Failed
			if (stays.OnHold == 0 && stays.Failed == 0) || (stays.Failed > 0 && refused <= purge.FailedRowsLogged) {
				t.log(
					ctx,
					severity.Warning,
					fmt.Sprintf("list %d stays, with its table if it has one: %s", group[0], purge.Message(err)),
				)
			}
			if stays.Failed > 0 {
				t.refusal = cmp.Or(t.refusal, err)
			}
		case err != nil && !errors.Is(err, errGone):
			return err
		case err == nil:
			gone = append(gone, group...)
		}
		if t.left.Failed > purge.MaxFailedRows {
			t.giveUp(ctx, j.Name)
			break
		}
		ids = ids[len(group):]
		size = nextSize(size, most, time.Since(begun))
	}
	if t.preview != nil { // what belongs to the others goes nevertheless
		t.preview.sets[t.plan.Task.Name] = without(gone, t.heldBack)
	}
	if refused > 0 {
		t.log(ctx, severity.Warning, fmt.Sprintf("%s: %d obsolete rows refuse with an error; left", j.Name, refused))
	}
	return nil
}

// mostLists is how many lists may be deleted in one transaction.
const mostLists = 256

// listStays is how a list is left that could not be deleted; it is not left if the error is about more than this list.
// A foreign key that forbids the deletion is no fault.
func listStays(err error) purge.Retained {
	switch {
	case errors.Is(err, errTableHeld):
		return purge.Retained{OnHold: 1}
	case errors.Is(
		err,
		errForeign,
	) || errors.Is(err, errUnplanned) || errors.Is(err, errKept) || sqlstate.Is(err, pgerrcode.ForeignKeyViolation):
		return purge.Retained{Suppressed: 1}
	case sqlstate.OfRow(err):
		return purge.Retained{Failed: 1}
	case sqlstate.Is(err, pgerrcode.LockNotAvailable):
		return purge.Retained{Locked: 1}
	case sqlstate.Of(err) != "" && !endsDrops(err):
		return purge.Retained{Suppressed: 1}
	}
	return purge.Retained{}
}

// errGone says that none of some lists is to be deleted any longer; errKept that one of them cannot be; errUnplanned
// that the plan does not name one, or its table; errTableHeld that its table is held; and errForeign that the relation
// with the name of a list's table is not the application's.
var (
	errGone = errors.New("the list is no longer to be deleted")
	errKept = errors.New("a trigger of the table prevents its deletion")

	errTableHeld = errors.New("its table is held")
	errUnplanned = errors.New("the plan does not name it")
	errForeign   = errors.New("what has the name of its table is not a table of the application's owner")
)

// deleteTogether deletes those of some lists that still are to be deleted, with their tables. Several do not wait for
// one that is locked.
func (t *task) deleteTogether(ctx context.Context, j plan.Job, ids []int64) error {
	work := func(tx Tx) (purge.Delta, error) { return t.deleteRows(ctx, tx, j, ids) }
	switch {
	case t.DryRun:
		return pgx.BeginFunc(ctx, t.Pool, func(tx pgx.Tx) error {
			d, err := work(tx)
			if err == nil {
				err = t.journal.Count(ctx, d)
			}
			return err
		})
	case len(ids) == 1:
		return t.inBatch(ctx, fmt.Sprintf("list %d", ids[0]), work)
	}
	return t.once(ctx, work)
}

// deleteRows deletes lists in a transaction, and drops their tables last, since a drop has a short timeout.
func (t *task) deleteRows(ctx context.Context, tx Tx, j plan.Job, ids []int64) (d purge.Delta, err error) {
	lock, wait, timeout := " FOR UPDATE NOWAIT", groupLimit/10, groupLimit
	if len(ids) == 1 {
		lock, wait, timeout = " FOR UPDATE", dropLock, dropTimeout
	}
	if t.DryRun {
		lock = ""
	}
	s, err := t.bind(ctx, &j, ids)
	if err != nil {
		return d, err
	}
	from := s.Relation + " AS r WHERE " + s.Where
	rows, err := tx.Query(
		ctx,
		fmt.Sprintf("SELECT r.%s::bigint, %s FROM %s%s", s.ByKey, j.TypedTables, from, lock),
		s.Args...)
	if err != nil {
		return d, err
	}
	var (
		id    int64
		typed bool
		gone  []int64
		mayGo []int64 // the tables of these
	)
	if _, err := pgx.ForEachRow(rows, []any{&id, &typed}, func() error {
		d.Deleted++
		gone = append(gone, id)
		if typed {
			mayGo = append(mayGo, id)
		}
		return nil
	}); err != nil {
		return d, err
	}
	if d.Deleted == 0 {
		return d, errGone
	}
	tables, err := t.listTables(ctx, tx, j.Step.Tables.Prefix, mayGo)
	d.Dropped = int64(len(tables))
	if err == nil {
		err = t.refuseHeld(ctx, tx, tables)
	}
	if err == nil {
		err = t.refuseUnplanned(gone, tables)
	}
	if err == nil && t.DryRun {
		err = t.foreseeLists(ctx, tx, j, s, gone, tables)
	}
	if err != nil || t.DryRun {
		return d, err
	}
	d.Space = []purge.Space{{Relation: s.Relation, Root: s.Root, Rows: d.Deleted}}
	tag, err := tx.Exec(ctx, "DELETE FROM "+from, s.Args...)
	if err == nil && tag.RowsAffected() != d.Deleted {
		err = errKept
	}
	if err != nil {
		return d, err
	}
	for _, view := range []bool{true, false} {
		some := those(tables, view)
		if len(some) == 0 {
			continue
		}
		if err := drop(ctx, tx, some, wait, timeout); err != nil {
			return d, err
		}
	}
	return d, nil
}

// refuseUnplanned fails with errUnplanned if one of some lists, or of their tables, stayed in the dry run that was the
// plan.
func (t *task) refuseUnplanned(ids []int64, tables []campaign.WorkTable) error {
	p := t.planned()
	if p == nil {
		return nil
	}
	stayed := idSet(p.Stays)
	if i := slices.IndexFunc(ids, func(id int64) bool { return stayed[id] }); i >= 0 {
		return fmt.Errorf("%w: list %d", errUnplanned, ids[i])
	}
	if i := slices.IndexFunc(tables, func(w campaign.WorkTable) bool { return !t.mayDrop(w) }); i >= 0 {
		return fmt.Errorf("%w: table %s", errUnplanned, tables[i].Name)
	}
	return nil
}

// listTables are the tables of lists, of those that have one.
func (t *task) listTables(ctx context.Context, tx Tx, prefix string, ids []int64) ([]campaign.WorkTable, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	tables, err := t.given.Catalog.WorkTablesOf(ctx, tx, prefix, ids)
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
		t.given.Catalog.Schema, names).
		Scan(&foreign)
	if err == nil && foreign != "" {
		err = fmt.Errorf("%w: %s", errForeign, foreign)
	}
	return tables, err
}
