package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// compiler makes the SQL of a step on one table, and the parameters that its parts share.
type compiler struct {
	Env
	plan  *Plan
	table *campaign.Table
	args  []any
	// readsOthers says that the SQL reads other tables.
	readsOthers bool
	// elsewhere says that it reads a distributed table, which no statement by TIDs can.
	elsewhere bool
	// cascades is how many foreign keys were followed to rows on hold.
	cascades int
	// orphans are the links of the rules; onlyOrphans says that no rule is without one.
	orphans     []Orphan
	onlyOrphans bool
}

// bind adds a parameter, which may be Late, and returns its placeholder.
func (c *compiler) bind(value any, sqlType string) string {
	c.args = append(c.args, value)
	return fmt.Sprintf("$%d::%s", len(c.args), sqlType)
}

func (c *compiler) note(level severity.Level, format string, args ...any) {
	c.plan.note(level, format, args...)
}

// requireColumns notes the first column that is missing, and reports whether none is.
func (c *compiler) requireColumns(r row, columns ...string) bool {
	if missing := r.table.Missing(columns...); missing != nil {
		c.note(severity.Info, "%s has no column %s: skipped", r.table.Name, missing[0])
		return false
	}
	return true
}

// coalesce is the first of some columns that is not NULL, of those that are there.
func (c *compiler) coalesce(r row, columns ...string) string {
	var there []string
	for _, column := range columns {
		if column != "" && r.table.Has(column) {
			there = append(there, r.alias+"."+column)
		}
	}
	if len(there) == 1 {
		return there[0]
	}
	return "COALESCE(" + strings.Join(there, ", ") + ")"
}

// recordRead records that the SQL reads another table.
func (c *compiler) recordRead(t *campaign.Table) {
	c.needsRights(t, "SELECT")
	c.readsOthers = true
	c.elsewhere = c.elsewhere || t.Elsewhere == campaign.Distributed
}

// cannotJoin reports whether a statement has to read each table apart from the others: Citus joins a distributed table to no
// local one, and an ordinary subquery is run where its tables are.
func (c *compiler) cannotJoin() bool { return c.elsewhere || c.table.Elsewhere != "" }

// needsRights notes the GRANT of the rights on a table, if there is one, that the role lacks. A dry run needs only
// SELECT.
func (c *compiler) needsRights(t *campaign.Table, rights ...string) {
	if t == nil {
		return
	}
	has := map[string]bool{
		"SELECT": t.CanSelect,
		"INSERT": t.CanInsert || c.DryRun,
		"DELETE": t.CanDelete || c.DryRun,
		"UPDATE": t.CanUpdate || c.DryRun,
	}
	lacking := slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return has[right] })
	grant := fmt.Sprintf(
		"GRANT %s ON %s TO %s",
		strings.Join(lacking, ", "),
		t.Quoted(),
		pgx.Identifier{c.Catalog.Role}.Sanitize(),
	)
	if len(lacking) > 0 && !slices.Contains(c.plan.Rights, grant) {
		c.plan.Rights = append(c.plan.Rights, grant)
	}
}

// trustedParent returns a table that is only asked whether something exists; nil, with a note, when its answer cannot be
// trusted.
func (c *compiler) trustedParent(name, key string) *campaign.Table {
	t := c.Catalog.Table(name)
	switch {
	case t == nil:
		c.note(severity.Warning, "table %s is missing, so nothing is without one: skipped", name)
	case !t.Has(key):
		c.note(severity.Warning, "table %s has no column %s, so nothing is without one: skipped", name, key)
	case !t.CanSelect:
		c.needsRights(t, "SELECT")
	case t.RowSecurity:
		c.note(severity.Warning, "row security may hide rows of %s, so nothing is without one: skipped", name)
	default:
		c.recordRead(t)
		return t
	}
	return nil
}

// anyRule is the SQL of rules; empty, with notes, when none is applicable.
func (c *compiler) anyRule(rules Rules, r row) string {
	if len(rules) == 0 {
		return "true"
	}
	applicable := slices.DeleteFunc(slices.Clone(rules), func(rule Rule) bool { return !c.applies(rule, r) })
	var sides []string
	c.onlyOrphans = true
	for _, rule := range applicable {
		sql, ok := c.allParts(rule, r)
		if !ok {
			continue
		}
		sides = append(sides, "("+sql+")")
		orphans := rule.orphans()
		c.orphans = append(c.orphans, orphans...)
		c.onlyOrphans = c.onlyOrphans && orphans != nil
	}
	if sides == nil {
		return ""
	}
	return "(" + strings.Join(sides, " OR ") + ")"
}

// applies notes the first thing that is missing for a rule, and reports whether nothing is.
func (c *compiler) applies(rule Rule, r row) bool {
	return !slices.ContainsFunc(rule, func(p Part) bool { return !p.applies(c, r) })
}

// allParts is the SQL of a rule; not ok, with a note, if a part of it cannot be judged.
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

func (rule Rule) orphans() (orphans []Orphan) {
	for _, p := range rule {
		if o, ok := p.(Orphan); ok {
			orphans = append(orphans, o)
		}
	}
	return orphans
}

// dateOf is the SQL of the date that rules go by, and its columns; empty if they go by none.
func (c *compiler) dateOf(rules Rules, r row) (sql string, columns []string) {
	for _, rule := range rules {
		for _, p := range rule {
			switch p := p.(type) {
			case Age:
				columns = []string{p.Column, p.Else}
			case SQL:
				columns = []string{p.Date}
			default:
				continue
			}
			columns = slices.DeleteFunc(
				columns,
				func(column string) bool { return column == "" || !r.table.Has(column) },
			)
			if len(columns) > 0 {
				return c.coalesce(r, columns...), columns
			}
		}
	}
	return "", nil
}

// stepCondition is the whole condition of a step on a table; empty when it is not applicable.
func (c *compiler) stepCondition(step Step, job *Job) (string, error) {
	where := c.anyRule(step.Rules, row{"r", c.table})
	if where == "" {
		return "", nil
	}
	job.Orphans, job.OnlyOrphans = c.orphans, c.onlyOrphans
	if step.Dependent() {
		of, ids, err := c.dependsOnParents(step)
		if err != nil || of == "" {
			return "", err
		}
		where += " AND " + of
		job.ParentIDs = ids
	}
	if step.NeededBy != nil {
		var err error
		if job.Except, err = c.neededByRetained(*step.NeededBy); err != nil {
			return "", err
		}
	}
	var err error
	job.OnHold, err = c.heldBy(c.table)
	return where + excludeZeroRecord("r", c.table), err
}

// excludeZeroRecord keeps the zero record; with IS DISTINCT FROM, since a unique column may be NULL.
func excludeZeroRecord(alias string, t *campaign.Table) string {
	if t.Key == "" {
		return ""
	}
	return " AND " + alias + "." + pgx.Identifier{t.Key}.Sanitize() + " IS DISTINCT FROM 0"
}
