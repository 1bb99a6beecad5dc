package purge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Older is a condition on a date alone. It allows dropping a partition whose rows are all older, and finding the
// oldest date without reading the table.
type Older struct {
	Column string
	Than   time.Time
	// Key is the column that is 0 in the zero record, which is retained; it may be empty.
	Key string
}

// Dropping a partition waits for the lock on its parent, and the application queues behind it. That must be short.
const (
	dropLockTimeout = 500 * time.Millisecond
	dropReadTimeout = 10 * time.Minute
)

// droppableSQL returns a row if the table may be dropped instead of deleting its rows. It must be a range partition
// by the date alone that ends before the cutoff, and not the default partition; the role must have the right to
// drop it; and the drop must have the same effect as a deletion: no foreign key refers to it, and it has no
// trigger, rule, publication or row security. The column says whether the partition's bounds prove that all rows
// are older, which they do if their type is timestamptz.
const droppableSQL = `
SELECT a.atttypid = 'timestamptz'::regtype FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
  JOIN pg_partitioned_table t ON t.partrelid = i.inhparent
  JOIN pg_attribute a ON a.attrelid = i.inhparent AND a.attnum = t.partattrs[0]
    JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid = $1::text::regclass AND c.relkind = 'r' AND t.partstrat = 'r' AND t.partnatts = 1
    AND t.partdefid <> c.oid AND a.attname = $2
    AND pg_has_role(c.relowner, 'USAGE') AND NOT row_security_active(c.oid)
    AND NOT EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND confrelid = c.oid)
    AND NOT EXISTS (SELECT FROM pg_rewrite WHERE ev_class IN (SELECT pg_partition_ancestors(c.oid)))
    AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid IN (SELECT pg_partition_ancestors(c.oid))
      AND ` + appTriggerSQL + `)
    AND NOT EXISTS (SELECT FROM pg_publication_tables p JOIN pg_class x ON x.relname = p.tablename
      JOIN pg_namespace xn ON xn.oid = x.relnamespace AND xn.nspname = p.schemaname
      WHERE x.oid IN (SELECT pg_partition_ancestors(c.oid)))
    AND CASE WHEN a.atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype)
        THEN (regexp_match(pg_get_expr(c.relpartbound, c.oid),
          $$ TO \('([^']+)'\)$$))[1]::timestamptz <= $3 ELSE false END`

// dropPartition drops the table if it is a partition without rows to retain. While the rows are counted, no other
// session can write to it; the parent is locked only for the drop itself. The count, the drop and the ledger are
// one transaction.
func (t *table) dropPartition(ctx context.Context, before Retained) (dropped bool, err error) {
	s := t.sweep
	err = t.read(ctx, []any{nil}, droppableSQL, s.Relation, s.Older.Column, s.Older.Than)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := t.engine.Wait(ctx); err != nil {
		return false, err
	}
	err = t.engine.Retry(ctx, s.Name, func() error {
		dropped, err = t.countAndDrop(ctx, before)
		return err
	})
	if sqlstate.Is(
		err, pgerrcode.LockNotAvailable, pgerrcode.QueryCanceled, pgerrcode.DependentObjectsStillExist,
		pgerrcode.InsufficientPrivilege,
	) {
		return false, nil // its rows are deleted instead
	}
	return dropped, err
}

// countAndDrop drops the partition unless a row must be retained. If the bounds prove that all rows are older, only
// the zero record matters. Dates without a time zone are ambiguous in the hour that is repeated in autumn, so that
// every row is checked.
func (t *table) countAndDrop(ctx context.Context, before Retained) (dropped bool, err error) {
	s, begun := t.sweep, time.Now()
	tx, err := t.engine.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(
		ctx,
		fmt.Sprintf("SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d; LOCK TABLE ONLY %s IN SHARE MODE",
			dropLockTimeout.Milliseconds(), dropReadTimeout.Milliseconds(), s.Relation),
	); err != nil {
		return false, err
	}
	if err := s.requireUnchanged(ctx, tx); err != nil {
		return false, err
	}
	var bounded bool // read again, now that the lock keeps the bounds from changing
	err = tx.QueryRow(ctx, droppableSQL, s.Relation, s.Older.Column, s.Older.Than).Scan(&bounded)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var (
		retained bool
		space    = Space{Relation: s.Relation, Root: s.Root}
	)
	query := sqlexpr.Format(`SELECT EXISTS (SELECT FROM ONLY %[1]s AS r WHERE %[2]s),
		pg_table_size(%[3]s::regclass), pg_indexes_size(%[3]s::regclass)`,
		s.Relation, s.keepsPartition(bounded), sqlexpr.Arg(s.Relation, "text"))
	if err := query.QueryRow(ctx, tx).Scan(&retained, &space.TableBytes, &space.IndexBytes); err != nil || retained {
		return false, err
	}
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM ONLY "+s.Relation).Scan(&space.Rows); err != nil {
		return false, err
	}
	if _, err := tx.Exec(
		ctx,
		fmt.Sprintf("SET LOCAL statement_timeout = %d; DROP TABLE %s", 2*dropLockTimeout.Milliseconds(), s.Relation),
	); err != nil {
		return false, err
	}
	return true, t.engine.Commit(ctx, tx, Delta{
		Deleted: space.Rows,
		Dropped: 1,
		Space:   []Space{space},
		Cursor:  Cursor{Unit: s.Unit, Before: before},
		Begun:   begun,
	})
}

