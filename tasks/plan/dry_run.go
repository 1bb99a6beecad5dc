package plan

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// afterPredecessors returns what to read a table from. In a dry run that is a subquery that shows the table as the
// predecessors would have left it.
func (c *compiler) afterPredecessors(t *campaign.Table) sqlexpr.Expr {
	var kept []sqlexpr.Expr
	changed := map[string]sqlexpr.Expr{} // the new values, by column
	for _, task := range c.env.Predecessors {
		switch set, sums := task.ParentSet, task.RollUp; {
		case sums != nil && c.env.Catalog.Table(sums.Table) == t && t.Has(sums.Date, sums.Total) && t.Has(sums.By...):
			return c.rolledUp(task, t)
		case set != nil && c.env.Catalog.Table(set.Parent) == t && t.Has(set.Key):
			ids := sqlexpr.In("v."+set.Key, sqlexpr.Arg(DryRunSet(task.Name), "bigint[]"))
			for _, step := range task.Steps {
				switch {
				case !step.OfParents:
				case step.Update == nil:
					kept = append(kept, sqlexpr.Format("(%s) IS NOT TRUE", ids))
				default:
					c.addUpdates(changed, t, step, ids)
				}
			}
		}
	}
	if kept == nil && len(changed) == 0 {
		return sqlexpr.SQL(t.Quoted())
	}
	var columns []sqlexpr.Expr
	for _, column := range t.Columns() {
		name := pgx.Identifier{column}.Sanitize()
		shown := sqlexpr.SQL("v." + name)
		if value, ok := changed[column]; ok {
			shown = sqlexpr.Format("%s AS %s", value, name)
		}
		columns = append(columns, shown)
	}
	from := sqlexpr.Format("SELECT %s FROM %s AS v", sqlexpr.Join(", ", columns...), t.Quoted())
	return sqlexpr.Format("(%s)", sqlexpr.Join(" WHERE ", from, sqlexpr.Join(" AND ", kept...)))
}

// addUpdates adds the values that a step would assign to rows with the given ids. Dates are left out: no rule reads the
// dates of another row.
func (c *compiler) addUpdates(changed map[string]sqlexpr.Expr, t *campaign.Table, step Step, ids sqlexpr.Expr) {
	rules := c.anyRuleOf(step.Rules, row{"v", t})
	if rules.IsZero() {
		return
	}
	for _, a := range step.Update {
		if n, ok := a.Value.(Number); ok && t.Has(a.Column) {
			column := strings.ToLower(a.Column)
			before, again := changed[column]
			if !again {
				before = sqlexpr.SQL("v." + column)
			}
			changed[column] = sqlexpr.Format("CASE WHEN (%s) AND %s THEN %d ELSE %s END", ids, rules, n, before)
		}
	}
}

// rolledUp returns a subquery that shows a table as a task would roll it up. It has only the columns that identify the
// sums, which are all that rules read.
func (c *compiler) rolledUp(task Task, t *campaign.Table) sqlexpr.Expr {
	s := task.RollUp
	by := strings.Join(s.By, ", ")
	period := sqlexpr.Format(
		"(v.%[1]s >= %[2]s AND v.%[1]s < %[3]s%[4]s)", s.Date, sqlexpr.Arg(RolledUpFrom(task.Name), "timestamptz"),
		sqlexpr.Arg(c.env.Now, "timestamptz"), excludeZeroRecord("v", t),
	)
	return sqlexpr.Format(
		"(SELECT %[1]s FROM %[2]s AS v WHERE %[3]s IS NOT TRUE UNION ALL SELECT %[1]s FROM %[2]s AS v WHERE %[3]s "+
			"GROUP BY %[1]s HAVING sum(%[4]s) >= %[5]d)",
		by, t.Quoted(), period, s.Total, s.Least,
	)
}
