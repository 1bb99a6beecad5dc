package purge

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// afterSQL returns, after the statements of a batch, the table's filenode, which their lock keeps from changing, and
// the time that they took: without round trips, the ledger and the COMMIT, which take as long for few rows.
const afterSQL = "SELECT pg_relation_filenode($1::text::regclass), clock_timestamp() - now()"

// statements builds the statements of a sweep's batches. Their parameters are the sweep's, followed by the limit,
// if there is one, and the bounds of a window.
type statements struct {
	sweep *Sweep
	axis  axis
	root  partitionRoot
}

// direct returns the plain statement on a window. IS TRUE keeps the planner from using an index on the condition,
// since the window is what bounds the statement's cost.
func (s *statements) direct() string {
	after := len(s.sweep.Args) + len(s.sweep.SetArgs)
	return fmt.Sprintf(
		"%s WHERE %s AND (%s) IS TRUE", s.sweep.command(s.root.relation), s.axis.where(after), s.sweep.Where,
	)
}

// remaining returns the query that counts the rows that a window still has.
func (s *statements) remaining() string {
	return fmt.Sprintf(
		"SELECT count(*) FROM ONLY %s AS r WHERE %s AND (%s) IS TRUE",
		s.sweep.Relation, s.axis.where(len(s.sweep.Args)), s.sweep.Where,
	)
}

// pick selects up to a limit of rows of a window: place, their TID; id, which they share with paired rows; name, their
// key. The parameters of the limit and the window are numbered from after+1 on.
func (s *statements) pick(after int, skipLocked bool) string {
	id, name, lock := "0", "NULL", ""
	if skipLocked {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	if s.sweep.Paired != nil {
		id = "r." + s.sweep.Paired.ID
	}
	if s.sweep.Key != "" {
		name = "r." + pgx.Identifier{s.sweep.Key}.Sanitize()
	}
	return fmt.Sprintf(
		"SELECT r.ctid AS place, %s AS id, %s::text AS name FROM ONLY %s AS r WHERE %s AND (%s) IS TRUE LIMIT $%d%s",
		id, name, s.sweep.Relation, s.axis.where(after+1), s.sweep.Where, after+1, lock,
	)
}

// ofPicked returns the query for columns of the rows that pick selects.
func (s *statements) ofPicked(columns string, after int, skipLocked bool) string {
	return "SELECT " + columns + " FROM (" + s.pick(after, skipLocked) + ") AS pick"
}

// onRows returns the command on the rows at some TIDs that still match. For IS TRUE see direct.
func (s *statements) onRows(tids string) string {
	partition := ""
	if s.root.relation != "" { // the TIDs belong to this partition
		partition = fmt.Sprintf("r.tableoid = %d AND ", s.root.partition)
	}
	return fmt.Sprintf(
		"%s WHERE %sr.ctid = ANY (ARRAY(%s)) AND (%s) IS TRUE",
		s.sweep.command(s.root.relation), partition, tids, s.sweep.Where,
	)
}

// pickAndChange picks rows, deletes or updates the ones that still match, deletes their paired rows or runs the
// companion statement, counts all three, and returns the last TID that it picked. The number of rows picked, rather
// than changed, shows whether the window may have more: the application may have changed one in between. The
// parameters of the limit and the window are numbered from after+1 on.
func (s *statements) pickAndChange(c *Companion, after int, skipLocked bool) string {
	id, free, tids, paired, returning := "0", "", "SELECT place FROM pick", "SELECT 1 WHERE false", ""
	if t := s.sweep.Paired; t != nil {
		id = "r." + t.ID
		paired = fmt.Sprintf(
			"DELETE FROM %[1]s AS t USING gone WHERE t.%[2]s = gone.id AND t.%[2]s <> 0 RETURNING 1", t.Relation, t.Key,
		)
		if skipLocked { // a row whose paired row is locked is retained with it
			free = fmt.Sprintf(
				" free AS MATERIALIZED (SELECT t.%[2]s AS id FROM %[1]s AS t WHERE t.%[2]s = ANY (ARRAY(SELECT id "+
					"FROM pick)) FOR UPDATE SKIP LOCKED),",
				t.Relation, t.Key,
			)
			tids += fmt.Sprintf(
				" AS p WHERE p.id IN (SELECT id FROM free) OR NOT EXISTS (SELECT FROM %s AS t WHERE t.%s = p.id)",
				t.Relation, t.Key,
			)
		}
	}
	if c != nil {
		returning, paired = ", "+c.Returning, c.SQL+" RETURNING 1"
	}
	return fmt.Sprintf(`WITH pick AS MATERIALIZED (%s),%s
gone AS (%s RETURNING %s AS id%s),
paired AS (%s)
SELECT (SELECT count(*) FROM pick), (SELECT count(*) FROM gone), (SELECT count(*) FROM paired),
  (SELECT max(place) FROM pick)`, s.pick(after, skipLocked), free, s.onRows(tids), id, returning, paired)
}
