package purge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Deleted rows may go to the trash: tables into which the statement that deletes rows also writes them, so that no row
// is in both places or in none. Rows that foreign keys delete with them are read by the same statement, before they
// go. Another session may insert one of those after the statement has begun; the counters of the batch then differ
// from what was read, and the batch is rolled back.

// Trash is where the deleted rows of a sweep go.
type Trash struct {
	Rows TrashTable
	// Paired takes the paired rows; nil without a paired table.
	Paired *TrashTable
	// Cascaded take the rows that foreign keys delete. The index of each is that of its table in the sweep's Cascade;
	// the first, of the swept table, is not used.
	Cascaded []TrashTable
	// Move moves a partition to the trash instead of dropping it, in the transaction that counted its rows.
	Move func(ctx context.Context, tx pgx.Tx, rows int64) error
}

// TrashTable is a table of the trash for rows of one relation.
type TrashTable struct {
	Entry   int64 // the caller's id
	Table   string
	Columns []TrashColumn
	// Relation is where the rows come from, and Facts the result of ColumnsSQL for it. A batch fails with a ChangedError
	// if the relation has other columns by now.
	Relation, Facts string
}

// TrashColumn is a column of a relation and of its table in the trash. Kept is how its value is kept, as a format of
// SQL such as %[1]s::int; empty if it is kept as it is.
type TrashColumn struct{ Name, Kept string }

// Trashed is how many rows a batch moved to a table of the trash.
type Trashed struct{ Entry, Rows int64 }

// ErrNotKept means that foreign keys or triggers deleted rows that are not in the trash.
var ErrNotKept = fmt.Errorf("the trash would lack rows that are deleted with these: %w", ErrTookMore)

// each returns SQL for each column, separated by commas.
func (t TrashTable) each(sql func(i int, c TrashColumn) string) string {
	var all []string
	for i, c := range t.Columns {
		all = append(all, sql(i, c))
	}
	return strings.Join(all, ", ")
}

func (t TrashTable) names() string {
	return t.each(func(_ int, c TrashColumn) string { return c.Name })
}

// values selects the columns of a row, given its alias, as c0, c1 and so on, so that they do not clash with other
// columns of the WITH queries.
func (t TrashTable) values(row string) string {
	return t.each(func(i int, c TrashColumn) string { return fmt.Sprintf("%s.%s AS c%d", row, c.Name, i) })
}

// take inserts the rows of a WITH query, which has their values.
func (t TrashTable) take(from string) string {
	kept := t.each(func(i int, c TrashColumn) string { return c.kept(fmt.Sprintf("%s.c%d", from, i)) })
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s", t.Table, t.names(), kept, from)
}

// keyed selects columns from a WITH query that has the values, under their names.
func (t TrashTable) keyed(from string, columns []string) string {
	var all []string
	for i, c := range t.Columns {
		if slices.Contains(columns, c.Name) {
			all = append(all, fmt.Sprintf("c%d AS %s", i, c.Name))
		}
	}
	return fmt.Sprintf("(SELECT %s FROM %s)", strings.Join(all, ", "), from)
}

func (c TrashColumn) kept(value string) string {
	if c.Kept == "" {
		return value
	}
	return fmt.Sprintf(c.Kept, value)
}

// takeDeleted returns a DELETE that moves its rows, for rows without others that go with them.
func (t *Trash) takeDeleted(deletion sqlexpr.Expr) sqlexpr.Expr {
	kept := t.Rows.each(func(_ int, c TrashColumn) string { return c.kept("r." + c.Name) })
	return sqlexpr.Format("WITH gone AS (%s RETURNING %s) INSERT INTO %s (%s) SELECT * FROM gone", deletion, kept,
		t.Rows.Table, t.Rows.names())
}

// follows reports whether the statement has to read rows of other tables.
func (t *Trash) follows() bool { return t != nil && len(t.Cascaded) > 0 }

// taking returns WITH queries that move the rows of gone and paired to the trash, with all rows that foreign keys will
// delete; and an array with the numbers of rows that the keys will delete, by table, without the first one.
func (s *Sweep) taking() (queries, kept string) {
	all := []string{"took AS (" + s.Trash.Rows.take("gone") + ")"}
	if s.Trash.Paired != nil {
		all = append(all, "took_paired AS ("+s.Trash.Paired.take("paired")+")")
	}
	if !s.Trash.follows() {
		return ",\n" + strings.Join(all, ",\n"), "'{}'::bigint[]"
	}
	counts := make([]string, len(s.Cascade.Tables)-1)
	for i := range counts {
		counts[i] = "0"
	}
	rowsOf := func(table int) (name string, rows TrashTable) {
		if table == 0 {
			return "gone", s.Trash.Rows
		}
		return fmt.Sprintf("rows_%d", table), s.Trash.Cascaded[table]
	}
	for _, child := range s.Below() {
		var found []string
		for _, k := range s.Cascade.Keys {
			if k.Child == child && k.deletes() {
				name, parents := rowsOf(k.Parent)
				found = append(found, fmt.Sprintf("FROM %s AS p JOIN %s AS c ON %s", parents.keyed(name, k.Keys),
					s.Cascade.Tables[child], k.on("p", "c")))
			}
		}
		name, trash := rowsOf(child)
		rows := fmt.Sprintf("SELECT %s ", trash.values("c"))
		if len(found) == 1 {
			rows += found[0]
		} else { // several keys may lead to the same row
			rows += fmt.Sprintf("FROM (SELECT c.tableoid AS rel, c.ctid AS place %s) AS f JOIN %s AS c "+
				"ON c.tableoid = f.rel AND c.ctid = f.place",
				strings.Join(found, " UNION SELECT c.tableoid, c.ctid "), s.Cascade.Tables[child])
		}
		// Locked, so that the deleted version is the one that was read.
		all = append(all, fmt.Sprintf("%s AS MATERIALIZED (%s FOR UPDATE OF c)", name, rows),
			fmt.Sprintf("took_%d AS (%s)", child, trash.take(name)))
		counts[child-1] = fmt.Sprintf("(SELECT count(*) FROM %s)", name)
	}
	return ",\n" + strings.Join(all, ",\n"), "ARRAY[" + strings.Join(counts, ", ") + "]"
}

