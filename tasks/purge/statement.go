package purge

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// afterSQL returns, after the statements of a batch, the table's filenode, which their lock keeps from changing, and
// how long they took: without round trips, the account and the COMMIT, which take as long for few rows.
const afterSQL = "SELECT pg_relation_filenode($1::text::regclass), clock_timestamp() - now()"

// verb is the statement on the rows up to its WHERE.
func (sw *sweep) verb() string {
	if sw.Set == nil {
		return "DELETE FROM ONLY " + sw.Relation + " AS r"
	}
	var set []string
	for _, a := range sw.Set {
		set = append(set, a.Column+" = "+a.Value)
	}
	return "UPDATE " + cmp.Or(sw.root, "ONLY "+sw.Relation) + " AS r SET " + strings.Join(set, ", ")
}

// directSQL is the plain statement on a window. IS TRUE keeps the planner from using an index on the condition, since
// the window is what bounds the work.
func (w *worker) directSQL() string {
	return fmt.Sprintf("%s WHERE %s AND (%s) IS TRUE", w.verb(), w.window(len(w.Args)+len(w.SetArgs)), w.Where)
}

// picking selects up to limit rows of the window: their TIDs, the ids that they share with paired rows, and their keys.
// The parameters of the limit and the window are numbered from after+1 on.
func (w *worker) picking(after int) string {
	id, name, lock := "0", "NULL", ""
	if w.passesOver() {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	if w.Paired != nil {
		id = "r." + w.Paired.ID
	}
	if w.Key != "" {
		name = "r." + pgx.Identifier{w.Key}.Sanitize()
	}
	return fmt.Sprintf(
		"SELECT r.ctid AS place, %s AS id, %s::text AS name FROM ONLY %s AS r WHERE %s AND (%s) IS TRUE LIMIT $%d%s",
		id,
		name,
		w.Relation,
		w.window(after+1),
		w.Where,
		after+1,
		lock,
	)
}

// chosen is the command on those of the rows at some TIDs that still match. For IS TRUE see directSQL.
func (w *worker) chosen(tids string) string {
	itself := ""
	if w.root != "" { // the TIDs are those of this partition
		itself = fmt.Sprintf("r.tableoid = %d AND ", w.oid)
	}
	return fmt.Sprintf("%s WHERE %sr.ctid = ANY (ARRAY(%s)) AND (%s) IS TRUE", w.verb(), itself, tids, w.Where)
}

// pickSQL picks rows, deletes or updates those that still match, deletes their paired rows, counts all three, and
// returns the last TID that it picked. The rows picked, not those gone, say whether the window may hold more: one that
// the application changed in between stays. The parameters of the limit and the window are numbered from after+1 on.
func (w *worker) pickSQL(also *Companion, after int) string {
	id, free, chosen, paired, returning := "0", "", "SELECT place FROM pick", "SELECT 1 WHERE false", ""
	if t := w.Paired; t != nil {
		id = "r." + t.ID
		paired = fmt.Sprintf(
			"DELETE FROM %[1]s AS t USING gone WHERE t.%[2]s = gone.id AND t.%[2]s <> 0 RETURNING 1",
			t.Relation,
			t.Key,
		)
		if w.passesOver() { // a row whose paired row is locked stays with it
			free = fmt.Sprintf(
				" free AS MATERIALIZED (SELECT t.%[2]s AS id FROM %[1]s AS t WHERE t.%[2]s = ANY (ARRAY(SELECT id "+
					"FROM pick)) FOR UPDATE SKIP LOCKED),",
				t.Relation,
				t.Key,
			)
			chosen += fmt.Sprintf(
				" AS p WHERE p.id IN (SELECT id FROM free) OR NOT EXISTS (SELECT FROM %s AS t WHERE t.%s = p.id)",
				t.Relation,
				t.Key,
			)
		}
	}
	if also != nil {
		returning, paired = ", "+also.Returning, also.SQL+" RETURNING 1"
	}
	return fmt.Sprintf(`WITH pick AS MATERIALIZED (%s),%s
gone AS (%s RETURNING %s AS id%s),
paired AS (%s)
SELECT (SELECT count(*) FROM pick), (SELECT count(*) FROM gone), (SELECT count(*) FROM paired),
  (SELECT max(place) FROM pick)`, w.picking(after), free, w.chosen(chosen), id, returning, paired)
}
