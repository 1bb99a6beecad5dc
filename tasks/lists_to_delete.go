package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"

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

// deleteLists deletes the lists one by one, each with its table in one transaction.
func deleteLists(ctx context.Context, e *Env) (bool, error) {
	if e.set == nil {
		return false, nil
	}
	var args []any
	c := &condition{env: e, table: e.set.table, plan: &plan{}, args: &args}
	where, err := c.any(ctx, e.set.Rules)
	if err != nil || where == "" {
		return false, err
	}
	hasType := e.set.table.Has("iType")
	var refused int64
	for _, id := range e.set.ids {
		err := e.deleteList(ctx, id, where, args, hasType)
		if stays := listStays(err); stays != (purge.Left{}) {
			e.left, refused = e.left.Plus(stays), refused+stays.Refused
			if stays.Refused == 0 || refused <= purge.RefusedShown {
				e.log(ctx, Warning, fmt.Sprintf("list %d stays, with its table if it has one: %s", id, purge.Message(err)))
			}
			if stays.Refused > 0 {
				e.refusal = cmp.Or(e.refusal, err)
			}
			if e.left.Refused > purge.MostRefused {
				e.giveUp(ctx, e.set.table.Name)
				break
			}
		} else if err != nil && !errors.Is(err, errGone) {
			return false, err
		}
	}
	if refused > 0 {
		e.log(ctx, Warning, fmt.Sprintf("%s: %d obsolete rows refuse with an error; left", e.set.table.Name, refused))
	}
	return true, nil
}

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

// errGone says that a list is no longer to be deleted.
var errGone = errors.New("the list is no longer to be deleted")

// deleteList deletes a list with its table.
func (e *Env) deleteList(ctx context.Context, id int64, where string, args []any, hasType bool) error {
	e.journal.At(fmt.Sprintf("%s %d", e.set.table.Name, id), e.expected)
	list := fmt.Sprintf("%s AS r WHERE r.iGroupId = $%d AND %s", e.set.table.Quoted(), len(args)+1, where)
	args = append(args[:len(args):len(args)], id)
	isList := "(r.iType > 0) IS TRUE"
	if !hasType { // unknown: it may have a table
		isList = "true"
	}
	work := func(tx Tx) (d purge.Delta, err error) {
		lock := " FOR UPDATE"
		if e.DryRun {
			lock = ""
		}
		var typed bool
		err = tx.QueryRow(ctx, "SELECT "+isList+" FROM "+list+lock, args...).Scan(&typed)
		if errors.Is(err, pgx.ErrNoRows) {
			return d, errGone
		}
		if err != nil {
			return d, err
		}
		d.Deleted = 1
		if !e.DryRun {
			d.Space = []purge.Space{{Relation: e.set.table.Quoted(), Rows: 1}}
			gone, err := tx.Exec(ctx, "DELETE FROM "+list, args...)
			if err == nil && gone.RowsAffected() == 0 {
				err = errKept
			}
			if err != nil {
				return d, err
			}
		}
		if typed { // last, since a drop has a short timeout
			d.Dropped, err = e.dropListTable(ctx, tx, id)
		}
		return d, err
	}
	if e.DryRun {
		return pgx.BeginFunc(ctx, e.Pool, func(tx pgx.Tx) error {
			d, err := work(tx)
			if err == nil {
				err = e.journal.Count(ctx, d)
			}
			return err
		})
	}
	return e.inBatch(ctx, fmt.Sprintf("list %d", id), work)
}

// errKept says that a list cannot be deleted.
var errKept = errors.New("a trigger of the table prevents its deletion")

// errForeign says that the relation with the name of a list's table is not the application's.
var errForeign = errors.New("what has the name of its table is not a table of the application's owner")

// dropListTable drops the table of a list, if there is one.
func (e *Env) dropListTable(ctx context.Context, tx Tx, id int64) (dropped int64, err error) {
	name := campaign.WorkTableName("grp", id)
	var exists bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f'))",
		e.Catalog.Schema, name).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	w, err := e.Catalog.WorkTable(ctx, tx, "grp", id)
	switch {
	case err != nil:
		return 0, err
	case w == nil:
		return 0, fmt.Errorf("%w: %s", errForeign, name)
	case e.DryRun:
		return 1, nil
	}
	return 1, drop(ctx, tx, []campaign.WorkTable{*w}, dropLock, dropTimeout)
}
