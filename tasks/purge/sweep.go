package purge

import (
	"cmp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Sweep struct {
	Unit string
	Name string
	// Relation is the table's quoted name. Its partitions and children are not visited: each needs a separate sweep.
	Relation string
	// Root is the quoted name of the partitioned table, or of the table itself.
	Root string
	// Where is a condition on the table as r.
	Where sqlexpr.Expr
	// Newest describes Where if it retains the newest rows of each group and an index finds these; otherwise nil.
	Newest *Newest
	// ReadsOthers is set if Where also reads other tables.
	ReadsOthers bool
	// Removed is Where as one query for the whole table, before that is removed as a partition; empty if it is the same.
	Removed sqlexpr.Expr
	// Set has the new values of updated rows; if it is nil, rows are deleted. The values may use the same names as
	// Where, which must no longer match an updated row.
	Set []Assignment
	// Limit is the most rows that one statement may touch.
	Limit int
	// NoTIDs is set if TIDs cannot be used: rows of the table, or of a table that the statements read, are on another
	// server, or the table is not stored in a heap.
	NoTIDs bool
	// ByKey is the integer column by which such a sweep finds its rows. If it is empty, the sweep fails.
	ByKey string
	// Keys are the only values that rows have in ByKey; nil if they may have any.
	Keys []int64
	// Older is set if Where is this condition alone, apart from the zero record and the conditions that Without or And has
	// added.
	Older *Older
	// Narrowed is set if Without or And has added conditions.
	Narrowed bool
	// Partition is set for a partition of the rule's table, and Partitions says what to do with it if all of its rows are
	// older.
	Partition  bool
	Partitions Partitions
	// PartitionOnHold is set if all rows of the table are on hold. The partition then stays, even if it is empty.
	PartitionOnHold bool
	// Key has the columns that identify a row in messages; if there are none, the row's TID does.
	Key []string
	// Companion is a part of the batch's statement; it may be nil.
	Companion *Companion
	// Paired is a table whose rows are deleted in the same statement as the rows with the same id; it may be nil.
	Paired *Paired
	// Facts are those of the relations that the statements change or read. A batch is rolled back if they have changed.
	Facts []Fact
	// Refused is the condition that a row cannot be deleted because rows of other tables refer to it by foreign keys;
	// empty if no key can refuse. Counts leave these rows out. A sweep tries the first of them, since a trigger may delete
	// the referring rows.
	Refused sqlexpr.Expr
	// Childless is set if rows are deleted only while no row of another table refers to them.
	Childless bool
	// Cascade has the foreign keys that delete or change rows together with those of the sweep; nil if there are none.
	Cascade *Cascade
	// Trash is where deleted rows go; nil to keep none.
	Trash *Trash
}

// Fact has the result of campaign.FactsSQL for a quoted relation at the time when the sweep was compiled.
type Fact struct{ Relation, Facts string }

// Assignment sets a column of an updated row. Column is the name as in the catalog, unquoted.
type Assignment struct {
	Column string
	Value  sqlexpr.Expr
}

// Companion is a data-modifying statement. It reads the deleted or updated rows from gone, whose columns are those
// of Returning.
type Companion struct {
	Returning string
	SQL       sqlexpr.Expr
}

// Paired is a table that shares its ids, one to one, with the swept table.
type Paired struct {
	// Relation is the quoted name.
	Relation string
	// Key is the id column of this table, and ID that of the swept table.
	Key, ID string
	// Before are earlier sweeps; their paired rows are not counted again.
	Before []Sweep
}

// Result is what a sweep retained, and how it ended.
type Result struct {
	Retained
	// FirstError is the error of the first row that failed; nil if none did.
	FirstError error
	// TableLocked is set if the sweep ended early because of a lock that could not be skipped, for example one on the
	// whole table.
	TableLocked bool
	// GaveUp is set if the sweep ended early because more than MaxFailedRows rows failed.
	GaveUp bool
	// Dropped is set if the table was a partition that was dropped with all of its rows, Detached if it was detached.
	Dropped, Detached bool
	// NotDetached is why a partition that ends before the cutoff was not detached; empty if it was, or need not be.
	NotDetached string
	// Affected counts the rows that foreign keys deleted or changed with rows of the sweep, by table.
	Affected []Affected
}

