package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// While a drop waits for a lock, the application queues behind it: dropLock limits the wait for each lock, and
// dropTimeout the whole statement.
const (
	dropLock    = 500 * time.Millisecond
	dropTimeout = time.Second
)

// dropWorkTables drops the tables of some kinds that are not in use, and first the views, which may depend on tables of
// another kind. It returns whether there was anything to judge them by.
func (t *task) dropWorkTables(ctx context.Context) (any bool, err error) {
	kinds := t.plan.Drops
	found, asks, err := t.workTables(ctx)
	if err != nil {
		return false, err
	}
	any = slices.ContainsFunc(asks, func(ask question) bool { return ask != nil })
	if err := t.guardDrops(ctx, found, asks); err != nil {
		return any, err
	}
	for before := 0; ; { // what is refused may be dropped once what depends on it is gone
		var why []string
		refused := make([][]campaign.WorkTable, len(kinds))
		for _, views := range []bool{true, false} {
			for i, ask := range asks {
				some := those(found[i], views)
				stay, err := t.dropUnused(ctx, kinds[i], some, ask)
				if err != nil {
					return any, err
				}
				for _, r := range stay {
					refused[i], why = append(refused[i], r.WorkTable), append(why, r.why)
				}
			}
		}
		if len(why) == 0 || len(why) == before {
			t.log(ctx, severity.Warning, why...)
			return any, nil
		}
		found, before = refused, len(why)
	}
}

// workTables are those of each kind that may be dropped, and the question which of them are not in use; nil: there is
// nothing to judge them by.
func (t *task) workTables(ctx context.Context) (found [][]campaign.WorkTable, asks []question, err error) {
	found, asks = make([][]campaign.WorkTable, len(t.plan.Drops)), make([]question, len(t.plan.Drops))
	for i, d := range t.plan.Drops {
		owned, err := t.yes(ctx, t.Pool, d.HasOwners)
		if err != nil {
			return nil, nil, fmt.Errorf("ask %s: %w", d.Owner.Name, err)
		}
		if !owned {
			t.log(ctx, severity.Warning, emptyParent(d.WorkTables.Owner))
			continue
		}
		var strange []string
		if found[i], strange, err = t.given.Catalog.WorkTables(ctx, t.Pool, d.Prefix, d.Bare); err != nil {
			return nil, nil, err
		}
		asks[i] = t.question(ctx, d)
		if found[i], err = t.butHeld(ctx, d, found[i], asks[i]); err != nil {
			return nil, nil, err
		}
		found[i] = slices.DeleteFunc(found[i], func(w campaign.WorkTable) bool {
			return (t.preview != nil && t.preview.dropped[w.Quoted()]) || !t.mayDrop(w)
		})
		if err := t.reportOthers(ctx, d, asks[i]); err != nil {
			return nil, nil, err
		}
		for _, name := range strange {
			if d.Except == "" || !strings.HasPrefix(name, d.Except) {
				t.log(
					ctx,
					severity.Info,
					name+" begins like a work table, but has no id where one should be: left alone",
				)
			}
		}
	}
	return found, asks, nil
}

// those are the views among work tables, or the others.
func those(tables []campaign.WorkTable, views bool) []campaign.WorkTable {
	return slices.DeleteFunc(slices.Clone(tables), func(w campaign.WorkTable) bool { return w.View != views })
}

// refused is a work table that other objects depend on, and the message about it.
type refused struct {
	campaign.WorkTable
	why string
}

// question returns the work tables that are not in use.
type question func(ctx context.Context, db campaign.Querier, tables []campaign.WorkTable) (unused []campaign.WorkTable, err error)

