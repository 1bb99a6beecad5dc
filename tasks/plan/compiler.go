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
	// distributed is set if the SQL reads a distributed table. Rows cannot be found by their TIDs then.
	distributed bool
}

// requireColumns reports whether the table has the columns, and notes the first one that is missing.
func (c *compiler) requireColumns(r row, columns ...string) bool {
	if missing := r.table.Missing(columns...); missing != nil {
		c.plan.notef("%s has no column %s: skipped", r.table.Name, missing[0])
		return false
	}
	return true
}

// unusable returns why the whole table is skipped; nil if it is not.
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

// unusablePaired returns why the table is skipped because of its paired table; nil if it is not.
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

// recordRead records that the SQL reads a table. If the SQL can be true because a row of that table is missing, the
// caller must call hidesRows first.
func (c *compiler) recordRead(t *campaign.Table) {
	c.plan.requireRights(c.env, t, "SELECT")
	c.hidesRows(t)
	c.plan.reads = append(c.plan.reads, t)
	c.readsOthers = true
	c.distributed = c.distributed || t.Location == campaign.Distributed
}

// hidesRows reports whether a query may not show all rows of a table, which is the compiled one or one that its
// rule reads. If so, it notes that the compiled table is not cleaned completely.
func (c *compiler) hidesRows(t *campaign.Table) bool {
	switch {
	case t.RowSecurity:
		c.plan.Skip(c.table, message.RowsHidden.With("table", t.Name, "role", c.env.Catalog.Role))
	case !t.ShowsAllRows():
		c.plan.Skip(c.table, message.NotATable.With("table", t.Name, "kind", t.Kind))
	}
	return !t.ShowsAllRows()
}

// cannotJoin reports whether the SQL may read other tables only in uncorrelated subqueries. Citus does not join a
// distributed table with a local one, but runs such a subquery on the server that has its table.
func (c *compiler) cannotJoin() bool { return c.distributed || c.table.Location != "" }

// trustedParent returns a parent table in which a missing row proves that it does not exist. Otherwise it adds a
// note and returns nil.
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
	case !t.CanSelect && !c.env.AllRights:
		c.plan.requireRights(c.env, t, "SELECT")
	case t.RowSecurity:
		unknown("row security may hide its rows")
	default:
		c.recordRead(t)
		return t
	}
	return nil
}

// anyRule returns the condition that a row matches at least one of the rules, and the rules that are applicable;
// the others are noted and left out. The condition is empty if no rule is applicable, and always true if there are
// no rules.
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

// applies reports whether the database has the tables and columns of a rule, and notes the first one that is
// missing.
func (c *compiler) applies(rule Rule, r row) bool {
	return !slices.ContainsFunc(rule, func(p Part) bool { return !p.applies(c, r) })
}

// allParts returns the condition that all parts of a rule are true. If a part cannot be evaluated, it adds a note
// and ok is false.
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

// stepCondition sets the job's condition without holds, and the fields that belong to it. The condition is empty if
// the step is not applicable to the table.
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

// excludeZeroRecord returns a condition, beginning with AND, that excludes the zero record. The key may be NULL if
// it is only unique.
func excludeZeroRecord(alias string, t *campaign.Table) string {
	if !t.HasZeroRecord() {
		return ""
	}
	return " AND " + alias + "." + pgx.Identifier{t.Key}.Sanitize() + " IS DISTINCT FROM 0"
}

// coalesce returns the SQL of the first of some columns that is not NULL. Columns that the table does not have are
// left out.
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