func (r *Result) addAffected(more []Affected) {
	for _, a := range more {
		i := slices.IndexFunc(r.Affected, func(b Affected) bool { return b.Root == a.Root })
		if i < 0 {
			i, r.Affected = len(r.Affected), append(r.Affected, Affected{Relation: a.Root, Root: a.Root})
		}
		r.Affected[i].Deleted += a.Deleted
		r.Affected[i].Updated += a.Updated
	}
}

// OtherServerError returns why rows on another server cannot be deleted or updated; nil if they can.
func (s *Sweep) OtherServerError() error {
	switch {
	case s.NoTIDs && s.ByKey == "":
		return &OtherServerError{Reason: "the table has no integer key by which to find its rows"}
	case s.NoTIDs && s.Companion != nil:
		return &OtherServerError{Reason: "another statement must accompany each of its rows"}
	}
	return nil
}

// SQL returns the statement for the whole table; each batch runs it on a part.
func (s *Sweep) SQL() sqlexpr.Expr { return sqlexpr.Format("%s WHERE %s", s.command(""), s.Where) }

// Without leaves out rows that match one of the conditions.
func (s Sweep) Without(conditions ...sqlexpr.Expr) Sweep {
	const format = "(%s)%s"
	others := unless(conditions)
	s.Where, s.Newest, s.Narrowed = sqlexpr.Format(format, s.Where, others), s.Newest.and(format, others), true
	return s
}

// And leaves out rows that do not match the condition.
func (s Sweep) And(c sqlexpr.Expr) Sweep {
	const format = "(%s) AND (%s) IS TRUE"
	s.Where, s.Newest, s.Narrowed = sqlexpr.Format(format, s.Where, c), s.Newest.and(format, c), true
	return s
}

func unless(conditions []sqlexpr.Expr) (sql sqlexpr.Expr) {
	for _, c := range conditions {
		sql = sqlexpr.Format("%s AND (%s) IS NOT TRUE", sql, c)
	}
	return sql
}

// command returns the statement up to its WHERE. root is the partitioned table if updated rows may have to move to
// another partition.
func (s *Sweep) command(root string) sqlexpr.Expr {
	if s.Set == nil {
		return sqlexpr.SQL("DELETE FROM ONLY " + s.Relation + " AS r")
	}
	var set []sqlexpr.Expr
	for _, a := range s.Set {
		set = append(set, sqlexpr.Format("%s = %s", pgx.Identifier{a.Column}.Sanitize(), a.Value))
	}
	return sqlexpr.Format("UPDATE %s AS r SET %s", cmp.Or(root, "ONLY "+s.Relation), sqlexpr.Join(", ", set...))
}

// matchSQL returns the FROM and the WHERE of a query for the rows. It names the possible keys of the rows, so that
// an index on these can be used.
func (s *Sweep) matchSQL() sqlexpr.Expr {
	among := sqlexpr.Expr{}
	if s.Keys != nil {
		among = sqlexpr.Format("r.%s = ANY (%s) AND ", s.ByKey, sqlexpr.Arg(s.Keys, "bigint[]"))
	}
	return sqlexpr.Format("ONLY %s AS r WHERE %s%s", s.Relation, among, s.Where)
}

// maxRows is the most rows that a statement may pick. limit is the maximum in the settings; 0 means none.
func (s *Sweep) maxRows(limit int) int {
	rows := s.Limit
	if limit > 0 {
		rows = min(rows, limit)
	}
	if s.Paired != nil { // the statement may delete a paired row with each row
		rows = max(rows/2, 1)
	}
	return rows
}

func (s *Sweep) delta(n batchResult) Delta {
	d := Delta{Begun: n.begun}
	if n.changed == 0 {
		return d
	}
	d.Statements, d.Largest = n.statements, n.largest
	if s.Set != nil {
		d.Updated, d.Space = n.changed, []Space{{Relation: s.Relation, Root: s.Root, Updated: n.changed}}
		return d
	}
	d.Deleted, d.Space = n.changed, []Space{{Relation: s.Relation, Root: s.Root, Rows: n.changed}}
	switch {
	case s.Companion != nil:
		d.Recorded = n.paired
	case n.paired > 0:
		d.Deleted += n.paired
		d.Space = append(d.Space, Space{Relation: s.Paired.Relation, Root: s.Paired.Relation, Rows: n.paired})
	}
	d.addAffected(n.affected)
	d.Trashed = s.trashed(n)
	return d
}