// question is that for a kind.
func (t *task) question(ctx context.Context, d plan.Drop) question {
	told := false
	return func(ctx context.Context, db campaign.Querier, tables []campaign.WorkTable) (unused []campaign.WorkTable, err error) {
		var ids, listIDs []int64
		for _, w := range tables {
			ids = append(ids, w.ID)
			if d.Lists {
				listIDs = append(listIDs, w.ListIDs()...)
			}
		}
		if owned, err := t.yes(ctx, db, d.HasOwners); err != nil || !owned { // an empty owner proves nothing
			return nil, err
		}
		used, err := t.idsOf(ctx, db, d.InUse, ids)
		if err != nil {
			return nil, err
		}
		lists := map[int64]bool{}
		known := true // if there is no list at all nothing is known of them: tables with the data of a list stay
		if len(listIDs) > 0 {
			if lists, known, err = t.knownLists(ctx, db, d, listIDs); err != nil {
				return nil, err
			}
			if !known && d.Groups != nil && !told {
				t.log(ctx, severity.Info, d.Groups.Name+" is empty: tables with _grp and an id in their names stay")
				told = true
			}
		}
		for _, w := range tables {
			ofList := d.Lists && slices.ContainsFunc(w.ListIDs(), func(id int64) bool { return !known || lists[id] })
			if !used[w.ID] && !ofList {
				unused = append(unused, w)
			}
		}
		return unused, nil
	}
}

// idsOf runs a query for ids, whose first parameter is ids, too.
func (t *task) idsOf(ctx context.Context, db campaign.Querier, q plan.Query, ids []int64) (map[int64]bool, error) {
	args, err := t.values(ctx, q.Args, nil)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, q.SQL, append([]any{ids}, args...)...)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	return idSet(found), err
}

// yes runs a query for whether something is so.
func (t *task) yes(ctx context.Context, db campaign.Querier, q plan.Query) (so bool, err error) {
	args, err := t.values(ctx, q.Args, nil)
	if err != nil {
		return false, err
	}
	return so, db.QueryRow(ctx, q.SQL, args...).Scan(&so)
}

// knownLists returns which ids are those of lists; known is false if there is no list at all.
func (t *task) knownLists(
	ctx context.Context,
	db campaign.Querier,
	d plan.Drop,
	ids []int64,
) (lists map[int64]bool, known bool, err error) {
	if d.Groups == nil {
		return nil, false, nil
	}
	if known, err = t.yes(ctx, db, d.HasLists); err != nil {
		return nil, false, err
	}
	lists, err = t.idsOf(ctx, db, d.KnownLists, ids)
	return lists, known, err
}

// A group of work tables is dropped in one transaction, which holds the locks of all: how many tables a group has, and
// how long it should and may take.
const (
	firstGroup  = 8
	largest     = 64
	groupTarget = 50 * time.Millisecond
	groupLimit  = 100 * time.Millisecond
)

// nextSize is the size of the next group after one that took so long.
func nextSize(size, most int, took time.Duration) int {
	if took > groupTarget {
		return max(size/2, 1)
	}
	return min(2*size, most)
}

// dropUnused drops the tables that are not in use, group by group. A group that cannot be dropped together, for example
// because one of its tables is locked, is dropped one by one. Tables that other objects depend on are left.
func (t *task) dropUnused(
	ctx context.Context,
	d plan.Drop,
	tables []campaign.WorkTable,
	ask question,
) (left []refused, err error) {
	size := firstGroup
	for len(tables) > 0 {
		n := min(size, len(tables))
		t.journal.At(tables[0].Name, t.expected)
		if err := t.engine.Wait(ctx); err != nil {
			return left, err
		}
		unused, err := ask(ctx, t.Pool, tables[:n])
		if err != nil {
			return left, err
		}
		tables = tables[n:]
		switch {
		case len(unused) == 0:
		case t.DryRun:
			var stay []refused
			stay, err = t.foreseeDrops(ctx, d, unused)
			left = append(left, stay...)
		default:
			var stay []refused
			size, stay, err = t.dropGroup(ctx, unused, ask, size)
			left = append(left, stay...)
		}
		if err != nil {
			return left, err
		}
	}
	return left, nil
}

