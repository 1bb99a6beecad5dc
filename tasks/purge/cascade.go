package purge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Foreign keys with ON DELETE delete or change rows that refer to a deleted row. A batch counts these rows in its
// transaction with PostgreSQL's own counters, which count each row once, even if triggers changed it. Reading them
// takes two small queries.
//
// Foreign keys may lead back to the swept table. Rows that the rule does not match could then be deleted with rows
// that it matches:
//
//	comment 1 (old) <- comment 2 (old) <- comment 3 (new)
//
// None of the three may be deleted, since 3 would be deleted with 1 and 2. So the statement first follows the keys
// from the rows that it picked (reach), and then back from those reached rows that the rule does not match (bound).
// It deletes all reached rows of the table that are not bound, and checks the whole condition for each of them. If
// comment 3 is old, it is deleted in one statement with 1 and 2, wherever it is in the table, as a single DELETE of
// the whole table would do. If a key deletes further rows of the table, for example a comment that another session
// has just inserted, the batch is rolled back.

// Cascade has the foreign keys that matter when rows of a sweep are deleted.
type Cascade struct {
	// Tables are quoted names: first the swept table, then the tables whose rows are deleted or changed with its rows.
	Tables []string
	Keys   []ForeignKey
}

// ForeignKey is a foreign key between two tables of a Cascade. Parent and Child are their indexes. Equal compares a
// key of the parent with a column of the child, given as SQL.
type ForeignKey struct {
	Parent, Child int
	Keys, Columns []string
	Equal         []campaign.Equality
	// Clears is set if the key sets its columns to NULL or a default. Refuses is set if a row cannot be deleted while
	// others refer to it. If neither is set, the key deletes the rows of the child.
	Clears, Refuses bool
	// Indexed is set if an index finds the rows of the child.
	Indexed bool
}

// deletes reports whether rows of the child are deleted with the row that they refer to.
func (k ForeignKey) deletes() bool { return !k.Clears && !k.Refuses }

// on is the condition that a row of the child refers to a row of the parent, given the aliases of both.
func (k ForeignKey) on(parent, child string) string {
	return (&campaign.Cascade{Keys: k.Keys, Columns: k.Columns, Equal: k.Equal}).On(parent, child)
}

// Circular reports whether keys lead back to the swept table, so that its rows depend on each other.
func (c *Cascade) Circular() bool {
	return c != nil && slices.ContainsFunc(c.Keys, func(k ForeignKey) bool { return k.Child == 0 && !k.Clears })
}

// clearsItself reports whether keys change rows of the swept table when other rows of it are deleted.
func (c *Cascade) clearsItself() bool { return c != nil && c.Clearing(0) > 0 }

// Clearing returns how many keys change rows of a table, given by its index.
func (c *Cascade) Clearing(table int) (keys int) {
	for _, k := range c.Keys {
		if k.Child == table && k.Clears {
			keys++
		}
	}
	return keys
}

// nested reports whether no table is reached from itself, so that conditions can follow the keys one after another.
func (c *Cascade) nested() bool {
	return c.isTree(func(k ForeignKey) bool { return !k.Clears })
}

// isTree reports whether no table is reached from itself by some of the keys.
func (c *Cascade) isTree(by func(k ForeignKey) bool) bool {
	var visit func(table int, path []int) bool
	visit = func(table int, path []int) bool {
		return !slices.Contains(path, table) && !slices.ContainsFunc(c.Keys, func(k ForeignKey) bool {
			return k.Parent == table && by(k) && !visit(k.Child, append(slices.Clone(path), table))
		})
	}
	return visit(0, nil)
}

// steps returns a query for one step along the keys that do not clear, from the rows of a WITH query: to the rows that
// refer to them or, if back is set, to the rows that they refer to. It looks up the steps of each row; if many is set
// and a key has no index, it joins whole tables instead, once for each level.
func (c *Cascade) steps(from string, back, many bool) string {
	const (
		each = "SELECT %[1]d AS t, %[2]s.tableoid AS rel, %[2]s.ctid AS place FROM %[3]s AS p JOIN %[4]s AS c ON %[5]s " +
			"WHERE %[6]s.t = %[7]d AND %[8]s.tableoid = %[6]s.rel AND %[8]s.ctid = %[6]s.place"
		wholeTable = "SELECT %[1]d AS t, %[2]s.tableoid AS rel, %[2]s.ctid AS place, %[7]d AS from_t, " +
			"%[8]s.tableoid AS from_rel, %[8]s.ctid AS from_place FROM %[3]s AS p JOIN %[4]s AS c ON %[5]s"
	)
	whole := many && slices.ContainsFunc(c.Keys, func(k ForeignKey) bool { return !k.Clears && !k.Indexed })
	format := each
	if whole {
		format = wholeTable
	}
	var steps []string
	for _, k := range c.Keys {
		if k.Clears {
			continue
		}
		here, there, next, start := "p", "c", k.Child, k.Parent
		if back {
			here, there, next, start = "c", "p", k.Parent, k.Child
		}
		steps = append(steps, fmt.Sprintf(
			format, next, there, c.Tables[k.Parent], c.Tables[k.Child], k.on("p", "c"), from, start, here,
		))
	}
	all := strings.Join(steps, " UNION ALL ")
	if whole {
		return fmt.Sprintf("SELECT step.t, step.rel, step.place FROM %[1]s JOIN (%[2]s) AS step ON step.from_t = %[1]s.t "+
			"AND step.from_rel = %[1]s.rel AND step.from_place = %[1]s.place", from, all)
	}
	return "SELECT step.* FROM " + from + ", LATERAL (" + all + ") AS step"
}

