package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// afterPredecessors returns what to read a table from. In a dry run that is a subquery that shows the table as the
// predecessors would have left it.
func (c *compiler) afterPredecessors(t *campaign.Table) string {
	var kept []string
	changed := map[string]string{} // the SQL of new values, by column
	for _, task := range c.env.Predecessors {
		switch set, sums := task.ParentSet, task.RollUp; {
		case sums != nil && c.env.Catalog.Table(sums.Table) == t && t.Has(sums.Date, sums.Total) && t.Has(sums.By...):
			return c.rolledUp(task, t)
		case set != nil && c.env.Catalog.Table(set.Parent) == t && t.Has(set.Key):
			ids := "(" + purge.In("v."+set.Key, c.bind(DryRunSet(task.Name), "bigint[]")) + ")"
			for _, step := range task.Steps {
				switch {
				case !step.OfParents:
				case step.Update == nil:
					kept = append(kept, ids+" IS NOT TRUE")
				default:
					c.addUpdates(changed, t, step, ids)
				}
			}
		}
	}
	if kept == nil && len(changed) == 0 {
		return t.Quoted()
	}
	var columns []string
	for _, column := range t.Columns() {
		name := pgx.Identifier{column}.Sanitize()
		if value, ok := changed[column]; ok {
			name = value + " AS " + name
		} else {
			name = "v." + name
		}
		columns = append(columns, name)
	}
	sql := "(SELECT " + strings.Join(columns, ", ") + " FROM " + t.Quoted() + " AS v"
	if kept != nil {
		sql += " WHERE " + strings.Join(kept, " AND ")
	}
	return sql + ")"
}

// addUpdates adds the values that a step would assign to rows with the given ids. Dates are left out: no rule reads the
// dates of another row.
func (c *compiler) addUpdates(changed map[string]string, t *campaign.Table, step Step, ids string) {
	rules := c.anyRuleOf(step.Rules, row{"v", t})
	if rules == "" {
		return
	}
	for _, a := range step.Update {
		if n, ok := a.Value.(Number); ok && t.Has(a.Column) {
			column := strings.ToLower(a.Column)
			before := cmp.Or(changed[column], "v."+column)
			changed[column] = fmt.Sprintf("CASE WHEN %s AND %s THEN %d ELSE %s END", ids, rules, n, before)
		}
	}
}

// rolledUp returns a subquery that shows a table as a task would roll it up. It has only the columns that identify the
// sums, which are all that rules read.
func (c *compiler) rolledUp(task Task, t *campaign.Table) string {
	s := task.RollUp
	by := strings.Join(s.By, ", ")
	period := fmt.Sprintf(
		"(v.%[1]s >= %[2]s AND v.%[1]s < %[3]s%[4]s)", s.Date, c.bind(RolledUpFrom(task.Name), "timestamptz"),
		c.bind(c.env.Now, "timestamptz"), excludeZeroRecord("v", t),
	)
	return fmt.Sprintf(
		"(SELECT %[1]s FROM %[2]s AS v WHERE %[3]s IS NOT TRUE UNION ALL SELECT %[1]s FROM %[2]s AS v WHERE %[3]s "+
			"GROUP BY %[1]s HAVING sum(%[4]s) >= %[5]d)",
		by, t.Quoted(), period, s.Total, s.Least,
	)
}