// keepsPartition is the condition that a row r keeps the partition from being dropped. bounded means that the
// bounds prove that all rows are older.
func (s *Sweep) keepsPartition(bounded bool) sqlexpr.Expr {
	switch {
	case bounded && s.Older.Key == "":
		return sqlexpr.SQL("false")
	case bounded:
		return sqlexpr.SQL("r." + pgx.Identifier{s.Older.Key}.Sanitize() + " = 0")
	}
	return sqlexpr.Format("NOT (%[1]s) OR (%[1]s) IS NULL", s.Where)
}

// Drops reports whether the sweep would drop its table. It neither changes nor locks anything.
func (e *Engine) Drops(ctx context.Context, s Sweep) (drops bool, err error) {
	if s.Older == nil || s.Narrowed || !s.Partition {
		return false, nil
	}
	err = e.open(ctx, []Sweep{s}, func(t *table) error {
		var bounded bool
		err := t.read(ctx, []any{&bounded}, droppableSQL, s.Relation, s.Older.Column, s.Older.Than)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		return t.query(ctx,
			sqlexpr.Format("SELECT NOT EXISTS (SELECT FROM ONLY %s AS r WHERE %s)", s.Relation,
				s.keepsPartition(bounded)),
			&drops)
	})
	return drops, err
}

// dateIndexSQL returns whether a table is empty, and whether an index begins with its date.
const dateIndexSQL = `
SELECT pg_relation_size(c.oid) = 0 OR c.reltuples = 0,
  EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
    WHERE i.indrelid = c.oid AND i.indkey[0] = a.attnum AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.oid = $1::text::regclass AND a.attname = $2`

// statsSQL returns the oldest date in the planner's statistics, which are as of the last ANALYZE, without the date
// of the zero record. If rows were deleted since up to a later time, $3, it returns that. Without statistics it
// returns no row.
const statsSQL = `
SELECT (SELECT CASE WHEN min(v) < $3::timestamptz THEN $3 ELSE min(v) END
  FROM (SELECT unnest(s.most_common_vals::text::timestamptz[]) UNION ALL
  SELECT unnest(s.histogram_bounds::text::timestamptz[])) AS known (v)
  WHERE isfinite(v) AND v IS DISTINCT FROM %[1]s)
FROM pg_stats s JOIN pg_class c ON c.relname = s.tablename
  AND c.relnamespace = to_regnamespace(quote_ident(s.schemaname))
WHERE c.oid = $1::text::regclass AND s.attname = $2 AND NOT s.inherited`

// ErrNotKnown means that only reading the whole table would give the answer.
var ErrNotKnown = errors.New("neither an index nor the planner's statistics have it")

// Oldest returns the oldest date without reading the whole table, and without the zero record. The date comes from
// an index or, if there is none, from the planner's statistics as of the last ANALYZE. These may still include rows
// older than until, which were deleted since. Oldest returns nil if there are no dates, and ErrNotKnown without an
// index and statistics.
func (o *Older) Oldest(
	ctx context.Context, tx pgx.Tx, relation string, until time.Time,
) (oldest *time.Time, err error) {
	var empty, indexed bool
	if err := tx.QueryRow(ctx, dateIndexSQL, relation, o.Column).Scan(&empty, &indexed); err != nil || empty {
		return nil, err
	}
	column, notZero, zero := pgx.Identifier{o.Column}.Sanitize(), "true", "NULL"
	if o.Key != "" {
		key := pgx.Identifier{o.Key}.Sanitize()
		notZero = "r." + key + " IS DISTINCT FROM 0"
		zero = fmt.Sprintf("(SELECT r.%s::timestamptz FROM ONLY %s AS r WHERE r.%s = 0)", column, relation, key)
	}
	if indexed {
		sql := fmt.Sprintf("SELECT min(r.%[1]s)::timestamptz FROM ONLY %[2]s AS r WHERE %[3]s AND isfinite(r.%[1]s)",
			column, relation, notZero)
		err := tx.QueryRow(ctx, sql).Scan(&oldest)
		return oldest, err
	}
	err = tx.QueryRow(ctx, fmt.Sprintf(statsSQL, zero), relation, o.Column, until).Scan(&oldest)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotKnown
	}
	return oldest, err
}
