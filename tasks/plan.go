package tasks

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// plan is what a task's steps come to on this database.
type plan struct {
	sweeps []purge.Sweep
	notes  []note
	rights []string // the GRANTs that are missing
}

type note struct {
	level Level
	text  string
}

func (p *plan) note(level Level, format string, args ...any) {
	p.notes = append(p.notes, note{level, fmt.Sprintf(format, args...)})
}

// plan turns a task's steps into sweeps, and says what can not be done and why.
func (e *Env) plan(ctx context.Context, t Task) (*plan, error) {
	var err error
	if e.Options, err = campaign.ReadOptions(ctx, e.Pool, e.Catalog); err != nil {
		return nil, err
	}
	p := &plan{}
	for i, step := range t.Steps {
		tables, err := step.On(ctx, e, p)
		if err != nil {
			return nil, err
		}
		for _, table := range tables {
			if err := e.planTable(ctx, p, fmt.Sprintf("%d", i+1), step, table); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// planTable adds the sweeps of one step on one table, one for each of its partitions.
func (e *Env) planTable(ctx context.Context, p *plan, unit string, step Step, table *campaign.Table) error {
	c := condition{env: e, table: table, plan: p}
	var any []string
	for _, r := range step.Rules {
		sql, err := c.rule(ctx, r)
		if err != nil {
			return err
		}
		if sql != "" {
			any = append(any, "("+sql+")")
		}
	}
	if len(any) == 0 {
		return nil
	}
	where := "(" + strings.Join(any, " OR ") + ")"
	if table.Key != "" { // the zero record stays; IS DISTINCT FROM, since a unique column may be NULL
		where += " AND r." + pgx.Identifier{table.Key}.Sanitize() + " IS DISTINCT FROM 0"
	}
	limit := step.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	e.needs(p, table, !e.DryRun)
	twin := e.twin(p, step, table)
	leaves, err := table.Leaves(ctx, e.Pool)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		p.sweeps = append(p.sweeps, purge.Sweep{
			Unit: unit + " " + leaf.Quoted(), Name: leaf.Name, Relation: leaf.Quoted(), Where: where, Args: c.args, Limit: limit, Twin: twin,
		})
	}
	return nil
}

func (e *Env) twin(p *plan, step Step, table *campaign.Table) *purge.Twin {
	if step.Twin == "" {
		return nil
	}
	twin := e.Catalog.Table(step.Twin)
	switch {
	case twin == nil:
		p.note(Info, "table %s is missing: skipped", step.Twin)
		return nil
	case twin.Key == "" || table.Key == "":
		p.note(Warning, "table %s has no key: skipped", step.Twin)
		return nil
	}
	e.needs(p, twin, !e.DryRun)
	return &purge.Twin{Relation: twin.Quoted(), Key: pgx.Identifier{twin.Key}.Sanitize(), ID: pgx.Identifier{table.Key}.Sanitize()}
}

// needs notes the rights on a table that the role lacks.
func (e *Env) needs(p *plan, t *campaign.Table, deletes bool) {
	var rights []string
	if !t.CanSelect {
		rights = append(rights, "SELECT")
	}
	if deletes && !t.CanDelete {
		rights = append(rights, "DELETE")
	}
	grant := fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(rights, ", "), t.Quoted(), pgx.Identifier{e.Catalog.Role}.Sanitize())
	if rights != nil && !slices.Contains(p.rights, grant) {
		p.rights = append(p.rights, grant)
	}
}

// condition builds the SQL of the rules of one table, and the parameters they share.
type condition struct {
	env   *Env
	table *campaign.Table
	plan  *plan
	args  []any
}

var (
	columnName    = regexp.MustCompile(`\b(?:i|s|ts|m|d|bi)[A-Z]\w*\b`)
	parameterName = regexp.MustCompile(`@\w+`)
)

// rule is the SQL of a rule, or nothing, with a note, when it can not be asked of this table.
func (c *condition) rule(ctx context.Context, r Rule) (string, error) {
	columns := columnName.FindAllString(r.Where, -1)
	if r.Orphan != nil {
		columns = append(columns, r.Orphan.Column)
	}
	if missing := c.table.Missing(columns...); missing != nil {
		c.plan.note(Info, "%s has no column %s: skipped", c.table.Name, strings.Join(missing, ", "))
		return "", nil
	}
	var parts []string
	if r.Where != "" {
		values := map[string]any{"@now": c.env.Now, "@last_cleanup": c.env.Options.Moment(campaign.LastCleanup)}
		if r.Option.IsDelay() && r.Option.Name != "" {
			delay, err := c.env.Options.Delay(r.Option)
			if err != nil {
				c.plan.note(Warning, "%v; %s is left as it is", err, c.table.Name)
				return "", nil
			}
			values["@cutoff"] = c.env.Now.Add(-delay - r.Extra)
		}
		parts = append(parts, parameterName.ReplaceAllStringFunc(r.Where, func(name string) string {
			c.args = append(c.args, values[name])
			return fmt.Sprintf("$%d::timestamptz", len(c.args))
		}))
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

// orphan is the condition that a link leads nowhere. A parent without any row, or whose rows may be hidden from
// this role, proves nothing; that it has rows is asked again in the deleting statement.
func (c *condition) orphan(ctx context.Context, l Link) (string, error) {
	skip := func(reason string) (string, error) {
		c.plan.note(Warning, "%s, so nothing in %s is without one: skipped", reason, c.table.Name)
		return "", nil
	}
	parent := c.env.Catalog.Table(l.Parent)
	switch {
	case parent == nil:
		return skip("table " + l.Parent + " is missing")
	case !parent.Has(l.Key):
		return skip("table " + l.Parent + " has no column " + l.Key)
	case !parent.CanSelect:
		c.env.needs(c.plan, parent, false)
		return "", nil
	case parent.RowSecurity:
		return skip("row security may hide rows of " + l.Parent)
	}
	empty, err := parent.Empty(ctx, c.env.Pool)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", l.Parent, err)
	}
	if empty {
		return skip("table " + l.Parent + " is empty")
	}
	return fmt.Sprintf("r.%[1]s <> 0 AND EXISTS (SELECT FROM %[2]s) AND NOT EXISTS (SELECT FROM %[2]s AS p WHERE p.%[3]s = r.%[1]s)",
		l.Column, parent.Quoted(), l.Key), nil
}
