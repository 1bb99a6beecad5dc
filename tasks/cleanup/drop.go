package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

const FirstDropGroup = 8

type BlockedDrop struct {
	campaign.WorkTable
	Message message.Message
}

// dropper drops the given tables or views that are unused, and returns those that it could not drop, with the
// reason. Either all or none of them are views.
type dropper func(ctx context.Context, k WorkTableKind, tables []campaign.WorkTable) ([]BlockedDrop, error)

// DropAllWorkTables drops the unused tables of all kinds. Views come first, since they may depend on tables of another
// kind. A blocked table is tried again as long as others are dropped. messages are about the tables that remain
// blocked.
func DropAllWorkTables(
	ctx context.Context, kinds []WorkTableKind, drop dropper,
) (messages []message.Message, err error) {
	for before := 0; ; before = len(messages) {
		messages = nil
		blocked := make([][]campaign.WorkTable, len(kinds))
		for _, views := range []bool{true, false} {
			for i, k := range kinds {
				remaining, err := drop(ctx, k, WorkTablesOfKind(k.Tables, views))
				if err != nil {
					return nil, err
				}
				for _, b := range remaining {
					blocked[i], messages = append(blocked[i], b.WorkTable), append(messages, b.Message)
				}
			}
		}
		if len(messages) == 0 || len(messages) == before {
			return messages, nil
		}
		for i := range kinds {
			kinds[i].Tables = blocked[i]
		}
	}
}

// timeouts are how long a drop waits for each lock, and how long it may take in total: the application queues
// behind it.
type timeouts struct{ lock, statement time.Duration }

var (
	singleTimeouts = timeouts{500 * time.Millisecond, time.Second}
	groupTimeouts  = timeouts{10 * time.Millisecond, 100 * time.Millisecond}
)

// Work tables are dropped in groups, each in one transaction with the locks of all its tables. maxGroup is the most
// tables of a group, and groupTarget how long dropping it should take.
const (
	maxGroup    = 64
	groupTarget = 50 * time.Millisecond
)

// nextSize returns the size of the next group, from how long the last one took.
func nextSize(size, limit int, took time.Duration) int {
	if took > groupTarget {
		return max(size/2, 1)
	}
	return min(2*size, limit)
}

type drops struct{ task *executedTask }

// dropAll drops the unused work tables. done is false if none can be judged unused, because the tables of their owners
// are empty.
func (d drops) dropAll(ctx context.Context) (done bool, err error) {
	exclude := func(w campaign.WorkTable) bool { return !d.isPlanned(w) }
	finder := WorkTableFinder{Attempt: d.task.Attempt, Exclude: exclude}
	kinds, done, err := finder.Find(ctx)
	if err == nil {
		err = d.guard(ctx, kinds)
	}
	if err != nil {
		return false, err
	}
	blocked, err := DropAllWorkTables(ctx, kinds, d.dropUnused)
	d.task.Log(ctx, blocked...)
	return done, err
}

// isPlanned reports whether a table may be dropped: always without a saved plan, and otherwise if the plan drops it
// in this task or another.
func (d drops) isPlanned(w campaign.WorkTable) bool {
	if d.task.run.Config.SavedPlan == nil {
		return true
	}
	for _, saved := range d.task.run.Config.SavedPlan {
		if slices.Contains(saved.Dropped, w.Quoted()) {
			return true
		}
	}
	return false
}

// dropUnused drops the given tables or views that are unused, and returns those that it could not drop, with the
// reason. If a group cannot be dropped together, for example because a table is locked, its tables are dropped one
// by one.
func (d drops) dropUnused(
	ctx context.Context, k WorkTableKind, tables []campaign.WorkTable,
) (blocked []BlockedDrop, err error) {
	size := FirstDropGroup
	for len(tables) > 0 {
		n := min(size, len(tables))
		d.task.journal.At(tables[0].Name, d.task.expected)
		if err := d.task.Binder.Engine.Wait(ctx); err != nil {
			return blocked, err
		}
		unused, err := k.Unused(ctx, d.task.Binder.Pool, tables[:n])
		if err != nil {
			return blocked, err
		}
		tables = tables[n:]
		if len(unused) == 0 {
			continue
		}
		var more []BlockedDrop
		size, more, err = d.dropGroup(ctx, k, unused, size)
		if blocked = append(blocked, more...); err != nil {
			return blocked, err
		}
	}
	return blocked, nil
}

