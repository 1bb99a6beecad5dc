package purge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// While the drop of a partition waits for the lock on its parent, the application queues behind it.
const (
	partitionLock  = 500 * time.Millisecond
	partitionCount = 10 * time.Minute
)

// wholly returns a row if a table is a range partition by the date alone that ends before the cutoff, that this role
// may drop, and whose drop has the same effect as a deletion: it has no trigger, rule, publication or policy, and is
// not the default partition. The column says whether its bounds prove that of every row: they are of type timestamptz.
const wholly = `
SELECT a.atttypid = 'timestamptz'::regtype FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
  JOIN pg_partitioned_table t ON t.partrelid = i.inhparent
  JOIN pg_attribute a ON a.attrelid = i.inhparent AND a.attnum = t.partattrs[0]
    JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid = $1::text::regclass AND c.relkind = 'r' AND t.partstrat = 'r' AND t.partnatts = 1
    AND t.partdefid <> c.oid AND a.attname = $2
    AND pg_has_role(c.relowner, 'USAGE') AND NOT row_security_active(c.oid)
    AND NOT EXISTS (SELECT FROM pg_rewrite WHERE ev_class IN (c.oid, i.inhparent))
    AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid IN (c.oid, i.inhparent) AND ` + appTrigger + `)
    AND NOT EXISTS (SELECT FROM pg_publication_tables p JOIN pg_class x ON x.relname = p.tablename
      JOIN pg_namespace xn ON xn.oid = x.relnamespace AND xn.nspname = p.schemaname
      WHERE x.oid IN (SELECT pg_partition_ancestors(c.oid)))
    AND CASE WHEN a.atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype)
        THEN (regexp_match(pg_get_expr(c.relpartbound, c.oid),
          $$ TO \('([^']+)'\)$$))[1]::timestamptz <= $3 ELSE false END`

// dropPartition drops the sweep's table if it is a partition of which no row stays. While its rows are counted nobody
// can write to it; the lock on the parent is held only for the drop itself. Count, drop and account are one
// transaction.
func (sw *sweep) dropPartition(ctx context.Context) (dropped bool, err error) {
	var bounded bool
	err = sw.read(ctx, []any{&bounded}, wholly, sw.Relation, sw.Older.Column, sw.Older.Than)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := sw.Wait(ctx); err != nil {
		return false, err
	}
	err = sw.Retry(ctx, sw.Name, func() error {
		dropped, err = sw.dropCounted(ctx, bounded)
		return err
	})
	// its rows are deleted instead
	if sqlstate.Is(
		err,
		pgerrcode.LockNotAvailable,
		pgerrcode.QueryCanceled,
		pgerrcode.DependentObjectsStillExist,
		pgerrcode.InsufficientPrivilege,
	) {
		return false, nil
	}
	return dropped, err
}

// dropCounted counts a partition's rows and drops it, unless a row stays. Where the bounds prove that every row is
// older, only the zero record is looked for. Dates without a time zone are ambiguous in the hour that is repeated in
// autumn: every row is checked then.
func (sw *sweep) dropCounted(ctx context.Context, bounded bool) (dropped bool, err error) {
	begun := time.Now()
	tx, err := sw.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(
		ctx,
		fmt.Sprintf("SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d; LOCK TABLE ONLY %s IN SHARE MODE",
			partitionLock.Milliseconds(), partitionCount.Milliseconds(), sw.Relation),
	); err != nil {
		return false, err
	}
	stays, args := "NOT ("+sw.Where+") OR ("+sw.Where+") IS NULL", sw.Args
	switch {
	case bounded && sw.Older.Key == "":
		stays, args = "false", nil
	case bounded:
		stays, args = "r."+pgx.Identifier{sw.Older.Key}.Sanitize()+" = 0", nil
	}
	var (
		rows, tableBytes, indexBytes int64
		some                         bool
	)
	if err := tx.QueryRow(ctx, fmt.Sprintf(`SELECT EXISTS (SELECT FROM ONLY %[1]s AS r
		WHERE %[2]s), pg_table_size($%[3]d::text::regclass), pg_indexes_size($%[3]d::text::regclass)`,
		sw.Relation, stays, len(args)+1),
		slices.Concat(args, []any{sw.Relation})...).
		Scan(&some, &tableBytes, &indexBytes); err != nil ||
		some {
		return false, err // a row stays, such as the zero record
	}
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM ONLY "+sw.Relation).Scan(&rows); err != nil {
		return false, err
	}
	if _, err := tx.Exec(
		ctx,
		fmt.Sprintf("SET LOCAL statement_timeout = %d; DROP TABLE %s", 2*partitionLock.Milliseconds(), sw.Relation),
	); err != nil {
		return false, err
	}
	return true, sw.Commit(
		ctx,
		tx,
		Delta{
			Deleted: rows,
			Space: []Space{
				{Relation: sw.Relation, Root: sw.Root, Rows: rows, TableBytes: tableBytes, IndexBytes: indexBytes},
			},
			Cursor: Cursor{Unit: sw.Unit, Before: sw.before},
			Begun:  begun,
		},
	)
}