// reach returns two WITH queries: reach has the rows that are reached from some rows of the table; bound has the
// reached rows that must not be deleted, since the sweep does not match them or rows of other tables refer to them, and
// the rows that they refer to. start selects the object id of the table and the TID of the first rows, which may be
// many.
func (s *Sweep) reach(start sqlexpr.Expr, many bool) sqlexpr.Expr {
	c, where := s.Cascade, s.Where
	if !s.Refused.IsZero() {
		where = s.Without(s.Refused).Where
	}
	return sqlexpr.Format(`reach (t, rel, place) AS (SELECT 0, start.rel, start.place FROM (%s) AS start (rel, place)
  UNION %s),
bound (t, rel, place) AS (SELECT t, rel, place FROM reach WHERE t = 0 AND NOT EXISTS (
    SELECT FROM %s AS r WHERE r.tableoid = reach.rel AND r.ctid = reach.place AND (%s) IS TRUE)
  UNION %s)`, start, c.steps("reach", false, many), c.Tables[0], where, c.steps("bound", true, false))
}

// Dependent is the condition that a row r of a circular sweep's table must not be deleted, since rows that must stay
// would be deleted with it.
func (s *Sweep) Dependent() sqlexpr.Expr {
	return sqlexpr.Format("(r.tableoid, r.ctid) IN (WITH RECURSIVE %s SELECT rel, place FROM bound WHERE t = 0)",
		s.reach(s.matching("r.tableoid, r.ctid"), true))
}

// Follows reports whether counting the rows of the sweep follows foreign keys from each of them.
func (s *Sweep) Follows() bool {
	return s.Cascade.Circular() || s.Cascade != nil && !s.Refused.IsZero()
}

// going returns the sweep without the rows that must stay because deleting them would delete others.
func (s *Sweep) going() Sweep {
	if s.Cascade.Circular() {
		return s.Without(s.Dependent())
	}
	return *s
}

func (s *Sweep) matching(columns string) sqlexpr.Expr {
	return sqlexpr.Format("SELECT %s FROM ONLY %s AS r WHERE %s", columns, s.Relation, s.Where)
}

// Goes is the condition that a row r of a table of the cascade, given by its index, is deleted with a row of the
// sweep. Changes is the condition that it is changed, and not deleted. Both are empty if no key does that.
func (s *Sweep) Goes(table int) sqlexpr.Expr {
	if s.Cascade.nested() {
		return s.refersTo(table, ForeignKey.deletes)
	}
	if !slices.ContainsFunc(s.Cascade.Keys, func(k ForeignKey) bool { return k.Child == table && k.deletes() }) {
		return sqlexpr.Expr{}
	}
	going := s.going()
	return sqlexpr.Format("(r.tableoid, r.ctid) IN (WITH RECURSIVE %s SELECT rel, place FROM reach WHERE t = %d)",
		s.reach(going.matching("r.tableoid, r.ctid"), true), table)
}

// Reads returns the tables that Goes and Changes read for a table, including the table itself.
func (c *Cascade) Reads(table int) (tables []int) {
	var visit func(table int)
	visit = func(table int) {
		if slices.Contains(tables, table) {
			return
		}
		tables = append(tables, table)
		for _, k := range c.Keys {
			if k.Child == table && !k.Refuses || !c.nested() {
				visit(k.Parent)
				visit(k.Child)
			}
		}
	}
	visit(table)
	return tables
}

func (s *Sweep) Changes(table int) sqlexpr.Expr {
	changes := s.refersTo(table, func(k ForeignKey) bool { return k.Clears })
	if goes := s.Goes(table); !changes.IsZero() && !goes.IsZero() {
		changes = sqlexpr.Format("(%s) AND (%s) IS NOT TRUE", changes, goes)
	}
	if table == 0 && !changes.IsZero() {
		// rows of another partition do not count: another sweep deletes them, or they depend on rows that this sweep does
		// not reach
		changes = sqlexpr.Format("(%s) AND (r.tableoid = %s::regclass AND (%s)) IS NOT TRUE", changes,
			sqlexpr.Arg(s.Relation, "text"), s.going().Where)
	}
	return changes
}