// dropGroup drops a group, and returns the size of the next one and what it could not drop.
func (d drops) dropGroup(
	ctx context.Context, k WorkTableKind, tables []campaign.WorkTable, size int,
) (next int, blocked []BlockedDrop, err error) {
	begun := time.Now()
	err = d.dropTogether(ctx, k, tables, groupTimeouts)
	switch {
	case endsAttempt(err) || sqlstate.LostInDrop(err):
		return size, nil, err
	case err == nil:
		return nextSize(size, maxGroup, time.Since(begun)), nil, nil
	}
	for _, w := range tables {
		m, err := d.dropOne(ctx, k, w)
		if err != nil {
			return size, blocked, err
		}
		if m != nil {
			blocked = append(blocked, BlockedDrop{WorkTable: w, Message: *m})
		}
	}
	return max(size/2, 1), blocked, nil
}

var errInUse = errors.New("it is in use")

// dropTogether drops work tables of one kind, unless one of them has come on hold, or turns out to be in use once they
// are locked. The drop itself takes the locks; then it is checked whether the tables are still unused, and if not, a
// rollback undoes the drop. (LOCK TABLE on a view would also lock the tables on which it depends.) Their rows are read
// before that, since reading may take long.
func (d drops) dropTogether(
	ctx context.Context, k WorkTableKind, tables []campaign.WorkTable, limits timeouts,
) error {
	return d.task.tryBatch(ctx, func(tx pgx.Tx) (delta purge.Delta, err error) {
		held := heldWorkTables{Attempt: d.task.Attempt}
		if err := held.Check(ctx, tx, k.Drop.WorkTables.Owner, tables); err != nil {
			return delta, err
		}
		if err := d.task.drop(ctx, tx, tables, limits); err != nil {
			return delta, err
		}
		unused, err := k.Unused(ctx, tx, tables)
		if err == nil && len(unused) < len(tables) {
			err = errInUse
		}
		return purge.Delta{Dropped: int64(len(tables))}, err
	})
}

// dropOne drops one table. If that fails, it logs why and leaves the table. If other objects depend on the table,
// it returns the message instead, because these may be dropped later.
func (d drops) dropOne(
	ctx context.Context, k WorkTableKind, w campaign.WorkTable,
) (blocked *message.Message, err error) {
	err = d.task.Binder.Engine.Retry(ctx, w.Name, func() error {
		return d.dropTogether(ctx, k, []campaign.WorkTable{w}, singleTimeouts)
	})
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, errInUse):
		d.task.Log(ctx, message.Infof("%s is now in use: not dropped", w.Name))
		return nil, nil
	case errors.Is(err, ErrTableOnHold):
		d.task.Log(ctx, message.Infof("%s is now on hold: not dropped", w.Name))
		return nil, nil
	case campaign.Dropped(ctx, d.task.Binder.Pool, err, w.Quoted()):
		d.task.Log(ctx, message.Infof("%s no longer exists", w.Name))
		return nil, nil
	case errors.As(err, &pgErr) && !sqlstate.LostInDrop(err):
		m := message.WorkTableNotDropped.With("table", w.Name, "error", purge.Message(err))
		if pgErr.Code == pgerrcode.DependentObjectsStillExist {
			return &m, nil
		}
		d.task.Log(ctx, m)
		d.task.Retained.Tables++
		return nil, nil
	}
	return nil, err
}

