package purge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// afterSQL runs after the statements of a batch on a relation $1, when their lock keeps the result from changing. It
// returns the relation's filenode, the time since the transaction began, whether the relation is still attached to the
// table $2 (attachedSQL), and which relations have changed (changedSQL). The time includes no round trips, ledger or
// COMMIT, which take equally long for few and many rows.
const afterSQL = "SELECT pg_relation_filenode($1::text::regclass), clock_timestamp() - now(), " + attachedSQL + ", " +
	changedSQL

// attachedSQL is true if a relation $1 is the table $2, or a partition or child of it at any level.
const attachedSQL = `EXISTS (
  WITH RECURSIVE above (oid) AS (SELECT $1::text::regclass::oid
    UNION SELECT i.inhparent FROM above JOIN pg_inherits i ON i.inhrelid = above.oid AND NOT i.inhdetachpending)
  SELECT FROM above WHERE oid = to_regclass($2))`

// ErrDetached means that the relation is no longer a partition or child of its table; its rows are retained.
var ErrDetached = errors.New("the relation is no longer a partition or child of its table")

// changedSQL lists those relations $3 that no longer have the facts $4; it is empty if all have. Facts without
// partitions belong to a table whose partitions do not matter.
const changedSQL = `(SELECT COALESCE(string_agg(fact.relation, ', '), '')
  FROM unnest($3::text[], $4::text[]) AS fact (relation, known)
    LEFT JOIN LATERAL (SELECT ` + campaign.FactsSQL + ` AS facts FROM pg_class c
      WHERE c.oid = to_regclass(fact.relation)) AS now ON true
  WHERE known IS DISTINCT FROM CASE WHEN known LIKE '% parts %' THEN facts ELSE split_part(facts, ' parts ', 1) END)`

// ChangedError means that relations were changed or replaced since the sweep was compiled; the batch was rolled
// back.
type ChangedError struct{ Relations string }

func (e *ChangedError) Error() string {
	return e.Relations + ": renamed, replaced, rewritten, or with another owner, other foreign keys or row security " +
		"than before"
}

func (s *Sweep) afterArgs() []any {
	relations, facts := []string{}, []string{}
	for _, f := range s.Facts {
		relations, facts = append(relations, f.Relation), append(facts, f.Facts)
	}
	return []any{s.Relation, s.Root, relations, facts}
}

func check(attached bool, changed string) error {
	switch {
	case !attached:
		return ErrDetached
	case changed != "":
		return &ChangedError{changed}
	}
	return nil
}

// requireUnchanged fails with ErrDetached if the relation is neither the table nor a partition or child of it, and
// with a ChangedError if a relation has changed. The caller's locks keep that from happening later in the
// transaction.
func (s *Sweep) requireUnchanged(ctx context.Context, tx pgx.Tx) error {
	var (
		attached bool
		changed  string
	)
	if err := tx.QueryRow(ctx, afterSQL, s.afterArgs()...).Scan(nil, nil, &attached, &changed); err != nil {
		return err
	}
	return check(attached, changed)
}

type statements struct {
	sweep *Sweep
	axis  axis
	root  partitionRoot
	// triggers is set if triggers may change the new values of an updated row.
	triggers bool
	// mayNotLock is set if the role lacks the right to lock rows.
	mayNotLock bool
}

// direct returns the plain statement for a window. IS TRUE keeps the planner from using an index on the condition,
// because the window is to limit the cost of the statement.
func (s *statements) direct(window sqlexpr.Expr) sqlexpr.Expr {
	change := sqlexpr.Format("%s WHERE %s AND (%s) IS TRUE", s.sweep.command(s.root.relation), window, s.sweep.Where)
	if s.sweep.Trash != nil {
		return s.sweep.Trash.takeDeleted(change)
	}
	return change
}

func (s *statements) remaining(window sqlexpr.Expr) sqlexpr.Expr {
	return sqlexpr.Format("SELECT count(*) FROM ONLY %s AS r WHERE %s AND (%s) IS TRUE", s.sweep.Relation, window,
		s.sweep.Where)
}

// unlocked counts those of the remaining rows that no other session has locked.
func (s *statements) unlocked(window sqlexpr.Expr) sqlexpr.Expr {
	condition, clause := s.skipping("r")
	return sqlexpr.Format("SELECT count(*) FROM (SELECT FROM ONLY %s AS r WHERE %s AND (%s) IS TRUE%s%s) AS unlocked",
		s.sweep.Relation, window, s.sweep.Where, condition, clause)
}

// pick selects rows of a window, up to a limit. Its columns are place, the row's TID; rel, its relation; id, which
// it shares with paired rows; and name, its key.
func (s *statements) pick(window sqlexpr.Expr, limit int, skipLocked bool) sqlexpr.Expr {
	id, name, unlocked, lock := "0", "NULL", "", ""
	if skipLocked {
		unlocked, lock = s.skipping("r")
	}
	if s.sweep.Paired != nil {
		id = "r." + s.sweep.Paired.ID
	}
	var key []string
	for _, column := range s.sweep.Key {
		key = append(key, "r."+pgx.Identifier{column}.Sanitize())
	}
	switch len(key) {
	case 0:
	case 1:
		name = key[0]
	default:
		name = fmt.Sprintf("format('(%%s)', concat_ws(', ', %s))", strings.Join(key, ", "))
	}
	return sqlexpr.Format(
		"SELECT r.ctid AS place, r.tableoid AS rel, %s AS id, %s::text AS name FROM ONLY %s AS r "+
			"WHERE %s AND (%s) IS TRUE%s LIMIT %s%s",
		id, name, s.sweep.Relation, window, s.sweep.Where, unlocked, sqlexpr.Arg(limit, ""), lock,
	)
}

