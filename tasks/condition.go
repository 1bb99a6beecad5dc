package tasks

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// condition builds the SQL of the rules of one table, and the parameters that they share.
type condition struct {
	env   *Env
	table *campaign.Table
	plan  *plan
	args  *[]any
	// parents is a query for the ids of the set's parents that a row r depends on; empty: none.
	parents string
	// elsewhere says that the SQL reads a distributed table, which no statement by TIDs can.
	elsewhere bool
	// excepts says that rows stay although a rule names them.
	excepts bool
}

// argument is the value of a parameter of a rule.
type argument struct {
	value   any
	sqlType string
}

// alsoSQL is a statement that accompanies a batch's, as purge.Also. what names for people what it writes, if the rows may be
// changed without that; empty: they may not.
type alsoSQL struct{ what, returning, sql string }

var (
	tableName     = regexp.MustCompile(`\{(\w+)\} (\w+)`)
	columnName    = regexp.MustCompile(`(?:\b([a-z]\w*)\.)?\b((?:i|s|ts|m|d|bi)[A-Z]\w*)\b`)
	coalesce      = regexp.MustCompile(`COALESCE\(([\w@, ']*)\)`)
	parameterName = regexp.MustCompile(`@\w+`)
)

// bind adds a parameter and returns its placeholder.
func (c *condition) bind(value any, sqlType string) string {
	*c.args = append(*c.args, value)
	return fmt.Sprintf("$%d::%s", len(*c.args), sqlType)
}

// any is the SQL of several rules of which one must hold; empty, with notes, when none is applicable.
func (c *condition) any(ctx context.Context, rules []Rule) (string, error) {
	if len(rules) == 0 {
		return "true", nil
	}
	var sides []string
	for _, r := range rules {
		sql, err := c.rule(ctx, r)
		if err != nil {
			return "", err
		}
		if sql != "" {
			sides = append(sides, "("+sql+")")
		}
	}
	if len(sides) == 0 {
		return "", nil
	}
	return "(" + strings.Join(sides, " OR ") + ")", nil
}

// rule is the SQL of a rule; empty, with a note, when it is not applicable to this table.
func (c *condition) rule(ctx context.Context, r Rule) (string, error) {
	var parts []string
	if r.Where != "" {
		sql, err := c.expand(ctx, r.Where, r)
		if err != nil || sql == "" {
			return "", err
		}
		parts = append(parts, sql)
	}
	if r.Orphan != nil {
		sql, err := c.orphan(ctx, *r.Orphan)
		if err != nil || sql == "" {
			return "", err
		}
		parts = append(parts, sql)
	}
	return strings.Join(parts, " AND "), nil
}

// expand substitutes tables and parameters in SQL. The result is empty, with a note, when a table, a column or a usable
// option is missing.
func (c *condition) expand(ctx context.Context, sql string, r Rule) (string, error) {
	tables := map[string]*campaign.Table{"": c.table, "r": c.table}
	for _, m := range tableName.FindAllStringSubmatch(sql, -1) {
		t := c.env.Catalog.Table(m[1])
		if t == nil {
			c.plan.note(Info, "table %s is missing, which %s is judged by: skipped", m[1], c.table.Name)
			return "", nil
		}
		c.reads(t)
		tables[m[2]] = t
	}
	sql = coalesce.ReplaceAllStringFunc(sql, c.choices)
	for _, m := range columnName.FindAllStringSubmatch(sql, -1) {
		t, known := tables[m[1]]
		if known && !t.Has(m[2]) {
			c.plan.note(Info, "%s has no column %s: skipped", t.Name, m[2])
			return "", nil
		}
	}
	if options := c.env.Catalog.Table("XtkOption"); strings.Contains(sql, "@last_cleanup") && options != nil && options.RowSecurity {
		c.plan.note(Warning, "row security may hide rows of XtkOption, which keeps when the last cleanup was; %s is left as it is", c.table.Name)
		return "", nil
	}
	last, err := c.env.Options.Moment(campaign.LastCleanup)
	if err != nil && strings.Contains(sql, "@last_cleanup") {
		c.plan.note(Warning, "%v; %s is left as it is", err, c.table.Name)
		return "", nil
	}
	values := map[string]argument{"@now": {c.env.Now, "timestamptz"}, "@last_cleanup": {last, "timestamptz"}}
	if strings.Contains(sql, "@cutoff") {
		delay, err := c.env.Options.Delay(r.Option)
		if err != nil {
			c.plan.note(Warning, "%v; %s is left as it is", err, c.table.Name)
			return "", nil
		}
		values["@cutoff"] = argument{c.env.Now.Add(-delay - r.Extra), "timestamptz"}
	}
	if strings.Contains(sql, "@cancelled") {
		message, err := c.cancelled(ctx)
		if err != nil || message == nil {
			return "", err
		}
		values["@cancelled"] = argument{message, "bigint"}
	}
	sql = tableName.ReplaceAllStringFunc(sql, func(m string) string {
		parts := tableName.FindStringSubmatch(m)
		return tables[parts[2]].Quoted() + " AS " + parts[2]
	})
	return parameterName.ReplaceAllStringFunc(sql, func(name string) string { return c.bind(values[name].value, values[name].sqlType) }), nil
}

