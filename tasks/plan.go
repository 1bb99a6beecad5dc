package tasks

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// plan is a task's steps applied to this database.
type plan struct {
	units  []unit
	notes  []note
	rights []string // the GRANTs that are missing
}

// unit is a sweep and the step it comes from.
type unit struct {
	purge.Sweep
	step    numberedStep
	parents string // as in condition
	place   string // where its rows are; empty: here
	also    string // what Also writes, as in alsoSQL
}

// numberedStep is a step with its number in the task, from 1.
type numberedStep struct {
	Step
	number int
}

func numbered(steps []Step) []numberedStep {
	var out []numberedStep
	for i, s := range steps {
		out = append(out, numberedStep{s, i + 1})
	}
	return out
}

type note struct {
	level Level
	text  string
}

func (p *plan) note(level Level, format string, args ...any) {
	n := note{level, fmt.Sprintf(format, args...)}
	if !slices.Contains(p.notes, n) {
		p.notes = append(p.notes, n)
	}
}

// plan turns steps into sweeps, and notes what cannot be done and why.
func (e *Env) plan(ctx context.Context, steps []numberedStep) (*plan, error) {
	p := &plan{}
	for _, step := range steps {
		tables, err := step.On(ctx, e, p)
		if err != nil {
			return nil, err
		}
		planned := map[uint32]bool{}
		for _, parents := range []bool{true, false} { // inheriting tables are planned with the table that they inherit from
			for _, table := range tables {
				if table.HasChildren != parents {
					continue
				}
				if err := e.planTable(ctx, p, step, table, planned); err != nil {
					return nil, err
				}
			}
		}
	}
	return p, nil
}

// planTable adds the sweeps of one step on one table, one for each of its partitions and children, except for those that are
// planned already, since they may also be selected by their own names.
func (e *Env) planTable(ctx context.Context, p *plan, step numberedStep, table *campaign.Table, planned map[uint32]bool) error {
	var args []any
	c := &condition{env: e, table: table, plan: p, args: &args}
	where, err := c.where(ctx, step.Step)
	if err != nil || where == "" {
		return err
	}
	s := purge.Sweep{Where: where, Args: slices.Clone(args), Limit: step.Limit}
	if !c.excepts {
		s.Older = e.older(step.Step, table)
	}
	if s.Limit == 0 {
		s.Limit = defaultLimit
	}
	for _, a := range step.Update {
		if !table.Has(a.Column) { // an unused parameter of its value would have no known type
			continue
		}
		value, err := c.expand(ctx, a.Value, Rule{})
		if err != nil {
			return err
		}
		if value != "" {
			s.Set = append(s.Set, purge.Assignment{Column: a.Column, Value: value})
		}
	}
	if step.Update != nil && s.Set == nil { // without assignments the sweep would delete
		p.note(Info, "%s has none of the columns that would be changed: skipped", table.Name)
		return nil
	}
	s.SetArgs = args[len(s.Args):]
	what := ""
	if step.Also != nil {
		before := len(args)
		also, err := step.Also(ctx, c)
		if err != nil {
			return err
		}
		if also != nil {
			what, s.Also = also.what, &purge.Also{Returning: also.returning, SQL: also.sql, Args: args[before:]}
		}
	}
	right := "DELETE"
	if step.Update != nil {
		right = "UPDATE"
	}
	e.needs(p, table, "SELECT", right)
	leaves, err := table.Leaves(ctx, e.Pool)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		if planned[leaf.OID] {
			continue
		}
		planned[leaf.OID] = true
		place := leaf.Elsewhere
		if s.Twin = e.twin(p, step.Twin); s.Twin != nil {
			place = cmp.Or(place, e.Catalog.Table(step.Twin.Table).Elsewhere)
		}
		if c.elsewhere {
			place = cmp.Or(place, "judged by a table "+campaign.Distributed)
		}
		s.Elsewhere, s.Key, s.ByKey = place != "", table.Key, cmp.Or(step.ByKey, table.Key)
		if step.OfSet {
			s.ByKey, s.Keys = e.set.Key, e.set.ids
		}
		if s.Twin != nil {
			s.ByKey = s.Twin.ID
		}
		s.Unit, s.Name, s.Relation = fmt.Sprintf("%d %s", step.number, leaf.Quoted()), leaf.Name, leaf.Quoted()
		s.Partition = leaf.Quoted() != table.Quoted()
		p.units = append(p.units, unit{s, step, c.parents, place, what})
	}
	return nil
}

// onlyDate is a rule that is nothing but a condition on a date.
var onlyDate = regexp.MustCompile(`^(ts\w+) < @(cutoff|now)$`)

// older is the condition of a step whose only rule is one on a date; nil: there is more.
func (e *Env) older(step Step, table *campaign.Table) *purge.Older {
	if step.dependent() || step.Update != nil || step.Also != nil || step.Twin != nil || len(step.Rules) != 1 || step.Rules[0].Orphan != nil {
		return nil
	}
	r := step.Rules[0]
	date := onlyDate.FindStringSubmatch(r.Where)
	if date == nil {
		return nil
	}
	than := e.Now
	if date[2] == "cutoff" {
		delay, err := e.Options.Delay(r.Option)
		if err != nil {
			return nil
		}
		than = than.Add(-delay - r.Extra)
	}
	return &purge.Older{Column: strings.ToLower(date[1]), Than: than, Key: table.Key}
}

// where is the whole condition of a step on a table; empty when it is not applicable.
func (c *condition) where(ctx context.Context, step Step) (string, error) {
	where, err := c.any(ctx, step.Rules)
	if err != nil || where == "" {
		return "", err
	}
	if step.dependent() {
		set, err := c.inSet(ctx, step)
		if err != nil || set == "" {
			return "", err
		}
		where += " AND " + set
	}
	if step.Unless != nil {
		stay, err := step.Unless(ctx, c)
		if err != nil {
			return "", err
		}
		if c.excepts = stay != ""; c.excepts {
			where += " AND (" + stay + ") IS NOT TRUE"
		}
	}
	if key := c.table.Key; key != "" { // the zero record stays; IS DISTINCT FROM, since a unique column may be NULL
		where += " AND r." + pgx.Identifier{key}.Sanitize() + " IS DISTINCT FROM 0"
	}
	return where, nil
}

func (e *Env) twin(p *plan, t *Twin) *purge.Twin {
	if t == nil {
		return nil
	}
	table := e.Catalog.Table(t.Table)
	if table == nil || !table.Has(t.Key) {
		p.note(Info, "table %s, or its column %s, is missing: skipped", t.Table, t.Key)
		return nil
	}
	e.needs(p, table, "SELECT", "DELETE")
	twin := &purge.Twin{Relation: table.Quoted(), Key: t.Key, ID: t.ID}
	for _, u := range p.units {
		if u.step.Twin == t {
			twin.Before = append(twin.Before, u.Sweep)
		}
	}
	return twin
}

// needs adds the GRANT of the rights on a table that the role lacks. A dry run needs only SELECT.
func (e *Env) needs(p *plan, t *campaign.Table, rights ...string) {
	has := map[string]bool{"SELECT": t.CanSelect, "INSERT": t.CanInsert || e.DryRun, "DELETE": t.CanDelete || e.DryRun, "UPDATE": t.CanUpdate || e.DryRun}
	lacking := slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return has[right] })
	grant := fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(lacking, ", "), t.Quoted(), pgx.Identifier{e.Catalog.Role}.Sanitize())
	if len(lacking) > 0 && !slices.Contains(p.rights, grant) {
		p.rights = append(p.rights, grant)
	}
}