// orders reports whether the key says which of two rows has to come back first. A key of the table to itself that
// deletes nothing does not: such rows come back to the same table, as far as possible at once.
func (k ForeignKey) orders() bool { return !k.Clears && (!k.Refuses || k.Parent != k.Child) }

// Below returns the tables whose rows foreign keys delete with those of the sweep, each after the tables to which these
// keys refer; none if keys that delete lead from a table back to itself.
func (s *Sweep) Below() (tables []int) {
	c := s.Cascade
	if c == nil || s.Childless || !c.isTree(ForeignKey.orders) {
		return nil
	}
	var visit func(table int)
	visit = func(table int) {
		for _, k := range c.Keys {
			if k.Parent == table && k.deletes() && !slices.Contains(tables, k.Child) {
				visit(k.Child)
			}
		}
		if table != 0 {
			tables = append(tables, table)
		}
	}
	visit(0)
	slices.Reverse(tables)
	return tables
}

// NotUndoable returns why deleting the rows of a sweep, with all that foreign keys then do to other rows, cannot be
// undone; empty if it can.
func (s *Sweep) NotUndoable() string {
	if s.NoTIDs {
		return "its rows, or rows that its rule reads, are on another server"
	}
	if s.Cascade == nil {
		return ""
	}
	c := *s.Cascade
	if s.Childless { // only keys of the table to itself can do something
		c.Keys = slices.DeleteFunc(slices.Clone(c.Keys), func(k ForeignKey) bool { return k.Parent != k.Child })
	}
	if !c.isTree(ForeignKey.orders) {
		return "foreign keys lead from its rows back to the same table"
	}
	if i := slices.IndexFunc(c.Keys, func(k ForeignKey) bool { return k.Clears }); i >= 0 {
		return fmt.Sprintf("a foreign key changes rows of %s that refer to its rows", c.Tables[c.Keys[i].Child])
	}
	return ""
}

// checkKept fails with ErrNotKept if foreign keys or triggers deleted other rows than the statement moved to the trash.
func (s *Sweep) checkKept(n *batchResult) error {
	deleted := make([]int64, len(n.kept))
	for _, a := range n.affected {
		i := slices.Index(s.Cascade.Tables, a.Root)
		switch {
		case a.Deleted == 0:
		case i < 1 || i > len(deleted):
			return ErrNotKept
		default:
			deleted[i-1] += a.Deleted
		}
	}
	if !slices.Equal(deleted, n.kept) {
		return ErrNotKept
	}
	return nil
}

// trashed returns what a batch moved to the trash.
func (s *Sweep) trashed(n batchResult) (trashed []Trashed) {
	if s.Trash == nil || n.changed == 0 {
		return nil
	}
	add := func(t TrashTable, rows int64) {
		if rows > 0 {
			trashed = append(trashed, Trashed{t.Entry, rows})
		}
	}
	add(s.Trash.Rows, n.changed)
	if s.Trash.Paired != nil {
		add(*s.Trash.Paired, n.paired)
	}
	for i, rows := range n.kept {
		add(s.Trash.Cascaded[i+1], rows)
	}
	return trashed
}

// ColumnsSQL selects the columns of a relation, given by its quoted name, as text.
const ColumnsSQL = `SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', '
    ORDER BY a.attnum)
  FROM pg_attribute a WHERE a.attrelid = to_regclass(name) AND a.attnum > 0 AND NOT a.attisdropped`

// queueColumns queues a query that fails with a ChangedError if a relation no longer has the columns for which its
// table in the trash was made. The locks of the batch keep that from happening later.
func (t *Trash) queueColumns(b *pgx.Batch) {
	if t == nil {
		return
	}
	tables := append([]TrashTable{t.Rows}, t.Cascaded...)
	if t.Paired != nil {
		tables = append(tables, *t.Paired)
	}
	var relations, facts []string
	for _, t := range tables {
		if t.Relation != "" {
			relations, facts = append(relations, t.Relation), append(facts, t.Facts)
		}
	}
	const changed = "SELECT COALESCE(string_agg(name, ', '), '') FROM unnest($1::text[], $2::text[]) AS r (name, known) " +
		"WHERE known IS DISTINCT FROM (" + ColumnsSQL + ")"
	b.Queue(changed, relations, facts).QueryRow(func(row pgx.Row) error {
		var changed string
		if err := row.Scan(&changed); err != nil || changed == "" {
			return err
		}
		return &ChangedError{changed}
	})
}
