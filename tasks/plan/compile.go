package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// defaultLimit is the most rows that a statement touches if the step has no limit.
const defaultLimit = 5_000

// Compile plans a task for a database. It fails if what the task needs to know of the database could not be read.
func Compile(t Task, env Env) (*Plan, error) {
	p := &Plan{Task: t}
	if t.ParentSet != nil {
		before := env
		before.Predecessors = slices.DeleteFunc(
			slices.Clone(env.Predecessors),
			func(of Task) bool { return of.Name == t.Name },
		)
		var err error
		if p.Parents, err = compileParents(p, *t.ParentSet, before); err != nil {
			return nil, err
		}
	}
	ofSet := slices.Clone(p.Notes)
	for i, step := range t.Steps {
		s := stepCompiler{Env: env, plan: p, parentNotes: ofSet, step: step, number: i + 1, planned: map[uint32]bool{}}
		if err := s.compile(); err != nil {
			return nil, err
		}
	}
	if t.RollUp != nil {
		c := compiler{Env: env, plan: p}
		table := c.Catalog.Table(t.RollUp.Table)
		c.needsRights(table, "SELECT", "INSERT", "DELETE")
		if table != nil {
			of := compiler{Env: env, plan: p, table: table}
			held, err := of.held(table)
			if err != nil {
				return nil, err
			}
			p.RollUpOnHold = held.Where != ""
		}
		c.needsRights(c.Catalog.Table("XtkOption"), "INSERT")
	}
	if t.Advances != (campaign.Option{}) {
		c := compiler{Env: env, plan: p}
		c.needsRights(c.Catalog.Table("XtkOption"), "INSERT")
	}
	for _, kind := range t.Drops {
		compileDrop(p, kind, env)
	}
	// Several selectors may have passed over one table.
	slices.SortFunc(p.SkippedTables, func(a, b *campaign.Table) int { return strings.Compare(a.Name, b.Name) })
	p.SkippedTables = slices.Compact(p.SkippedTables)
	return p, nil
}

// compileParents compiles a set; nil, with notes, if it is not applicable to this database.
func compileParents(p *Plan, s ParentSet, env Env) (*Parents, error) {
	table := env.Catalog.Table(s.Parent)
	if table == nil || !table.Has(s.Key) {
		p.note(severity.Info, "table %s, or its column %s, is missing: skipped", s.Parent, s.Key)
		return nil, nil
	}
	c := compiler{Env: env, plan: p, table: table}
	c.needsRights(table, "SELECT")
	where := c.anyRule(s.Rules, row{"r", table})
	if where == "" || !table.CanSelect {
		return nil, nil
	}
	set := &Parents{
		Table: table,
		Key:   s.Key,
		From:  c.afterPredecessors(table),
		Where: where,
		Rule:  s.Rules.describe(env),
	}
	set.Date, _ = c.dateOf(s.Rules, row{"r", table})
	var err error
	set.OnHold, err = c.held(table)
	set.Args = c.args
	return set, err
}

// stepCompiler compiles a step.
type stepCompiler struct {
	Env
	plan        *Plan
	parentNotes []Note // about the set
	step        Step
	number      int
	planned     map[uint32]bool // the relations that have a job, since they may also be selected by their own names
}

// compile adds the jobs of the step. Inheriting tables are planned with the table that they inherit from.
func (s *stepCompiler) compile() error {
	before := len(s.plan.SkippedTables)
	tables, err := s.step.On(s.Env, s.plan)
	if err != nil {
		return err
	}
	for _, table := range s.plan.SkippedTables[before:] {
		s.retain(table)
	}
	for _, children := range []bool{true, false} {
		for _, table := range tables {
			if table.HasChildren != children {
				continue
			}
			if err := s.compileTable(table); err != nil {
				return err
			}
		}
	}
	return nil
}

// compileTable adds the jobs of the step on one table, one for each of its partitions and children that has none yet.
func (s *stepCompiler) compileTable(table *campaign.Table) error {
	c := &compiler{Env: s.Env, plan: s.plan, table: table}
	job := Job{StepNumber: s.number, Step: s.step, Table: table, Rule: s.step.Rules.describe(s.Env)}
	where, err := c.stepCondition(s.step, &job)
	if err != nil || where == "" {
		return errors.Join(err, s.skip(table, job.Rule))
	}
	if table.RowSecurity {
		s.plan.note(
			severity.Warning,
			"row security may hide rows of %s: what the role %s does not see stays; let it own the table, or grant "+
				"it BYPASSRLS",
			table.Name,
			s.Catalog.Role,
		)
		s.plan.SkippedTables = append(s.plan.SkippedTables, table)
		s.retain(table)
	}
	job.Date, job.DateColumns = c.dateOf(s.step.Rules, row{"r", table})
	if s.step.OfParents && s.step.Update == nil {
		job.Date = s.plan.Parents.Date
	}
	job.Where, job.Args, job.ReadsOthers = where, slices.Clone(c.args), c.readsOthers || s.step.Dependent()
	job.Limit = cmp.Or(s.step.Limit, defaultLimit)
	for _, a := range s.step.Update {
		if !table.Has(a.Column) { // an unused parameter of its value would have no known type
			continue
		}
		if value, ok := a.Value.sql(c, a.Column); ok {
			job.Set = append(job.Set, purge.Assignment{Column: a.Column, Value: value})
		}
	}
	if s.step.Update != nil && job.Set == nil { // without assignments the sweep would delete
		s.plan.note(severity.Info, "%s has none of the columns that would be changed: skipped", table.Name)
		return nil
	}
	job.SetArgs = c.args[len(job.Args):]
	job.Companion, job.CompanionWrites = c.companion(s.step)
	switch {
	case s.step.Update != nil:
		c.needsRights(table, "SELECT", "UPDATE")
	case s.step.Tables != nil:
		c.needsRights(table, "SELECT", "DELETE", "UPDATE")
		job.TypedTables = "true" // unknown: any row may have one
		if own := (row{"r", table}); s.step.Tables.If.applies(
			&compiler{Env: s.Env, plan: &Plan{}, table: table},
			own,
		) {
			typed, _ := s.step.Tables.If.sql(c, own)
			job.TypedTables = "(" + typed + ") IS TRUE"
		}
	default:
		c.needsRights(table, "SELECT", "DELETE")
	}
	leaves := table.Leaves
	if s.step.Tables != nil { // lists are few
		leaves = []campaign.Leaf{
			{
				OID:       table.OID,
				Schema:    table.Schema,
				Name:      table.Name,
				Elsewhere: table.Elsewhere,
				Unlogged:  table.Leaves[0].Unlogged,
			},
		}
	}
	for _, leaf := range leaves {
		if s.planned[leaf.OID] {
			continue
		}
		s.planned[leaf.OID] = true
		s.plan.Jobs = append(s.plan.Jobs, s.jobOn(leaf, job, c))
	}
	return nil
}

