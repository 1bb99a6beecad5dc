package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Newest is true for a row if there are at least Count newer rows in its group. Rows with NULL in OrderBy have no
// order: they are retained and not counted.
type Newest struct {
	noOption
	// Per are the columns by which rows are grouped; NULLs are equal. If there are none, all rows are one group.
	Per []string
	// OrderBy is the column whose greatest values are the newest.
	OrderBy string
	Count   int
}

func (p Newest) applies(c *compiler, r row) bool { return c.requireColumns(r, p.columns()...) }

// maxNullable is the most columns of a group that may have NULL for an index to be used: each combination of NULLs
// needs another condition.
const maxNullable = 3

type groupColumn struct {
	stored, name, equal string
	nullable            bool
}

func (p Newest) groupColumns(t *campaign.Table) (columns []groupColumn) {
	for _, column := range p.Per {
		g := groupColumn{stored: t.Stored(column)}
		detail, ok := t.Column(g.stored)
		g.equal = detail.Operator("=")
		g.name, g.nullable = pgx.Identifier{g.stored}.Sanitize(), !ok || detail.HasNulls
		if !slices.Contains(columns, g) {
			columns = append(columns, g)
		}
	}
	return columns
}

// served reports whether an index finds the last row that a group retains. It is also true without groups, since
// the rows of the table are then ordered only once per statement.
func (p Newest) served(t *campaign.Table, per []groupColumn) bool {
	if len(per) == 0 || t.Location != "" {
		return true
	}
	var stored []string
	nullable := 0
	for _, g := range per {
		stored = append(stored, g.stored)
		if g.nullable {
			nullable++
		}
	}
	return t.HasIndex(stored, t.Stored(p.OrderBy)) && nullable <= maxNullable
}

// sql compares a row with the last one that its group retains, which an index on Per and OrderBy finds at once.
// Without such an index this would read the table for each row, so all rows are ranked once per statement instead.
func (p Newest) sql(c *compiler, r row) (sqlexpr.Expr, bool) {
	c.recordRead(r.table)
	per := p.groupColumns(r.table)
	if !p.served(r.table, per) {
		return p.ranked(c, r, per), true
	}
	last := p.last(c, r.table, per, func(g groupColumn) string { return r.alias + "." + g.name })
	return sqlexpr.Format("%s %s %s", r.column(p.OrderBy), p.older(r.table), last), true
}

// older returns the operator that compares a value of OrderBy with a newer one.
func (p Newest) older(t *campaign.Table) string {
	column, _ := t.Column(p.OrderBy)
	return column.Operator("<")
}

// last is the value in OrderBy of the last row that a group retains, given the SQL of the group's columns. It is
// NULL if the group retains all rows.
func (p Newest) last(c *compiler, t *campaign.Table, per []groupColumn, of func(groupColumn) string) sqlexpr.Expr {
	orderBy := pgx.Identifier{t.Stored(p.OrderBy)}.Sanitize()
	var cases sqlexpr.Expr
	for _, nulls := range nullCombinations(per) {
		has, in := nulls.conditions(per, "n", of)
		last := sqlexpr.Format(
			"(SELECT n.%[1]s FROM %[2]s AS n WHERE %[3]s ORDER BY n.%[1]s DESC OFFSET %[4]d LIMIT 1)", orderBy,
			c.afterPredecessors(t), strings.Join(append(in, "n."+orderBy+" IS NOT NULL"), " AND "), p.Count-1)
		if has == nil {
			return last // no column has NULL
		}
		cases = sqlexpr.Format("%s WHEN %s THEN %s", cases, strings.Join(has, " AND "), last)
	}
	return sqlexpr.Format("CASE%s END", cases)
}

// combination says for each column of a group whether it is NULL.
type combination []bool

func nullCombinations(per []groupColumn) []combination {
	all := []combination{nil}
	for _, g := range per {
		n := len(all)
		for i := range n {
			if g.nullable {
				all = append(all, append(slices.Clone(all[i]), true))
			}
			all[i] = append(slices.Clone(all[i]), false)
		}
	}
	return all
}

