package tasks

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

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// workTables is a kind of work tables: which belong to it, and which of them are in use.
type workTables struct {
	// prefix begins their names.
	prefix string
	// bare says that nothing follows the id.
	bare bool
	// but are prefixes of other kinds that begin with this one.
	but string
	// owner is the table whose rows they belong to, key its id column.
	owner, key string
	// inUse is SQL over a row o of owner: if it holds, the tables of the row's id are in use. Its columns must exist.
	inUse string
	// lists says that tables with _grp<id> at the end of their names, or before an underscore, stay while that list exists.
	lists bool
}

// While a drop waits for a lock, the application queues behind it: dropLock limits the wait for each lock, and dropTimeout the
// whole statement.
const (
	dropLock    = 500 * time.Millisecond
	dropTimeout = time.Second
)

var deliveryWorkTables = Task{
	Name:        "work-tables",
	Title:       "Work tables of deliveries",
	Description: "Work tables (wkDlv_…) of deliveries that are not in progress: dropped.",
	Do:          func(ctx context.Context, e *Env) (bool, error) { return e.dropWorkTables(ctx, ofDeliveries) },
}

var ofDeliveries = workTables{prefix: "wkdlv_", owner: "NmsDelivery", key: "iDeliveryId", inUse: "o.iDeleteStatus = 0 AND o.iState NOT IN (0, 85, 100)"}

// dropWorkTables drops the tables of some kinds that are not in use, and first the views, which may depend on tables of
// another kind. It returns whether there was anything to judge them by.
func (e *Env) dropWorkTables(ctx context.Context, kinds ...workTables) (any bool, err error) {
	p := &plan{}
	defer e.tell(ctx, p)
	found, asks := make([][]campaign.WorkTable, len(kinds)), make([]question, len(kinds))
	for i, k := range kinds {
		asks[i], err = e.question(ctx, p, k)
		if err := errors.Join(err, rightsError(p.rights)); err != nil {
			return false, err
		}
		if asks[i] == nil {
			continue
		}
		var strange []string
		if found[i], strange, err = e.Catalog.WorkTables(ctx, e.Pool, k.prefix, k.bare); err != nil {
			return false, err
		}
		any = true
		for _, name := range strange {
			if k.but == "" || !strings.HasPrefix(name, k.but) {
				p.note(Info, "%s begins like a work table, but has no id where one should be: left alone", name)
			}
		}
	}
	for before := 0; ; { // what is refused may be dropped once what depends on it is gone
		var why []string
		refused := make([][]campaign.WorkTable, len(kinds))
		for _, views := range []bool{true, false} {
			for i, ask := range asks {
				some := slices.DeleteFunc(slices.Clone(found[i]), func(w campaign.WorkTable) bool { return w.View != views })
				stay, err := e.dropUnused(ctx, some, ask)
				if err != nil {
					return any, err
				}
				for _, r := range stay {
					refused[i], why = append(refused[i], r.WorkTable), append(why, r.why)
				}
			}
		}
		if len(why) == 0 || len(why) == before {
			e.log(ctx, Warning, why...)
			return any, nil
		}
		found, before = refused, len(why)
	}
}

// refused is a work table that other objects depend on, and the message about it.
type refused struct {
	campaign.WorkTable
	why string
}

// question returns the work tables that are not in use.
type question func(ctx context.Context, db campaign.Querier, tables []campaign.WorkTable) (unused []campaign.WorkTable, err error)

// question builds the question for a kind; nil, with a note, when it is not applicable.
func (e *Env) question(ctx context.Context, p *plan, k workTables) (question, error) {
	if e.Catalog.Table("NmsDelivery") == nil {
		p.note(Warning, "table NmsDelivery is missing, whose owner tells the application's tables: skipped")
		return nil, nil
	}
	owner, _, err := e.parent(ctx, p, k.owner, k.key, "")
	if err != nil || owner == nil {
		return nil, err
	}
	for _, m := range columnName.FindAllStringSubmatch(k.inUse, -1) {
		if !owner.Has(m[2]) {
			p.note(Info, "%s has no column %s: skipped", owner.Name, m[2])
			return nil, nil
		}
	}
	inUse := fmt.Sprintf("SELECT o.%[2]s::bigint FROM %[1]s AS o WHERE o.%[2]s = ANY ($1::bigint[]) AND o.%[2]s <> 0 AND %[3]s", owner.Quoted(), k.key, k.inUse)
	groups := e.Catalog.Table("NmsGroup")
	switch {
	case !k.lists:
	case groups == nil:
		p.note(Info, "table NmsGroup is missing: tables with _grp and an id in their names stay")
	case groups.RowSecurity:
		p.note(Warning, "row security may hide rows of %s: tables with _grp and an id in their names stay", groups.Name)
		groups = nil
	}
	return func(ctx context.Context, db campaign.Querier, tables []campaign.WorkTable) (unused []campaign.WorkTable, err error) {
		var ids, listIDs []int64
		for _, w := range tables {
			ids = append(ids, w.ID)
			if k.lists {
				listIDs = append(listIDs, w.ListIDs()...)
			}
		}
		if empty, err := owner.Empty(ctx, db); err != nil || empty { // an empty owner proves nothing
			return nil, err
		}
		used, err := idsOf(ctx, db, inUse, ids)
		if err != nil {
			return nil, err
		}
		lists := map[int64]bool{}
		known := true // if there is no list at all nothing is known of them: tables with the data of a list stay
		if len(listIDs) > 0 {
			if lists, known, err = knownLists(ctx, db, groups, listIDs); err != nil {
				return nil, err
			}
			if !known && groups != nil {
				p.note(Info, "%s is empty: tables with _grp and an id in their names stay", groups.Name)
			}
		}
		for _, w := range tables {
			ofList := k.lists && slices.ContainsFunc(w.ListIDs(), func(id int64) bool { return !known || lists[id] })
			if !used[w.ID] && !ofList {
				unused = append(unused, w)
			}
		}
		return unused, nil
	}, nil
}