// dropGroup drops tables that were not in use, together or one by one, and returns the size of the next group.
func (t *task) dropGroup(
	ctx context.Context,
	tables []campaign.WorkTable,
	ask question,
	size int,
) (next int, left []refused, err error) {
	begun := time.Now()
	err = t.dropAll(ctx, tables, ask, groupLimit/10, groupLimit)
	switch {
	case endsRun(err) || endsDrops(err):
		return size, nil, err
	case err == nil:
		return nextSize(size, largest, time.Since(begun)), nil, nil
	}
	for _, w := range tables {
		why, err := t.dropOne(ctx, w, ask)
		if err != nil {
			return size, left, err
		}
		if why != "" {
			left = append(left, refused{w, why})
		}
	}
	return max(size/2, 1), left, nil
}

// errUsed says that a table is in use.
var errUsed = errors.New("it is in use")

// dropAll drops work tables of one kind, unless one of them turns out to be in use once they are locked: the drop takes
// the locks, the question is asked under them, and a rollback undoes the drop. (LOCK TABLE on a view would also lock
// the tables that it depends on.)
func (t *task) dropAll(
	ctx context.Context,
	tables []campaign.WorkTable,
	ask question,
	lock, timeout time.Duration,
) error {
	return t.once(ctx, func(tx Tx) (d purge.Delta, err error) {
		if err := drop(ctx, tx, tables, lock, timeout); err != nil {
			return d, err
		}
		unused, err := ask(ctx, tx, tables)
		if err == nil && len(unused) < len(tables) {
			err = errUsed
		}
		return purge.Delta{Dropped: int64(len(tables))}, err
	})
}

// dropOne drops a work table. A refusal is reported and the table skipped, except that it returns why if other objects
// depend on the table, which may yet be dropped.
func (t *task) dropOne(ctx context.Context, w campaign.WorkTable, ask question) (why string, err error) {
	err = t.engine.Retry(ctx, w.Name, func() error {
		return t.dropAll(ctx, []campaign.WorkTable{w}, ask, dropLock, dropTimeout)
	})
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, errUsed):
		t.log(ctx, severity.Info, w.Name+" came into use meanwhile: left alone")
		return "", nil
	case t.vanished(ctx, err, w.Quoted()):
		t.log(ctx, severity.Info, w.Name+" is gone already")
		return "", nil
	case errors.As(err, &pgErr) && !endsDrops(err):
		refusal := fmt.Sprintf("%s could not be dropped: %s", w.Name, purge.Message(err))
		if pgErr.Code == pgerrcode.DependentObjectsStillExist {
			return refusal, nil
		}
		t.log(ctx, severity.Warning, refusal)
		t.left.Tables++
		return "", nil
	}
	return "", err
}

// endsDrops reports whether a drop has lost the database. It has not if only the server's lock table is full: a drop
// takes a lock for each partition and index.
func endsDrops(err error) bool { return sqlstate.Lost(err) && !sqlstate.Is(err, pgerrcode.OutOfMemory) }

// drop drops work tables of one kind, without CASCADE, and waits only briefly for their locks.
func drop(ctx context.Context, tx Tx, tables []campaign.WorkTable, lock, timeout time.Duration) error {
	if _, err := tx.Exec(
		ctx,
		fmt.Sprintf(
			"SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d",
			lock.Milliseconds(),
			timeout.Milliseconds(),
		),
	); err != nil {
		return err
	}
	sql, args := dropping(tables)
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

// dropping is the statement that drops work tables, or views, of one kind together, with its parameters.
func dropping(tables []campaign.WorkTable) (sql string, args []any) {
	names := quotedOf(tables)
	if tables[0].ByFunction {
		return "SELECT " + campaign.DropFunction + "($1::text[]::regclass[])", []any{names}
	}
	what := "TABLE "
	if tables[0].View {
		what = "VIEW "
	}
	return "DROP " + what + strings.Join(names, ", "), nil
}