// refersTo is the condition that a row r of a table refers, by one of some keys, to a row that will be deleted.
func (s *Sweep) refersTo(table int, by func(k ForeignKey) bool) (condition sqlexpr.Expr) {
	for _, k := range s.Cascade.Keys {
		if k.Child != table || !by(k) {
			continue
		}
		rows := sqlexpr.Format("%s AS r WHERE %s", s.Cascade.Tables[k.Parent], s.Goes(k.Parent))
		if k.Parent == 0 {
			rows = sqlexpr.Format("ONLY %s AS r WHERE %s", s.Relation, s.going().Where)
		}
		condition = sqlexpr.Or(condition,
			sqlexpr.Format("EXISTS (SELECT FROM (SELECT %s FROM %s) AS p WHERE %s)", "r."+strings.Join(k.Keys, ", r."),
				rows, k.on("p", "r")))
	}
	return condition
}

// family returns the WITH queries for the statement of a circular sweep, and the condition that a row r is one of
// the rows that are deleted together with the picked ones.
func (s *Sweep) family() (with, among sqlexpr.Expr) {
	with = sqlexpr.Format(`%s,
family AS MATERIALIZED (SELECT rel, place FROM reach WHERE t = 0 EXCEPT SELECT rel, place FROM bound WHERE t = 0),`,
		s.reach(sqlexpr.SQL("SELECT rel, place FROM pick"), false),
	)
	return with, sqlexpr.SQL("r.ctid = ANY (ARRAY(SELECT place FROM family)) AND ((r.tableoid, r.ctid) IN (SELECT " +
		"rel, place FROM family)) IS TRUE")
}

// pickBound returns a query for the row that pick selects: its TID, its key, and whether it must not be deleted
// because of others.
func (s *Sweep) pickBound(pick sqlexpr.Expr) sqlexpr.Expr {
	if !s.Cascade.Circular() {
		return ofPicked("place, name, false", pick)
	}
	return sqlexpr.Format(`WITH RECURSIVE pick AS MATERIALIZED (%s), %s
SELECT place, name, EXISTS (SELECT FROM bound WHERE t = 0 AND bound.place = pick.place AND bound.rel = pick.rel)
	FROM pick`,
		pick, s.reach(sqlexpr.SQL("SELECT rel, place FROM pick"), false),
	)
}

// Affected counts the rows of a relation that foreign keys deleted or changed.
type Affected struct {
	Relation, Root   string // quoted, with their schemas
	Deleted, Updated int64
}

// affectedSQL returns the relations $1, and the tables and partitions whose rows foreign keys may delete or change
// with theirs, each with the number of rows that the session has deleted and updated in its transaction. It finds
// the keys that refer to a table by their triggers, since these have an index.
const affectedSQL = `
WITH RECURSIVE affected (oid, deleted) AS (
  SELECT part.oid, true FROM unnest($1::text[]) AS name
    CROSS JOIN LATERAL (SELECT to_regclass(name)::oid UNION SELECT relid FROM pg_partition_tree(to_regclass(name)))
      AS part (oid)
  UNION SELECT part.oid, f.confdeltype = 'c'
  FROM affected JOIN pg_trigger t ON t.tgrelid = affected.oid AND t.tgconstrrelid <> 0
    JOIN pg_constraint f ON f.oid = t.tgconstraint AND f.contype = 'f' AND f.confrelid = affected.oid
    CROSS JOIN LATERAL (SELECT f.conrelid UNION SELECT relid FROM pg_partition_tree(f.conrelid)) AS part (oid)
  WHERE affected.deleted AND f.confdeltype IN ('c', 'n', 'd'))
SELECT c.oid, ARRAY[n.nspname, c.relname]::text[], ARRAY[rn.nspname, r.relname]::text[],
  COALESCE(pg_stat_get_xact_tuples_deleted(c.oid), 0), COALESCE(pg_stat_get_xact_tuples_updated(c.oid), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_class r ON r.oid = COALESCE(pg_partition_root(c.oid), c.oid) JOIN pg_namespace rn ON rn.oid = r.relnamespace
WHERE c.oid IN (SELECT oid FROM affected) AND c.relkind = 'r'`

type counters map[uint32]Affected