// retain has a table that is passed over retain the parents that its rows belong to.
func (s *stepCompiler) retain(table *campaign.Table) {
	if p := s.plan.Parents; p != nil && s.step.Link != "" && table.HasInteger(s.step.Link) &&
		!slices.Contains(p.Retaining, Retaining{table, s.step.Link}) {
		(&compiler{Env: s.Env, plan: s.plan, table: table}).needsRights(table, "SELECT")
		p.Retaining = append(p.Retaining, Retaining{table, s.step.Link})
	}
}

// skip notes, for who asks for one of its rows, that the step is not applicable to a table.
func (s *stepCompiler) skip(table *campaign.Table, rule string) error {
	alone := &Plan{Task: s.plan.Task, Parents: s.plan.Parents} // that of the task has each note once
	_, err := (&compiler{Env: s.Env, plan: alone, table: table}).stepCondition(s.step, &Job{})
	var why []string
	for _, n := range slices.Concat(s.parentNotes, alone.Notes) {
		why = append(why, n.Text)
	}
	s.plan.SkippedSteps = append(s.plan.SkippedSteps, Skip{table, s.step, rule, strings.Join(why, "; ")})
	return err
}

// jobOn is a job on one relation.
func (s *stepCompiler) jobOn(leaf campaign.Leaf, job Job, c *compiler) Job {
	job.Location, job.Unlogged = leaf.Elsewhere, leaf.Unlogged
	job.ByKey = cmp.Or(s.step.ByKey, job.Table.Key)
	if s.step.OfParents {
		job.ByKey = s.plan.Parents.Key
	}
	if job.Paired = s.paired(c); job.Paired != nil {
		job.ByKey = job.Paired.ID
		job.Location = cmp.Or(job.Location, s.Catalog.Table(s.step.Paired.Table).Elsewhere)
	}
	if c.elsewhere {
		job.Location = cmp.Or(job.Location, JudgedElsewhere)
	}
	job.Elsewhere, job.Key, job.Older = job.Location != "", job.Table.Key, s.older(job.Table)
	job.Unit, job.Name, job.Relation = fmt.Sprintf("%d %s", s.number, leaf.Quoted()), leaf.Name, leaf.Quoted()
	job.Root = job.Table.Quoted()
	job.Partition = leaf.Quoted() != job.Table.Quoted()
	return job
}

// JudgedElsewhere is the place of rows that are here, but not what they are judged by.
const JudgedElsewhere = "judged by a table " + campaign.Distributed

// older is the condition of a step whose only rule is one on a date; nil: there is more.
func (s *stepCompiler) older(table *campaign.Table) *purge.Older {
	if s.step.Dependent() || s.step.Update != nil || s.step.Paired != nil || len(s.step.Rules) != 1 ||
		len(s.step.Rules[0]) != 1 {
		return nil
	}
	age, ok := s.step.Rules[0][0].(Age)
	if !ok || age.operator != "<" || age.Else != "" {
		return nil
	}
	than, _, _ := age.cutoff(s.Env) // its failure left no job
	return &purge.Older{Column: strings.ToLower(age.Column), Than: than, Key: table.Key}
}

func (s *stepCompiler) paired(c *compiler) *purge.Paired {
	t := s.step.Paired
	if t == nil {
		return nil
	}
	table := s.Catalog.Table(t.Table)
	if table == nil || !table.Has(t.Key) {
		s.plan.note(severity.Info, "table %s, or its column %s, is missing: skipped", t.Table, t.Key)
		return nil
	}
	c.needsRights(table, "SELECT", "DELETE")
	paired := &purge.Paired{Relation: table.Quoted(), Key: t.Key, ID: t.ID}
	for _, job := range s.plan.Jobs {
		if job.Step.Paired == t {
			paired.Before = append(paired.Before, job.Sweep)
		}
	}
	return paired
}
