package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Partitions says what to do with a partition whose rows are all older than the cutoff.
type Partitions string

const (
	// DropPartitions, also "", drops it if that has the same effect as deleting its rows; otherwise it deletes them.
	DropPartitions Partitions = "DROP"
	// DeleteRows deletes its rows, and leaves the partition.
	DeleteRows Partitions = "DELETE"
	// DetachPartitions makes it a table of its own, with its rows. No row is deleted anywhere.
	DetachPartitions Partitions = "DETACH"
)

// While the removal of a partition waits for the lock on its parent, the application queues behind it, so the timeout
// is short.
const (
	removeLockTimeout = 500 * time.Millisecond
	removeReadTimeout = 10 * time.Minute
)

// wholePartitions is a FROM and a WHERE for the partitions c that end before a cutoff of the date by which their
// parents p are partitioned. Default partitions have no end.
const wholePartitions = `FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid AND NOT i.inhdetachpending
  JOIN pg_class p ON p.oid = i.inhparent JOIN pg_partitioned_table t ON t.partrelid = p.oid
  JOIN pg_attribute a ON a.attrelid = p.oid AND a.attname = %[1]s
WHERE c.relkind = 'r' AND t.partdefid <> c.oid
  AND CASE WHEN ` + campaign.PartitionedByDate + `
    THEN (regexp_match(pg_get_expr(c.relpartbound, c.oid), $$ TO \('([^']+)'\)$$))[1]::timestamptz <= %[2]s
    ELSE false END`

// WholePartitions selects the object ids of the partitions of a table, given by its quoted name, that end before a
// cutoff.
func WholePartitions(table, column string, than time.Time) sqlexpr.Expr {
	return sqlexpr.Format("SELECT c.oid "+wholePartitions+
		" AND c.oid IN (SELECT relid FROM pg_partition_tree(%[3]s::regclass) WHERE isleaf)",
		sqlexpr.Arg(column, "text"), sqlexpr.Arg(than, "timestamptz"), sqlexpr.Arg(table, "text"))
}

// These select, for a partition that ends before the cutoff, whether its bounds prove that all rows are older (as they
// do if the date is a timestamptz), the quoted name of its parent, and why it cannot be removed; "" if it can. A drop
// must have the same effect as a deletion.
var (
	droppable = removableSQL(`WHEN NOT pg_has_role(c.relowner, 'USAGE') THEN 'the role is not its owner'
  WHEN EXISTS (SELECT FROM pg_rewrite WHERE ev_class IN (SELECT pg_partition_ancestors(c.oid)))
    OR EXISTS (SELECT FROM pg_trigger
      WHERE tgrelid IN (SELECT pg_partition_ancestors(c.oid)) AND ` + campaign.AppTrigger + `)
    THEN 'it has triggers or rules'
  WHEN EXISTS (SELECT FROM pg_publication_tables p JOIN pg_class x ON x.relname = p.tablename
    JOIN pg_namespace xn ON xn.oid = x.relnamespace AND xn.nspname = p.schemaname
    WHERE x.oid IN (SELECT pg_partition_ancestors(c.oid))) THEN 'it is published'`)
	detachable = removableSQL(`WHEN NOT pg_has_role(p.relowner, 'USAGE') THEN format(
    'the role is not a member of the table''s owner: GRANT %%I TO %%I',
    pg_get_userbyid(p.relowner), current_user)`)
)

func removableSQL(problems string) string {
	return fmt.Sprintf(`SELECT a.atttypid = 'timestamptz'::regtype,
  (SELECT format('%%I.%%I', nspname, p.relname) FROM pg_namespace WHERE oid = p.relnamespace),
  CASE `+problems+`
  WHEN EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND confrelid = c.oid) THEN 'foreign keys refer to it'
  WHEN row_security_active(c.oid) THEN 'row security may hide rows of it' ELSE '' END `+
		wholePartitions+" AND c.oid = $1::text::regclass", "$2", "$3")
}

// removable is a partition that ends before the cutoff.
type removable struct {
	bounded bool // whether the bounds prove that all rows are older
	parent  string
	problem string // why it cannot be removed; empty if it can
}

// Removes reports whether the sweep removes its table rather than rows of it.
func (s *Sweep) Removes() bool {
	return s.Older != nil && s.Partition && s.Partitions != DeleteRows
}

