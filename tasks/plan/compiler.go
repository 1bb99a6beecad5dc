package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// compiler compiles the SQL of one statement on one table. Notes and missing rights are added to the plan.
type compiler struct {
	env   Env
	plan  *Plan
	table *campaign.Table
	args  []any // shared by all parts of the SQL
	// readsOthers is true if the SQL reads other tables.
	readsOthers bool
	// elsewhere is true if it reads a distributed table: then rows cannot be found by their TIDs.
	elsewhere bool
}

// bind adds a parameter and returns its placeholder.
func (c *compiler) bind(value any, sqlType string) string {
	c.args = append(c.args, value)
	return fmt.Sprintf("$%d::%s", len(c.args), sqlType)
}

// requireColumns reports whether a row has all columns, and notes the first missing one.
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

// recordRead records that the SQL reads another table.
func (c *compiler) recordRead(t *campaign.Table) {
	c.plan.requireRights(c.env, t, "SELECT")
	c.readsOthers = true
	c.elsewhere = c.elsewhere || t.Elsewhere == campaign.Distributed
}

// cannotJoin reports whether the SQL may read other tables only in uncorrelated subqueries: Citus joins a distributed
// table to no local one, but runs such a subquery where its table is.
func (c *compiler) cannotJoin() bool { return c.elsewhere || c.table.Elsewhere != "" }

// trustedParent returns a parent table. It returns nil, with a note, if a row that is not found there may still exist.
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

// anyRule returns the condition that at least one of the rules matches a row, and the rules in it: rules that are not
// applicable are noted and left out. The condition is empty if none is applicable, and always true without rules.
func (c *compiler) anyRule(rules Rules, r row) (sql string, compiled Rules) {
	if len(rules) == 0 {
		return "true", nil
	}
	applicable := slices.DeleteFunc(slices.Clone(rules), func(rule Rule) bool { return !c.applies(rule, r) })
	var sides []string
	for _, rule := range applicable {
		if sql, ok := c.allParts(rule, r); ok {
			sides, compiled = append(sides, "("+sql+")"), append(compiled, rule)
		}
	}
	if sides == nil {
		return "", nil
	}
	return "(" + strings.Join(sides, " OR ") + ")", compiled
}

// anyRuleOf returns the condition of anyRule for a row of another table, with the same parameters.
func (c *compiler) anyRuleOf(rules Rules, r row) string {
	other := compiler{env: c.env, plan: c.plan, table: r.table, args: c.args}
	sql, _ := other.anyRule(rules, r)
	c.args = other.args
	return sql
}

// applies reports whether a rule can be evaluated, and notes the first table or column that is missing for it.
func (c *compiler) applies(rule Rule, r row) bool {
	return !slices.ContainsFunc(rule, func(p Part) bool { return !p.applies(c, r) })
}

// allParts returns the condition that a rule matches a row. ok is false, with a note, if a part cannot be evaluated.
func (c *compiler) allParts(rule Rule, r row) (sql string, ok bool) {
	var parts []string
	for _, p := range rule {
		part, ok := p.sql(c, r)
		if !ok {
			return "", false
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " AND "), true
}

// stepCondition returns the whole condition of a step on a table, except for holds, and sets the fields of the job that
// belong to it. It is empty if the step is not applicable.
func (c *compiler) stepCondition(step Step, job *Job) (string, error) {
	where, compiled := c.anyRule(step.Rules, row{"r", c.table})
	if where == "" {
		return "", nil
	}
	job.Orphans, job.OnlyOrphans = compiled.orphans()
	if step.Dependent() {
		depends, ids, err := c.dependsOnParents(step)
		if err != nil || depends == "" {
			return "", err
		}
		where += " AND " + depends
		job.ParentIDs = ids
	}
	if step.NeededBy != nil {
		var err error
		if job.Except, err = c.neededByRetained(*step.NeededBy); err != nil {
			return "", err
		}
	}
	var err error
	job.OnHold, err = holdFinder{c.env, c.plan, c.table}.find()
	return where + excludeZeroRecord("r", c.table), err
}

// excludeZeroRecord returns the condition, after AND, that a row is not the zero record. A key that is only unique may
// be NULL.
func excludeZeroRecord(alias string, t *campaign.Table) string {
	if t.Key == "" {
		return ""
	}
	return " AND " + alias + "." + pgx.Identifier{t.Key}.Sanitize() + " IS DISTINCT FROM 0"
}

// coalesce returns the SQL of the first of several columns that is not NULL. Columns that the row lacks are left out.
func coalesce(r row, columns ...string) string {
	var present []string
	for _, column := range columns {
		if column != "" && r.table.Has(column) {
			present = append(present, r.alias+"."+column)
		}
	}
	if len(present) == 1 {
		return present[0]
	}
	return "COALESCE(" + strings.Join(present, ", ") + ")"
}
