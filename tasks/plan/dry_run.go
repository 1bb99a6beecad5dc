package plan

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// afterPredecessors is what to read a table from. In a dry run the tasks before have changed nothing: what they would have is in the
// query.
func (c *compiler) afterPredecessors(t *campaign.Table) string {
	var gone []string
	changed := map[string]string{} // columns, and what they would hold
	for _, task := range c.Predecessors {
		switch set, sums := task.ParentSet, task.RollUp; {
		case sums != nil && c.Catalog.Table(sums.Table) == t && t.Has(append([]string{
			sums.Date,
			sums.Total,
		}, sums.By...)...):
			return c.rolledUp(task, t)
		case set != nil && c.Catalog.Table(set.Parent) == t && t.Has(set.Key):
			ids := "(" + purge.In("v."+set.Key, c.bind(DryRunSet(task.Name), "bigint[]")) + ")"
			for _, step := range task.Steps {
				switch {
				case step.OfParents && step.Update == nil:
					gone = append(gone, ids+" IS NOT TRUE")
				case step.OfParents:
					c.addUpdates(changed, t, step, ids)
				}
			}
		}
	}
	if gone == nil && len(changed) == 0 {
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
	if gone != nil {
		sql += " WHERE " + strings.Join(gone, " AND ")
	}
	return sql + ")"
}

// addUpdates adds what a step assigns to rows with some ids. Only numbers are told: nobody asks for another row's dates.
func (c *compiler) addUpdates(changed map[string]string, t *campaign.Table, step Step, ids string) {
	of := compiler{Env: c.Env, plan: c.plan, table: t, args: c.args}
	rules := of.anyRule(step.Rules, row{"v", t})
	c.args = of.args
	if rules == "" {
		return
	}
	for _, a := range step.Update {
		if n, ok := a.Value.(Number); ok && t.Has(a.Column) {
			column := strings.ToLower(a.Column)
			before, ok := changed[column]
			if !ok {
				before = "v." + column
			}
			changed[column] = fmt.Sprintf("CASE WHEN %s AND %s THEN %d ELSE %s END", ids, rules, n, before)
		}
	}
}

// rolledUp is a table whose rows of a period a task replaces by their sums, as far as others are judged by it.
func (c *compiler) rolledUp(task Task, t *campaign.Table) string {
	s := task.RollUp
	by := strings.Join(s.By, ", ")
	period := fmt.Sprintf(
		"(v.%[1]s >= %[2]s AND v.%[1]s < %[3]s%[4]s)",
		s.Date,
		c.bind(RolledUpFrom(task.Name), "timestamptz"),
		c.bind(c.Now, "timestamptz"),
		excludeZeroRecord("v", t),
	)
	return fmt.Sprintf(
		"(SELECT %[1]s FROM %[2]s AS v WHERE %[3]s IS NOT TRUE UNION ALL SELECT %[1]s FROM %[2]s AS v WHERE %[3]s "+
			"GROUP BY %[1]s HAVING sum(%[4]s) >= %[5]d)",
		by,
		t.Quoted(),
		period,
		s.Total,
		s.Least,
	)
}