// readRemovable returns nil if the table does not end before the cutoff.
func (s *Sweep) readRemovable(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (*removable, error) {
	sql, r := droppable, &removable{}
	if s.Partitions == DetachPartitions {
		sql = detachable
	}
	err := db.QueryRow(ctx, sql, s.Relation, s.Older.Column, s.Older.Than).Scan(&r.bounded, &r.parent, &r.problem)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if s.PartitionOnHold {
		r.problem = "it is on hold"
	}
	return r, err
}

// removePartition removes the table if it is a partition without rows to retain. While the rows are counted, no
// other session can write to it; the parent is locked only for the removal itself. The count, the removal and the
// ledger are one transaction. If the table ends before the cutoff and is not removed, problem says why.
func (t *table) removePartition(ctx context.Context, before Retained) (removed bool, problem string, err error) {
	s := t.sweep
	var r *removable
	err = t.engine.Retry(ctx, s.Name, func() error {
		r, err = s.readRemovable(ctx, t.session.conn)
		return err
	})
	switch {
	case err != nil || r == nil:
		return false, "", err
	case r.problem != "":
		return false, r.problem, nil
	}
	if err := t.engine.Wait(ctx); err != nil {
		return false, "", err
	}
	err = t.engine.Retry(ctx, s.Name, func() error {
		removed, problem, err = t.countAndRemove(ctx, before)
		return err
	})
	if sqlstate.Is(
		err, pgerrcode.LockNotAvailable, pgerrcode.QueryCanceled, pgerrcode.DependentObjectsStillExist,
		pgerrcode.InsufficientPrivilege, pgerrcode.ForeignKeyViolation,
	) {
		if s.Partitions != DetachPartitions {
			t.engine.Recorder.Warn(message.PartitionNotDropped.With("table", s.Name, "problem", sqlstate.Text(err)))
		}
		return false, sqlstate.Text(err), nil
	}
	return removed, problem, err
}

// countAndRemove removes the partition unless a row must be retained. If the bounds prove that all rows are older, only
// the zero record matters. Dates without a time zone are ambiguous in the hour that is repeated in autumn, so every row
// is checked.
func (t *table) countAndRemove(ctx context.Context, before Retained) (removed bool, problem string, err error) {
	s, begun := t.sweep, time.Now()
	tx, err := t.engine.Begin(ctx)
	if err != nil {
		return false, "", err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(
		ctx,
		fmt.Sprintf("SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d; LOCK TABLE ONLY %s IN SHARE MODE",
			removeLockTimeout.Milliseconds(), removeReadTimeout.Milliseconds(), s.Relation),
	); err != nil {
		return false, "", err
	}
	if err := s.requireUnchanged(ctx, tx); err != nil {
		return false, "", err
	}
	r, err := s.readRemovable(ctx, tx) // read again, now that the lock keeps the bounds from changing
	if err != nil || r == nil || r.problem != "" {
		return false, "", err
	}
	var (
		retained bool
		space    = Space{Relation: s.Relation, Root: s.Root}
	)
	query := sqlexpr.Format(`SELECT EXISTS (SELECT FROM ONLY %[1]s AS r WHERE %[2]s),
		pg_table_size(%[3]s::regclass), pg_indexes_size(%[3]s::regclass)`,
		s.Relation, s.keepsPartition(r.bounded), sqlexpr.Arg(s.Relation, "text"))
	if err := query.QueryRow(ctx, tx).Scan(&retained, &space.TableBytes, &space.IndexBytes); err != nil {
		return false, "", err
	}
	if retained {
		return false, s.whyKept(), nil
	}
	d := Delta{Partitions: 1, Cursor: Cursor{Unit: s.Unit, Before: before}, Begun: begun}
	statement := fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s", r.parent, s.Relation)
	if s.Partitions != DetachPartitions {
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM ONLY "+s.Relation).Scan(&space.Rows); err != nil {
			return false, "", err
		}
		statement, d.Deleted, d.Space = "DROP TABLE "+s.Relation, space.Rows, []Space{space}
	}
	timeout := fmt.Sprintf("SET LOCAL statement_timeout = %d; ", 2*removeLockTimeout.Milliseconds())
	if s.Partitions != DetachPartitions && s.Trash != nil {
		if _, err = tx.Exec(ctx, timeout); err == nil {
			err = s.Trash.Move(ctx, tx, space.Rows)
		}
	} else {
		_, err = tx.Exec(ctx, timeout+statement)
	}
	if err != nil {
		return false, "", err
	}
	return true, "", t.engine.Commit(ctx, tx, d)
}

// whyKept says why a partition that ends before the cutoff is not removed because of its rows; empty if the only reason
// is that some are not older.
func (s *Sweep) whyKept() string {
	if s.Narrowed {
		return "it has rows that are on hold or not older"
	}
	return ""
}

// keepsPartition is the condition that a row r keeps the partition from being removed. bounded means that the
// bounds prove that all rows are older.
func (s *Sweep) keepsPartition(bounded bool) sqlexpr.Expr {
	switch {
	case bounded && s.Older.Key == "" && !s.Narrowed:
		return sqlexpr.SQL("false")
	case bounded && !s.Narrowed:
		return sqlexpr.SQL("r." + pgx.Identifier{s.Older.Key}.Sanitize() + " = 0")
	}
	where := s.Where
	if !s.Removed.IsZero() {
		where = s.Removed
	}
	return sqlexpr.Format("NOT (%[1]s) OR (%[1]s) IS NULL", where)
}

// Removes reports whether the sweep would remove its table. If the table ends before the cutoff and would not be
// removed, problem says why. Removes neither changes nor locks anything.
func (e *Engine) Removes(ctx context.Context, s Sweep) (removes bool, problem string, err error) {
	if !s.Removes() {
		return false, "", nil
	}
	err = e.open(ctx, []Sweep{s}, func(t *table) error {
		return e.Retry(ctx, s.Name, func() error {
			r, err := s.readRemovable(ctx, t.session.conn)
			if err != nil || r == nil || r.problem != "" {
				if r != nil {
					problem = r.problem
				}
				return err
			}
			err = sqlexpr.Format("SELECT NOT EXISTS (SELECT FROM ONLY %s AS r WHERE %s)", s.Relation,
				s.keepsPartition(r.bounded)).QueryRow(ctx, t.session.conn).Scan(&removes)
			if !removes {
				problem = cmp.Or(problem, s.whyKept())
			}
			return err
		})
	})
	return removes, problem, err
}
