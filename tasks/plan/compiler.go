package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// compiler compiles the SQL of one statement on one table, and adds notes and missing rights to the plan.
type compiler struct {
	env         Env
	plan        *Plan
	table       *campaign.Table
	readsOthers bool
	// distributed: the SQL reads a distributed table. Then rows cannot be found by their TIDs.
	distributed bool
}

// requireColumns notes the first column that is missing.
func (c *compiler) requireColumns(r row, columns ...string) bool {
	if missing := r.table.Missing(columns...); missing != nil {
		c.plan.notef("%s has no column %s: skipped", r.table.Name, missing[0])
		return false
	}
	return true
}

// Why the whole table is skipped; nil if it is not.
func (c *compiler) unusable() *message.Message {
	var why message.Message
	id := c.table.UnusableID()
	switch {
	case id != "":
		statement := fmt.Sprintf("ALTER TABLE %s ALTER %s TYPE bigint", c.table.Quoted(), id)
		why = message.IDNotInteger.With("table", c.table.Name, "column", id, "statement", statement)
	case c.table.RowSecurityAbove:
		why = message.PartitionsExposed.With("table", c.table.Name, "role", c.env.Catalog.Role)
	default:
		return nil
	}
	return &why
}

// Why the table is skipped because of its paired table; nil if it is not.
func (c *compiler) unusablePaired(name string) *message.Message {
	var why message.Message
	switch t, inPlace := c.env.Catalog.Table(name), c.env.Catalog.InPlaceOf(name); {
	case inPlace != nil:
		why = message.PairedNotATable.With("table", c.table.Name, "paired", name, "kind", inPlace.Kind)
	case t != nil && t.RowSecurity:
		why = message.RowsHidden.With("table", t.Name, "role", c.env.Catalog.Role)
	default:
		return nil
	}
	return &why
}

// SQL that is true because a row is missing in the table must ask hidesRows before.
func (c *compiler) recordRead(t *campaign.Table) {
	c.plan.requireRights(c.env, t, "SELECT")
	c.hidesRows(t)
	c.plan.reads = append(c.plan.reads, t)
	c.readsOthers = true
	c.distributed = c.distributed || t.Location == campaign.Distributed
}

// hidesRows: a query may not show all rows of the compiled table, or of a relation by which its rows are judged. If so,
// it notes that the compiled table is not cleaned completely.
func (c *compiler) hidesRows(t *campaign.Table) bool {
	switch {
	case t.RowSecurity:
		c.plan.Skip(c.table, message.RowsHidden.With("table", t.Name, "role", c.env.Catalog.Role))
	case !t.ShowsAllRows():
		c.plan.Skip(c.table, message.NotATable.With("table", t.Name, "kind", t.Kind))
	}
	return !t.ShowsAllRows()
}

// cannotJoin: the SQL may read other tables only in uncorrelated subqueries. Citus joins a distributed table to no
// local one, but runs such a subquery where its table is.
func (c *compiler) cannotJoin() bool { return c.distributed || c.table.Location != "" }

// nil, with a note, if a row that is not found in the parent table may still exist.
func (c *compiler) trustedParent(name, key string) *campaign.Table {
	t, inPlace := c.env.Catalog.Table(name), c.env.Catalog.InPlaceOf(name)
	unknown := func(problem string) {
		c.plan.note(message.OrphansUnknown.With("table", name, "problem", problem))
	}
	switch {
	case inPlace != nil:
		unknown("it is " + inPlace.Kind + ", not a table")
	case t == nil:
		unknown("it is missing")
	case !t.Has(key):
		unknown("it has no column " + key)
	case !t.CanSelect:
		c.plan.requireRights(c.env, t, "SELECT")
	case t.RowSecurity:
		unknown("row security may hide its rows")
	default:
		c.recordRead(t)
		return t
	}
	return nil
}

// anyRule notes and leaves out rules that are not applicable. The condition is empty if none is applicable, and always
// true without rules.
func (c *compiler) anyRule(rules Rules, r row) (condition sqlexpr.Expr, compiled Rules) {
	if len(rules) == 0 {
		return sqlexpr.SQL("true"), nil
	}
	applicable := slices.DeleteFunc(slices.Clone(rules), func(rule Rule) bool { return !c.applies(rule, r) })
	var sides []sqlexpr.Expr
	for _, rule := range applicable {
		if side, ok := c.allParts(rule, r); ok {
			sides, compiled = append(sides, sqlexpr.Format("(%s)", side)), append(compiled, rule)
		}
	}
	if sides == nil {
		return condition, nil
	}
	return sqlexpr.Format("(%s)", sqlexpr.Or(sides...)), compiled
}

func (c *compiler) anyRuleOf(rules Rules, r row) sqlexpr.Expr {
	condition, _ := (&compiler{env: c.env, plan: c.plan, table: r.table}).anyRule(rules, r)
	return condition
}

// applies notes the first table or column that is missing for the rule.
func (c *compiler) applies(rule Rule, r row) bool {
	return !slices.ContainsFunc(rule, func(p Part) bool { return !p.applies(c, r) })
}

// ok is false, with a note, if a part cannot be evaluated.
func (c *compiler) allParts(rule Rule, r row) (condition sqlexpr.Expr, ok bool) {
	var parts []sqlexpr.Expr
	for _, p := range rule {
		part, ok := p.sql(c, r)
		if !ok {
			return condition, false
		}
		parts = append(parts, part)
	}
	return sqlexpr.Join(" AND ", parts...), true
}

// stepCondition sets the whole condition of a step on a table except for holds, and the fields that belong to it. The
// condition is empty if the step is not applicable.
func (c *compiler) stepCondition(step Step, job *Job) (err error) {
	where, compiled := c.anyRule(step.Rules, row{"r", c.table})
	if where.IsZero() {
		return nil
	}
	job.Orphans, job.OnlyOrphans = compiled.orphans()
	if step.Dependent() {
		depends, ids, err := c.dependsOnParents(step)
		if err != nil || depends.IsZero() {
			return err
		}
		where, job.ParentIDs = sqlexpr.Format("%s AND %s", where, depends), ids
	}
	if step.NeededBy != nil {
		if job.Except, err = c.neededByRetained(*step.NeededBy); err != nil {
			return err
		}
	}
	job.Where = sqlexpr.Format("%s%s", where, excludeZeroRecord("r", c.table))
	if !step.Dependent() {
		job.Newest = c.newest(compiled)
	}
	job.OnHold, err = findOnHold(c.env, c.plan, c.table)
	return err
}

// The condition comes after AND. A key that is only unique may be NULL.
func excludeZeroRecord(alias string, t *campaign.Table) string {
	if !t.HasZeroRecord() {
		return ""
	}
	return " AND " + alias + "." + pgx.Identifier{t.Key}.Sanitize() + " IS DISTINCT FROM 0"
}

// Columns that the row lacks are left out.
func coalesce(r row, columns ...string) string {
	var present []string
	for _, column := range columns {
		if column != "" && r.table.Has(column) {
			present = append(present, r.column(column))
		}
	}
	if len(present) == 1 {
		return present[0]
	}
	return "COALESCE(" + strings.Join(present, ", ") + ")"
}