// reads records that the SQL reads another table.
func (c *condition) reads(t *campaign.Table) {
	c.env.needs(c.plan, t, "SELECT")
	c.elsewhere = c.elsewhere || t.Elsewhere == campaign.Distributed
}

// choices removes from a COALESCE the columns that the table does not have, as long as one remains.
func (c *condition) choices(sql string) string {
	var there []string
	for choice := range strings.SplitSeq(coalesce.FindStringSubmatch(sql)[1], ", ") {
		if !columnName.MatchString(choice) || c.table.Has(choice) {
			there = append(there, choice)
		}
	}
	if len(there) == 0 {
		return sql
	}
	return "COALESCE(" + strings.Join(there, ", ") + ")"
}

// orphan is the condition that a link is dangling. A parent without any row, or whose rows may be hidden from
// this role, proves nothing; the deleting statement checks again that it has rows.
func (c *condition) orphan(ctx context.Context, l Link) (string, error) {
	if !c.table.Has(l.Column) {
		c.plan.note(Info, "%s has no column %s: skipped", c.table.Name, l.Column)
		return "", nil
	}
	parent, trusted, err := c.env.parent(ctx, c.plan, l.Parent, l.Key, l.EmptyAfter)
	if err != nil || parent == nil {
		return "", err
	}
	c.reads(parent)
	missing := "NOT EXISTS (SELECT FROM %[2]s AS p WHERE p.%[3]s = r.%[1]s)"
	if !strings.EqualFold(parent.Key, l.Key) || c.apart() { // says the same, but hashes the parents once per statement: no index finds one
		missing = "(r.%[1]s IN (SELECT DISTINCT p.%[3]s FROM %[2]s AS p)) IS NOT TRUE"
	}
	sql := fmt.Sprintf("r.%[1]s <> 0 AND "+missing, l.Column, parent.Quoted(), l.Key)
	if !trusted {
		sql += fmt.Sprintf(" AND EXISTS (SELECT 1 FROM %s)", parent.Quoted())
	}
	return sql, nil
}

// parent returns a table that is only asked whether something exists; nil, with a note, when its answer cannot be trusted. An
// empty one is trusted if a task that may rightly empty it has succeeded in this run.
func (e *Env) parent(ctx context.Context, p *plan, name, key, emptyAfter string) (t *campaign.Table, trusted bool, err error) {
	skip := func(reason string) (*campaign.Table, bool, error) {
		p.note(Warning, "%s, so nothing is without one: skipped", reason)
		return nil, false, nil
	}
	t = e.Catalog.Table(name)
	switch {
	case t == nil:
		return skip("table " + name + " is missing")
	case !t.Has(key):
		return skip("table " + name + " has no column " + key)
	case !t.CanSelect:
		e.needs(p, t, "SELECT")
		return nil, false, nil
	case t.RowSecurity:
		return skip("row security may hide rows of " + name)
	case emptyAfter != "" && e.Succeeded[emptyAfter]:
		return t, true, nil
	}
	empty, err := t.Empty(ctx, e.Pool)
	if err != nil {
		return nil, false, fmt.Errorf("ask %s: %w", name, err)
	}
	if empty {
		return skip("table " + name + " is empty")
	}
	return t, false, nil
}