// queueCounters queues reading the counters of the tables that a batch of the sweep deletes from, and of those that
// foreign keys lead to.
func (s *Sweep) queueCounters(b *pgx.Batch) counters {
	if s.Cascade == nil {
		return nil
	}
	relations, read := []string{s.Relation}, counters{}
	if s.Cascade.Circular() { // families may be in several partitions
		relations[0] = s.Root
	}
	if s.Paired != nil {
		relations = append(relations, s.Paired.Relation)
	}
	b.Queue(affectedSQL, relations).Query(func(rows pgx.Rows) error {
		var (
			oid            uint32
			relation, root pgx.Identifier
			a              Affected
		)
		_, err := pgx.ForEachRow(rows, []any{&oid, &relation, &root, &a.Deleted, &a.Updated}, func() error {
			a.Relation, a.Root = relation.Sanitize(), root.Sanitize()
			read[oid] = a
			return nil
		})
		return err
	})
	return read
}

// ErrTookMore means that a foreign key or a trigger deleted rows of the swept table that the statement did not delete,
// or that foreign keys deleted or changed rows with those of a Childless sweep.
var ErrTookMore = errors.New("deleting these rows would delete or change others, which the rule may not match")

// errNotCounted means that PostgreSQL does not count the rows that a session changes.
var errNotCounted = errors.New(
	"track_counts is off, so that the rows which foreign keys delete with these cannot be counted: turn it on")

// settle sets what foreign keys did in a batch: the difference between the counters before and after it.
func (s *Sweep) settle(before, after counters, n *batchResult) error {
	swept, paired := n.changed, n.paired
	for oid, a := range after {
		a.Deleted, a.Updated = a.Deleted-before[oid].Deleted, a.Updated-before[oid].Updated
		switch { // the rows of the statement may be in several partitions
		case a.Relation == s.Relation || a.Root == s.Root:
			if swept -= a.Deleted; swept < 0 {
				return ErrTookMore
			}
			a.Deleted = 0
			n.moved = n.moved || a.Relation == s.Relation && a.Updated > 0 && n.changed > 0
		case s.Paired != nil && a.Root == s.Paired.Relation:
			counted := min(paired, a.Deleted)
			paired, a.Deleted = paired-counted, a.Deleted-counted
		}
		if a.Deleted > 0 || a.Updated > 0 {
			if s.Childless && a.Root != s.Root {
				return ErrTookMore
			}
			n.affected = append(n.affected, a)
			n.cascaded += a.Deleted + a.Updated
		}
	}
	if swept > 0 {
		return errNotCounted
	}
	n.largest += n.cascaded
	if s.Trash != nil {
		return s.checkKept(n)
	}
	return nil
}

// counted runs work, which deletes rows of the sweep in a transaction, and counts those that foreign keys deleted or
// changed. It fails with ErrTookMore if they deleted further rows of the swept table.
func (s *Sweep) counted(ctx context.Context, tx pgx.Tx, work func() (batchResult, error)) (n batchResult, err error) {
	read := func() (c counters, err error) {
		b := &pgx.Batch{}
		c = s.queueCounters(b)
		return c, tx.SendBatch(ctx, b).Close()
	}
	before, err := read()
	if err != nil {
		return n, err
	}
	if n, err = work(); err != nil || s.Cascade == nil {
		return n, err
	}
	after, err := read()
	if err == nil {
		err = s.settle(before, after, &n)
	}
	return n, err
}

// CountCascade runs work, which deletes the rows of a delta in a transaction, and adds to it the rows that foreign keys
// deleted or changed.
func (s *Sweep) CountCascade(ctx context.Context, tx pgx.Tx, d *Delta, work func() error) error {
	n, err := s.counted(ctx, tx, func() (batchResult, error) {
		err := work()
		return batchResult{changed: d.Deleted}, err
	})
	d.addAffected(n.affected)
	return err
}

// ErrSuppressed means that a row was not deleted, although there was no error.
var ErrSuppressed = errors.New("a trigger of the table prevents its deletion")

// DeleteIn deletes the rows of the sweep in a transaction of the caller, which has locked them. It fails with
// ErrSuppressed unless it deletes as many rows as given. The delta includes rows that foreign keys deleted or changed.
func (s *Sweep) DeleteIn(ctx context.Context, tx pgx.Tx, rows int64) (Delta, error) {
	row, taking, kept := "1", "", "NULL::bigint[]"
	if s.Trash != nil {
		row = s.Trash.Rows.values("r")
		taking, kept = s.taking()
	}
	deletion := sqlexpr.Format("WITH gone AS (DELETE FROM %s AS r WHERE %s RETURNING %s)%s SELECT count(*), %s FROM gone",
		s.Relation, s.Where, row, taking, kept)
	n, err := s.counted(ctx, tx, func() (n batchResult, err error) {
		b := &pgx.Batch{}
		query, args := deletion.Build()
		b.Queue(query, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&n.changed, &n.kept) })
		s.Trash.queueColumns(b)
		if err = tx.SendBatch(ctx, b).Close(); err == nil && n.changed != rows {
			err = ErrSuppressed
		}
		return n, err
	})
	return s.delta(n), err
}