// conditions returns two lists of conditions: in, that a row, given by its alias, is in a group with the combination;
// and has, that the group has it, which is nil if no column may be NULL. NULLs are compared by IS NULL, since IS NOT
// DISTINCT FROM cannot use an index.
func (c combination) conditions(per []groupColumn, alias string, of func(groupColumn) string) (has, in []string) {
	for i, g := range per {
		column := alias + "." + g.name
		switch {
		case c[i]:
			has, in = append(has, of(g)+" IS NULL"), append(in, column+" IS NULL")
			continue
		case g.nullable:
			has = append(has, of(g)+" IS NOT NULL")
		}
		in = append(in, column+" "+g.equal+" "+of(g))
	}
	return has, in
}

// ranked is the condition that a row is not retained, by the ranks of all rows. PostgreSQL hashes the rows that are
// not retained once per statement.
func (p Newest) ranked(c *compiler, r row, per []groupColumn) sqlexpr.Expr {
	var groups []string
	for _, g := range per {
		groups = append(groups, "s."+g.name)
	}
	return sqlexpr.Format(
		"(%[1]s.tableoid, %[1]s.ctid) IN (SELECT n.tableoid, n.ctid FROM (SELECT s.tableoid, s.ctid, rank() OVER "+
			"(PARTITION BY %[2]s ORDER BY s.%[3]s DESC) AS place FROM %[4]s AS s WHERE s.%[3]s IS NOT NULL) AS n "+
			"WHERE n.place > %[5]d)",
		r.alias, strings.Join(groups, ", "), pgx.Identifier{r.table.Stored(p.OrderBy)}.Sanitize(),
		c.afterPredecessors(r.table, "tableoid", "ctid"), p.Count,
	)
}

// newest describes how to find rows group by group. It is nil unless there is a single rule, with one part Newest
// that an index can serve.
func (c *compiler) newest(rules Rules) *purge.Newest {
	if len(rules) != 1 {
		return nil
	}
	isNewest := func(p Part) bool { _, ok := p.(Newest); return ok }
	at := slices.IndexFunc(rules[0], isNewest)
	if at < 0 || slices.ContainsFunc(rules[0][at+1:], isNewest) {
		return nil
	}
	p, t := rules[0][at].(Newest), c.table
	per := p.groupColumns(t)
	if len(per) == 0 || t.Location != "" || !p.served(t, per) {
		return nil
	}
	silent := &compiler{
		env:   c.env,
		plan:  &Plan{Task: c.plan.Task},
		table: t,
	} // compiling the rule has added the notes
	rest, ok := silent.allParts(slices.Delete(slices.Clone(rules[0]), at, at+1), row{"r", t})
	if !ok {
		return nil
	}
	if rest.IsZero() {
		rest = sqlexpr.SQL("true")
	}
	n := &purge.Newest{
		OrderBy: pgx.Identifier{t.Stored(p.OrderBy)}.Sanitize(),
		Older:   p.older(t),
		Rest:    sqlexpr.Format("(%s)%s", rest, excludeZeroRecord("r", t)),
	}
	of := func(g groupColumn) string { return purge.GroupColumn(slices.Index(per, g)) }
	for _, g := range per {
		n.Per = append(n.Per, g.name)
	}
	n.Last = p.last(silent, t, per, of)
	for _, nulls := range nullCombinations(per) {
		has, in := nulls.conditions(per, "r", of)
		n.InGroup = append(n.InGroup, strings.Join(append(has, in...), " AND "))
	}
	return n
}

func (p Newest) describe(Env) string {
	of := "the table"
	if p.Per != nil {
		of = "those with the same " + strings.Join(p.Per, " and ")
	}
	return fmt.Sprintf("is not among the %d newest (%s) of %s", p.Count, p.OrderBy, of)
}

func (p Newest) columns() []string { return append(slices.Clone(p.Per), p.OrderBy) }
