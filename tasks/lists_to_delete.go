package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

var listsToDelete = Task{
	Name:        "lists-to-delete",
	Title:       "Expired and deleted lists",
	Description: "Lists (NmsGroup) that have expired or are marked as deleted, with their members, what else is linked to them, and their tables (grp…): dropped.",
	Set: &Set{Parent: "NmsGroup", Key: "iGroupId", Rules: []Rule{
		{Where: "iDeleteStatus <> 0"},
		{Where: "tsExpirationDate <= @now"},
	}},
	Steps: []Step{{On: linkedToLists, Link: "iGroupId"}},
	Needs: []Need{{"NmsGroup", []string{"DELETE", "UPDATE"}}},
	Do:    deleteLists,
}

// linkedToLists selects the tables whose iGroupId is the id of a list: that of members, those with a foreign key to lists,
// and those that the operator names. Not every table with such a column qualifies: in XtkOperatorGroup it has another
// meaning.
func linkedToLists(ctx context.Context, e *Env, p *plan) ([]*campaign.Table, error) {
	found, err := table("NmsRcpGrpRel")(ctx, e, p)
	if err != nil {
		return nil, err
	}
	for _, name := range e.RelatedListTables {
		if t := e.Catalog.Table(name); t != nil {
			found = append(found, t)
		} else {
			p.note(Warning, "table %s is missing, whose lists' ids are to be followed: skipped", name)
		}
	}
	if groups := e.Catalog.Table("NmsGroup"); groups != nil {
		rows, err := e.Pool.Query(ctx, `SELECT DISTINCT t.oid, t.relname FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid
			JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[1]
			WHERE k.contype = 'f' AND k.confrelid = $1 AND cardinality(k.conkey) = 1 AND a.attname = 'igroupid'
			  AND t.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = $1) AND NOT t.relispartition ORDER BY t.relname`, groups.OID)
		if err != nil {
			return nil, err
		}
		var oid uint32
		if _, err := pgx.ForEachRow(rows, []any{&oid, nil}, func() error {
			if t := e.Catalog.ByOID(oid); t != nil { // otherwise it was created after the catalog was read
				found = append(found, t)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// lists are those to delete: the condition on their rows, and its parameters.
type lists struct {
	*campaign.Table
	where string
	args  []any
}

// deleteLists deletes the lists, each in one transaction with its table, and as many together as go quickly. Where one cannot go, fewer
// are tried, down to that one.
func deleteLists(ctx context.Context, e *Env) (bool, error) {
	if e.set == nil {
		return false, nil
	}
	l := lists{Table: e.set.table}
	where, err := (&condition{env: e, table: l.Table, plan: &plan{}, args: &l.args}).any(ctx, e.set.Rules)
	if err != nil || where == "" {
		return false, err
	}
	l.where = where
	most := mostLists
	for _, limit := range []int{e.engine.MaxRows, e.engine.Limits.RowsPerSecond} {
		if limit > 0 {
			most = min(most, limit)
		}
	}
	var refused int64
	for left, size := e.set.ids, firstGroup; len(left) > 0; {
		group, begun := left[:min(size, len(left), most)], time.Now()
		e.journal.At(fmt.Sprintf("%s %d", l.Name, group[0]), e.expected)
		err := e.deleteTogether(ctx, l, group)
		switch stays := listStays(err); {
		case err != nil && !errors.Is(err, errGone) && len(group) > 1 && !endsRun(err) && !endsDrops(err):
			size = len(group) / 2
			continue
		case stays != (purge.Left{}):
			e.left, refused = e.left.Plus(stays), refused+stays.Refused
			if stays.Refused == 0 || refused <= purge.RefusedShown {
				e.log(ctx, Warning, fmt.Sprintf("list %d stays, with its table if it has one: %s", group[0], purge.Message(err)))
			}
			if stays.Refused > 0 {
				e.refusal = cmp.Or(e.refusal, err)
			}
		case err != nil && !errors.Is(err, errGone):
			return false, err
		}
		if e.left.Refused > purge.MostRefused {
			e.giveUp(ctx, l.Name)
			break
		}
		left = left[len(group):]
		size = nextSize(size, most, time.Since(begun))
	}
	if refused > 0 {
		e.log(ctx, Warning, fmt.Sprintf("%s: %d obsolete rows refuse with an error; left", l.Name, refused))
	}
	return true, nil
}

// mostLists is how many lists may be deleted in one transaction.
const mostLists = 256

// listStays is how a list is left that could not be deleted; it is not left if the error is about more than this list. A foreign
// key that forbids the deletion is no fault.
func listStays(err error) purge.Left {
	switch {
	case errors.Is(err, errForeign) || errors.Is(err, errKept) || sqlstate.Is(err, pgerrcode.ForeignKeyViolation):
		return purge.Left{Kept: 1}
	case sqlstate.OfRow(err):
		return purge.Left{Refused: 1}
	case sqlstate.Is(err, pgerrcode.LockNotAvailable):
		return purge.Left{Locked: 1}
	case sqlstate.Of(err) != "" && !endsDrops(err):
		return purge.Left{Kept: 1}
	}
	return purge.Left{}
}

// errGone says that none of some lists is to be deleted any longer; errKept that one of them cannot be; and errForeign that the relation
// with the name of a list's table is not the application's.
var (
	errGone    = errors.New("the list is no longer to be deleted")
	errKept    = errors.New("a trigger of the table prevents its deletion")
	errForeign = errors.New("what has the name of its table is not a table of the application's owner")
)

// deleteTogether deletes those of some lists that still are to be deleted, with their tables. Several do not wait for one that is locked.
func (e *Env) deleteTogether(ctx context.Context, l lists, ids []int64) error {
	work := func(tx Tx) (purge.Delta, error) { return e.deleteRows(ctx, tx, l, ids) }
	switch {
	case e.DryRun:
		return pgx.BeginFunc(ctx, e.Pool, func(tx pgx.Tx) error {
			d, err := work(tx)
			if err == nil {
				err = e.journal.Count(ctx, d)
			}
			return err
		})
	case len(ids) == 1:
		return e.inBatch(ctx, fmt.Sprintf("list %d", ids[0]), work)
	}
	return e.once(ctx, work)
}

// deleteRows deletes lists in a transaction, and drops their tables last, since a drop has a short timeout.
func (e *Env) deleteRows(ctx context.Context, tx Tx, l lists, ids []int64) (d purge.Delta, err error) {
	lock, wait, timeout := " FOR UPDATE NOWAIT", groupLimit/10, groupLimit
	if len(ids) == 1 {
		lock, wait, timeout = " FOR UPDATE", dropLock, dropTimeout
	}
	if e.DryRun {
		lock = ""
	}
	hasTable := "(r.iType > 0) IS TRUE"
	if !l.Has("iType") { // unknown: it may have one
		hasTable = "true"
	}
	from := fmt.Sprintf("%s AS r WHERE r.iGroupId = ANY ($%d::bigint[]) AND %s", l.Quoted(), len(l.args)+1, l.where)
	args := append(l.args[:len(l.args):len(l.args)], ids)
	rows, err := tx.Query(ctx, "SELECT r.iGroupId::bigint, "+hasTable+" FROM "+from+lock, args...)
	if err != nil {
		return d, err
	}
	var (
		id    int64
		typed bool
		mayGo []int64 // the tables of these
	)
	if _, err := pgx.ForEachRow(rows, []any{&id, &typed}, func() error {
		d.Deleted++
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
	if !e.DryRun {
		d.Space = []purge.Space{{Relation: l.Quoted(), Rows: d.Deleted}}
		gone, err := tx.Exec(ctx, "DELETE FROM "+from, args...)
		if err == nil && gone.RowsAffected() != d.Deleted {
			err = errKept
		}
		if err != nil {
			return d, err
		}
	}
	tables, err := e.listTables(ctx, tx, mayGo)
	d.Dropped = int64(len(tables))
	if err != nil || e.DryRun {
		return d, err
	}
	for _, view := range []bool{true, false} {
		some := slices.DeleteFunc(slices.Clone(tables), func(w campaign.WorkTable) bool { return w.View != view })
		if len(some) == 0 {
			continue
		}
		if err := drop(ctx, tx, some, wait, timeout); err != nil {
			return d, err
		}
	}
	return d, nil
}

// listTables are the tables of lists, of those that have one.
func (e *Env) listTables(ctx context.Context, tx Tx, ids []int64) ([]campaign.WorkTable, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	tables, err := e.Catalog.WorkTablesOf(ctx, tx, "grp", ids)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, w := range tables {
		known[w.Name] = true
	}
	var names []string
	for _, id := range ids {
		if name := campaign.WorkTableName("grp", id); !known[name] {
			names = append(names, name)
		}
	}
	var foreign string
	err = tx.QueryRow(ctx, "SELECT COALESCE(min(c.relname), '') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = ANY ($2) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')",
		e.Catalog.Schema, names).Scan(&foreign)
	if err == nil && foreign != "" {
		err = fmt.Errorf("%w: %s", errForeign, foreign)
	}
	return tables, err
}