// idsOf runs a query for ids, whose parameter is ids, too.
func idsOf(ctx context.Context, db campaign.Querier, sql string, ids []int64) (map[int64]bool, error) {
	rows, err := db.Query(ctx, sql, ids)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	out := map[int64]bool{}
	for _, id := range found {
		out[id] = true
	}
	return out, err
}

// knownLists returns which ids are those of lists; known is false if there is no list at all.
func knownLists(ctx context.Context, db campaign.Querier, groups *campaign.Table, ids []int64) (lists map[int64]bool, known bool, err error) {
	if groups == nil {
		return nil, false, nil
	}
	if err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+groups.Quoted()+")").Scan(&known); err != nil {
		return nil, false, err
	}
	lists, err = idsOf(ctx, db, "SELECT iGroupId::bigint FROM "+groups.Quoted()+" WHERE iGroupId = ANY ($1::bigint[])", ids)
	return lists, known, err
}

// A group of work tables is dropped in one transaction, which holds the locks of all: how many tables a group has, and how
// long it should and may take.
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
func (e *Env) dropUnused(ctx context.Context, tables []campaign.WorkTable, ask question) (left []refused, err error) {
	size := firstGroup
	for len(tables) > 0 {
		n := min(size, len(tables))
		e.journal.At(tables[0].Name, e.expected)
		if err := e.engine.Polite(ctx); err != nil {
			return left, err
		}
		unused, err := ask(ctx, e.Pool, tables[:n])
		if err != nil {
			return left, err
		}
		tables = tables[n:]
		switch {
		case len(unused) == 0:
		case e.DryRun:
			err = e.journal.Count(ctx, purge.Delta{Dropped: int64(len(unused))})
		default:
			var stay []refused
			size, stay, err = e.dropGroup(ctx, unused, ask, size)
			left = append(left, stay...)
		}
		if err != nil {
			return left, err
		}
	}
	return left, nil
}

// dropGroup drops tables that were not in use, together or one by one, and returns the size of the next group.
func (e *Env) dropGroup(ctx context.Context, tables []campaign.WorkTable, ask question, size int) (next int, left []refused, err error) {
	begun := time.Now()
	err = e.dropAll(ctx, tables, ask, groupLimit/10, groupLimit)
	switch {
	case endsRun(err) || endsDrops(err):
		return size, nil, err
	case err == nil:
		return nextSize(size, largest, time.Since(begun)), nil, nil
	}
	for _, w := range tables {
		why, err := e.dropOne(ctx, w, ask)
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

// dropAll drops work tables of one kind, unless one of them turns out to be in use once they are locked: the drop takes the
// locks, the question is asked under them, and a rollback undoes the drop. (LOCK TABLE on a view would also lock the tables
// that it depends on.)
func (e *Env) dropAll(ctx context.Context, tables []campaign.WorkTable, ask question, lock, timeout time.Duration) error {
	return e.once(ctx, func(tx Tx) (d purge.Delta, err error) {
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

// dropOne drops a work table. A refusal is reported and the table skipped, except that it returns why if other objects depend
// on the table, which may yet be dropped.
func (e *Env) dropOne(ctx context.Context, w campaign.WorkTable, ask question) (why string, err error) {
	err = e.engine.Retry(ctx, w.Name, func() error {
		return e.dropAll(ctx, []campaign.WorkTable{w}, ask, dropLock, dropTimeout)
	})
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, errUsed):
		e.log(ctx, Info, w.Name+" came into use meanwhile: left alone")
		return "", nil
	case vanished(err):
		e.log(ctx, Info, w.Name+" is gone already")
		return "", nil
	case errors.As(err, &pgErr) && !endsDrops(err):
		refusal := fmt.Sprintf("%s could not be dropped: %s", w.Name, pgErr.Message)
		if pgErr.Code == pgerrcode.DependentObjectsStillExist {
			return refusal, nil
		}
		e.log(ctx, Warning, refusal)
		return "", nil
	}
	return "", err
}

// endsDrops reports whether a drop has lost the database. It has not if only the server's lock table is full: a drop takes a
// lock for each partition and index.
func endsDrops(err error) bool { return Lost(err) && !sqlstate.Is(err, pgerrcode.OutOfMemory) }

// drop drops work tables of one kind, without CASCADE, and waits only briefly for their locks.
func drop(ctx context.Context, tx Tx, tables []campaign.WorkTable, lock, timeout time.Duration) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d", lock.Milliseconds(), timeout.Milliseconds())); err != nil {
		return err
	}
	var names []string
	for _, w := range tables {
		names = append(names, w.Quoted())
	}
	if tables[0].ByFunction {
		_, err := tx.Exec(ctx, "SELECT "+campaign.DropFunction+"($1::text[]::regclass[])", names)
		return err
	}
	what := "TABLE "
	if tables[0].View {
		what = "VIEW "
	}
	_, err := tx.Exec(ctx, "DROP "+what+strings.Join(names, ", "))
	return err
}
