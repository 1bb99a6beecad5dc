package purge

import (
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Newest describes a sweep that keeps the newest rows of each group, so that its rows can be found group by group: the
// last row that a group keeps is looked up once for all of its rows. It says the same as the sweep's Where.
type Newest struct {
	// Per are the quoted columns of the groups, and OrderBy is the quoted column whose greatest values are the newest.
	Per     []string
	OrderBy string
	// Last is the value in OrderBy of the last row that a group keeps; NULL if the group keeps all rows. It reads the
	// group's columns, which GroupColumn names.
	Last sqlexpr.Expr
	// InGroup are conditions, for each combination of NULLs in the columns, that the row r is in the group.
	InGroup []string
	// Rest is the other conditions of the rule, over the table as r.
	Rest sqlexpr.Expr
}

// GroupColumn returns the SQL of the column of a group for a column of Per.
func GroupColumn(i int) string { return fmt.Sprintf("g.k%d", i+1) }

// and returns the description of a sweep with one more condition, written by a format as in Sweep.
func (n *Newest) and(format string, condition sqlexpr.Expr) *Newest {
	if n == nil {
		return nil
	}
	restricted := *n
	restricted.Rest = sqlexpr.Format(format, n.Rest, condition)
	return &restricted
}

// groups returns a subquery g with a row for each group of some rows: its columns, more columns, and last. The rows are
// given by a FROM and WHERE. OFFSET keeps PostgreSQL from evaluating Last more than once for a group.
func (n *Newest) groups(more string, rows sqlexpr.Expr) sqlexpr.Expr {
	var columns, numbers []string
	for i, column := range n.Per {
		_, name, _ := strings.Cut(GroupColumn(i), ".")
		columns, numbers = append(columns, "r."+column+" AS "+name), append(numbers, fmt.Sprint(i+1))
	}
	return sqlexpr.Format(
		"(SELECT g.*, %s AS last FROM (SELECT %s%s FROM %s GROUP BY %s) AS g OFFSET 0) AS g",
		n.Last, strings.Join(columns, ", "), more, rows, strings.Join(numbers, ", "),
	)
}

// obsolete returns the FROM of a query for the obsolete rows o of a relation, with columns over r. Rows of a group
// follow each other.
func (n *Newest) obsolete(relation, columns string) sqlexpr.Expr {
	var each []sqlexpr.Expr
	for _, in := range n.InGroup {
		each = append(each, sqlexpr.Format(
			"SELECT %s FROM ONLY %s AS r WHERE %s AND r.%s < g.last AND (%s)", columns, relation, in, n.OrderBy, n.Rest,
		))
	}
	groups := n.groups("", sqlexpr.SQL("ONLY "+relation+" AS r"))
	return sqlexpr.Format("%s, LATERAL (%s OFFSET 0) AS o", groups, sqlexpr.Join(" UNION ALL ", each...))
}

// among returns the query for the TIDs of the rows, among some rows, that are not the newest of their groups. The rows
// are given by a FROM and WHERE.
func (n *Newest) among(rows sqlexpr.Expr) sqlexpr.Expr {
	return sqlexpr.Format(
		"SELECT o.place FROM %s, unnest(g.places, g.dates) AS o (place, date) WHERE o.date < g.last",
		n.groups(fmt.Sprintf(", array_agg(r.ctid) AS places, array_agg(r.%s) AS dates", n.OrderBy), rows),
	)
}