// drop drops tables, all of them views or none, or moves them to the trash. It waits only briefly for locks.
func (t *executedTask) drop(ctx context.Context, tx pgx.Tx, tables []campaign.WorkTable, limits timeouts) error {
	set := func(setting string, to time.Duration) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL %s = %d", setting, to.Milliseconds()))
		return err
	}
	err := set("lock_timeout", limits.lock)
	var rows []int64
	if err == nil && t.keeps() > 0 {
		rows, err = countAll(ctx, tx, tables)
	}
	if err == nil {
		err = set("statement_timeout", limits.statement)
	}
	switch {
	case err != nil:
		return err
	case t.keeps() > 0:
		return t.moveAll(ctx, tx, tables, rows)
	}
	sql, args := DropStatement(tables)
	_, err = tx.Exec(ctx, sql, args...)
	return err
}

// dropWorkTables counts the unused work tables. done is false if none can be judged unused, because the tables of their
// owners are empty.
func (t *countedTask) dropWorkTables(ctx context.Context) (done bool, err error) {
	exclude := func(w campaign.WorkTable) bool { return t.found.dropped[w.Quoted()] }
	finder := WorkTableFinder{Attempt: t.Attempt, Exclude: exclude}
	kinds, done, err := finder.Find(ctx)
	if err != nil {
		return false, err
	}
	blocked, err := DropAllWorkTables(ctx, kinds, t.countUnused)
	t.Log(ctx, blocked...)
	return done, err
}

func (t *countedTask) countUnused(
	ctx context.Context, k WorkTableKind, tables []campaign.WorkTable,
) (blocked []BlockedDrop, err error) {
	if len(tables) == 0 {
		return nil, nil
	}
	t.run.Journal.At(tables[0].Name, t.expected)
	unused, err := k.Unused(ctx, t.Binder.Pool, tables)
	if err != nil || len(unused) == 0 {
		return nil, err
	}
	dependents, err := readDependents(ctx, t.Binder.Pool, quotedNames(unused))
	if err != nil {
		return nil, err
	}
	drops := slices.Clone(unused)
	for again := true; again; { // a blocked table also blocks the tables on which it depends
		again = false
		names := quotedNames(drops)
		drops = slices.DeleteFunc(drops, func(w campaign.WorkTable) bool {
			i := slices.IndexFunc(dependents[w.Quoted()], func(name string) bool {
				return !t.found.dropped[name] && !slices.Contains(names, name)
			})
			if i < 0 {
				return false
			}
			again = true
			m := message.WorkTableNotDropped.With("table", w.Name, "error", dependents[w.Quoted()][i]+" depends on it")
			blocked = append(blocked, BlockedDrop{WorkTable: w, Message: m})
			return true
		})
	}
	if len(drops) == 0 {
		return blocked, nil
	}
	t.found.recordDrops(WorkTableMask(k.Drop.Prefix), DropRule(k.Drop), drops)
	return blocked, t.run.Journal.Count(ctx, purge.Delta{Dropped: int64(len(drops))})
}

// selectDependents selects what depends on the relations $1 and so prevents dropping them, with the name of the
// relation that it belongs to.
const selectDependents = `
SELECT name, n.nspname, r.relname
FROM unnest($1::text[]) AS name JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass
  AND d.refobjid = to_regclass(name) AND d.deptype = 'n'
LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
LEFT JOIN pg_class r ON r.oid = COALESCE(w.ev_class, k.conrelid, CASE d.classid
  WHEN 'pg_class'::regclass THEN d.objid END)
LEFT JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE r.oid IS DISTINCT FROM d.refobjid
ORDER BY 1, 2`

// readDependents returns what depends on relations, by the quoted names of these relations.
func readDependents(ctx context.Context, db campaign.Querier, names []string) (map[string][]string, error) {
	rows, _ := db.Query(ctx, selectDependents, names)
	var (
		table        string
		schema, name *string
	)
	dependents := map[string][]string{}
	_, err := pgx.ForEachRow(rows, []any{&table, &schema, &name}, func() error {
		dependent := "another object"
		if schema != nil && name != nil {
			dependent = pgx.Identifier{*schema, *name}.Sanitize()
		}
		dependents[table] = append(dependents[table], dependent)
		return nil
	})
	return dependents, err
}
