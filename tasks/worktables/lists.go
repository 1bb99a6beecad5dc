package worktables

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/hold"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// ErrForeign means that a relation that does not belong to the application's owner has the name of a list's table.
var ErrForeign = errors.New("what has the name of its table is not a table of the application's owner")

// Lists are obsolete lists, and the tables that belong to them.
type Lists struct {
	IDs    []int64
	Tables []campaign.WorkTable
	// From is the FROM and WHERE of a statement on the rows of the lists.
	From sqlexpr.Expr
}

// ReadLists reads, in a transaction, those lists of a sweep that are still obsolete. lock is a locking clause, or
// "".
func ReadLists(
	ctx context.Context, tx pgx.Tx, catalog *campaign.Catalog, j plan.Job, s purge.Sweep, lock string,
) (l Lists, err error) {
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

// ofLists returns the tables of lists. It fails with ErrForeign if another relation has the name of one.
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
		err = fmt.Errorf("%w: %s", ErrForeign, foreign)
	}
	return tables, err
}

var (
	// ErrSuppressed means that a row of a list was not deleted, although there was no error.
	ErrSuppressed = errors.New("a trigger of the table prevents its deletion")
	// ErrUnplanned means that the saved plan has neither the list nor its table.
	ErrUnplanned = errors.New("the plan does not name it")
)

// RetainedBy returns how a list is counted that is retained because of an error; it is empty if the error is about
// more than this list. A foreign key that forbids the deletion is not a failure.
func RetainedBy(err error) purge.Retained {
	switch {
	case errors.Is(err, hold.ErrTable):
		return purge.Retained{OnHold: 1}
	case errors.Is(err, ErrForeign), errors.Is(err, ErrUnplanned), errors.Is(err, ErrSuppressed),
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

func ListRetained(id int64, err error) message.Message {
	return message.ListRetained.With("list", id, "error", purge.Message(err))
}
