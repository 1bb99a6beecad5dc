package purge

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Newest describes a sweep that retains the newest rows of each group. It has the same meaning as the sweep's
// Where, but lets the rows be found group by group: the last row that a group retains is looked up once for all
// rows of the group.
type Newest struct {
	// Per are the quoted columns by which rows are grouped. OrderBy is the quoted column whose greatest values are the
	// newest.
	Per     []string
	OrderBy string
	// Older is the operator that compares a value of OrderBy with a newer one.
	Older string
	// Last is the value in OrderBy of the last row that a group retains; NULL if the group retains all rows. It reads
	// the group's columns by the names of GroupColumn.
	Last sqlexpr.Expr
	// InGroup has, for each combination of NULLs in the columns, the condition that the row r is in the group.
	InGroup []string
	// Rest are the other conditions of the rule, on the table as r.
	Rest sqlexpr.Expr
}

func GroupColumn(i int) string { return fmt.Sprintf("g.k%d", i+1) }

// and returns a copy with a further condition in Rest. format combines the two, as in Sweep.
func (n *Newest) and(format string, condition sqlexpr.Expr) *Newest {
	if n == nil {
		return nil
	}
	restricted := *n
	restricted.Rest = sqlexpr.Format(format, n.Rest, condition)
	return &restricted
}

// groups returns a subquery g with one row for each group of some rows, which are given as a FROM and a WHERE. It
// has the group's columns, more columns, and last. OFFSET keeps PostgreSQL from evaluating Last more than once for
// a group.
func (n *Newest) groups(more string, rows sqlexpr.Expr) sqlexpr.Expr {
	var columns, numbers []string
	for i, column := range n.Per {
		_, name, _ := strings.Cut(GroupColumn(i), ".")
		columns, numbers = append(columns, "r."+column+" AS "+name), append(numbers, fmt.Sprint(i+1))
	}
	return sqlexpr.Format("(SELECT g.*, %s AS last FROM (SELECT %s%s FROM %s GROUP BY %s) AS g OFFSET 0) AS g", n.Last,
		strings.Join(columns, ", "), more, rows, strings.Join(numbers, ", "))
}

// obsolete returns the FROM of a query for the obsolete rows o, with columns of the table as r. The rows of a group
// follow each other.
func (n *Newest) obsolete(relation, columns string) sqlexpr.Expr {
	var each []sqlexpr.Expr
	for _, in := range n.InGroup {
		each = append(each,
			sqlexpr.Format("SELECT %s FROM ONLY %s AS r WHERE %s AND r.%s %s g.last AND (%s)", columns, relation, in,
				n.OrderBy, n.Older, n.Rest))
	}
	groups := n.groups("", sqlexpr.SQL("ONLY "+relation+" AS r"))
	return sqlexpr.Format("%s, LATERAL (%s OFFSET 0) AS o", groups, sqlexpr.Join(" UNION ALL ", each...))
}

// among returns a query for the TIDs of those rows that are not among the newest of their groups. The rows are
// given as a FROM and a WHERE.
func (n *Newest) among(rows sqlexpr.Expr) sqlexpr.Expr {
	return sqlexpr.Format("SELECT o.place FROM %s, unnest(g.places, g.dates) AS o (place, date) WHERE o.date %s g.last",
		n.groups(fmt.Sprintf(", array_agg(r.ctid) AS places, array_agg(r.%s) AS dates", n.OrderBy), rows), n.Older)
}

// groupAxis visits rows that were found group by group. Its windows check again that the rows are not among the
// newest of their groups. A row that was changed in the meantime does not match, since it has another TID.
type groupAxis struct {
	rowAxis
	newest   *Newest
	relation string
	index    func() map[pgtype.TID]int64 // the position of each row
}

func newGroupAxis(s *Sweep, found []pgtype.TID, maxRows int) groupAxis {
	return groupAxis{rowAxis{found, maxRows}, s.Newest, s.Relation, sync.OnceValue(func() map[pgtype.TID]int64 {
		index := make(map[pgtype.TID]int64, len(found))
		for i, row := range found {
			index[row] = int64(i)
		}
		return index
	})}
}

func (a groupAxis) window(_ uint16, from, to int64) sqlexpr.Expr { return a.among(a.found[from:to]) }

func (a groupAxis) rowWindow(row pgtype.TID) sqlexpr.Expr { return a.among([]pgtype.TID{row}) }

// among is the condition that a row has one of some TIDs and is not among the newest of its group. IS TRUE keeps
// the planner from joining by TID: many versions of PostgreSQL do not compare TIDs again after waiting for a lock.
func (a groupAxis) among(rows []pgtype.TID) sqlexpr.Expr {
	these := amongTIDs(rows)
	obsolete := a.newest.among(sqlexpr.Format("ONLY %s AS r WHERE %s", a.relation, these))
	return sqlexpr.Format("%s AND (r.ctid IN (%s)) IS TRUE", these, obsolete)
}

func (a groupAxis) position(row pgtype.TID) int64 {
	if i, found := a.index()[row]; found {
		return i
	}
	return -1
}

func (a groupAxis) after(row pgtype.TID) (position int64, offset uint16) {
	return a.position(row) + 1, 0
}

// obsoleteTIDs returns the TIDs of obsolete rows, up to a limit. The rows of a group follow each other.
func (t *table) obsoleteTIDs(ctx context.Context, limit int64) (found []pgtype.TID, err error) {
	s := t.sweep
	query := sqlexpr.Format("SELECT o.place FROM %s LIMIT %d", s.Newest.obsolete(s.Relation, "r.ctid AS place"), limit)
	err = t.find(ctx, func(tx pgx.Tx) error {
		found, err = pgx.CollectRows(query.Query(ctx, tx), pgx.RowTo[pgtype.TID])
		return err
	})
	return found, err
}

// groupScan returns how to find the rows group by group. It has no method if the planner would rather find the rows
// one by one: by an index on another condition, or because the table is small.
func (t *table) groupScan(ctx context.Context) (scan Scan, err error) {
	s := t.sweep
	if s.Newest == nil {
		return scan, nil
	}
	byGroup, err := t.explain(ctx, s.Newest.obsolete(s.Relation, "r.ctid"))
	if err != nil {
		return scan, err
	}
	byRow, err := t.explain(ctx, s.matchSQL())
	if err != nil || byRow.Cost < byGroup.Cost {
		return scan, err
	}
	scan = Scan{Method: TableScan}
	if scan.Index, err = t.indexes(ctx, byGroup); scan.Index != "" {
		scan.Method = IndexScan
	}
	return scan, err
}

// byGroup finds the rows group by group, and deletes them in the order in which it finds them. done is false if
// they have to be found in another way.
func (l *localSweep) byGroup(ctx context.Context) (done bool, err error) {
	scan, err := l.table.groupScan(ctx)
	if err != nil || scan.Method == "" {
		return false, err
	}
	l.table.engine.Recorder.Scanning(scan)
	group := *l.table.sweep
	group.Where = group.Newest.Rest
	return l.passes(func(limit int64) (rows int64, err error) {
		found, err := l.table.obsoleteTIDs(ctx, limit+1)
		l.progress.startPass()
		rows = int64(len(found))
		if err != nil || rows == 0 {
			return rows, err
		}
		found = l.notFailed(found[:min(rows, limit)])
		return rows, l.traverse(ctx, &group, newGroupAxis(&group, found, l.maxRows), 0, int64(len(found)), false)
	})
}