// skipping returns a condition and a clause that leave out rows t that other sessions have locked. Locking rows takes
// the right UPDATE. Without it, the condition leaves out rows whose xmax is a running transaction; it does not
// recognize a row that several sessions have locked.
func (s *statements) skipping(t string) (condition, clause string) {
	if s.mayNotLock {
		return fmt.Sprintf(" AND (%s.xmax = ANY (ARRAY(SELECT transactionid FROM pg_locks "+
			"WHERE locktype = 'transactionid' AND granted AND pid IS DISTINCT FROM pg_backend_pid()))) IS NOT TRUE", t), ""
	}
	return "", " FOR UPDATE SKIP LOCKED"
}

func ofPicked(columns string, pick sqlexpr.Expr) sqlexpr.Expr {
	return sqlexpr.Format("SELECT %s FROM (%s) AS pick", columns, pick)
}

// onRows returns the command for those rows at some TIDs that still match. See direct for IS TRUE.
func (s *statements) onRows(tids sqlexpr.Expr) sqlexpr.Expr {
	partition := ""
	if s.root.relation != "" { // the TIDs are those of this partition
		partition = fmt.Sprintf("r.tableoid = %d AND ", s.root.partition)
	}
	unchanged := sqlexpr.Expr{}
	if _, ok := s.axis.(groupAxis); ok { // a changed row may be among the newest now
		unchanged = sqlexpr.Format(" AND (r.ctid IN (%s)) IS TRUE", tids)
	}
	return sqlexpr.Format("%s WHERE %sr.ctid = ANY (ARRAY(%s))%s AND (%s) IS TRUE", s.sweep.command(s.root.relation),
		partition, tids, unchanged, s.sweep.Where)
}

// pickAndChange returns a statement that picks rows, deletes or updates those that still match, and deletes their
// paired rows or runs the companion statement. It counts all of these and the updated rows that still match, and
// returns the last TID that it picked. Whether the window may have more rows is known from the number of picked
// rows, not of changed ones, since the application may have changed some in between.
func (s *statements) pickAndChange(c *Companion, pick sqlexpr.Expr, skipLocked bool) sqlexpr.Expr {
	id, free, tids, returning, pairedRow, taking, kept := "0", "", "SELECT place FROM pick", "", "1", "", "NULL::bigint[]"
	if s.sweep.Trash != nil {
		returning = ", " + s.sweep.Trash.Rows.values("r")
		if paired := s.sweep.Trash.Paired; paired != nil {
			pairedRow = paired.values("t")
		}
		taking, kept = s.sweep.taking()
	}
	restored := sqlexpr.SQL("false")
	if s.sweep.Set != nil && s.triggers {
		restored = sqlexpr.Format("(%s) IS TRUE", s.sweep.Where)
	}
	paired := sqlexpr.SQL("SELECT 1 WHERE false")
	if t := s.sweep.Paired; t != nil {
		id = "r." + t.ID
		paired = sqlexpr.Format(
			"DELETE FROM %[1]s AS t USING gone WHERE t.%[2]s = gone.id AND t.%[2]s <> 0 RETURNING %[3]s", t.Relation, t.Key,
			pairedRow)
		if skipLocked { // a row whose paired row is locked is retained with it
			unlocked, lock := s.skipping("t")
			free = fmt.Sprintf(
				" free AS MATERIALIZED (SELECT t.%[2]s AS id FROM %[1]s AS t WHERE t.%[2]s = ANY (ARRAY(SELECT id "+
					"FROM pick))%[3]s%[4]s),",
				t.Relation, t.Key, unlocked, lock,
			)
			tids += fmt.Sprintf(
				" AS p WHERE p.id IN (SELECT id FROM free) OR NOT EXISTS (SELECT FROM %s AS t WHERE t.%s = p.id)",
				t.Relation, t.Key)
		}
	}
	if c != nil {
		returning, paired = returning+", "+c.Returning, sqlexpr.Format("%s RETURNING 1", c.SQL)
	}
	recursive, family, change, left := "", sqlexpr.SQL(free), s.onRows(sqlexpr.SQL(tids)), "0"
	if s.sweep.Cascade.Circular() {
		var among sqlexpr.Expr
		family, among = s.sweep.family()
		change = sqlexpr.Format("DELETE FROM %s AS r WHERE %s AND (%s) IS TRUE", s.sweep.Root, among, s.sweep.Where)
		recursive, returning = "RECURSIVE ", returning+", r.tableoid AS rel, r.ctid AS place"
		left = "(SELECT count(*) FROM pick WHERE NOT EXISTS (SELECT FROM gone WHERE gone.place = pick.place " +
			"AND gone.rel = pick.rel))"
	}
	return sqlexpr.Format(`WITH %spick AS MATERIALIZED (%s),%s
gone AS (%s RETURNING %s AS id, %s AS restored%s),
paired AS (%s)%s
SELECT (SELECT count(*) FROM pick), (SELECT count(*) FROM gone WHERE NOT restored),
  (SELECT count(*) FROM gone WHERE restored), (SELECT count(*) FROM paired),
  (SELECT max(place) FROM pick), %s, %s`, recursive, pick, family, change, id, restored, returning, paired, taking,
		left, kept)
}
