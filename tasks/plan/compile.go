package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// defaultLimit is the most rows of a statement whose step sets no limit.
const defaultLimit = 5_000

// JudgedByOtherServer is the location of rows that are on this server but that a rule compares with rows of a
// distributed table.
const JudgedByOtherServer = "judged by a table " + campaign.Distributed

// Compile compiles a task for a database. It fails if the task needs the delivery mappings and they could not be
// read.
func Compile(t Task, env Env) (*Plan, error) {
	p := &Plan{Task: t}
	if t.ParentSet != nil {
		before := env
		before.Predecessors = slices.DeleteFunc(slices.Clone(env.Predecessors),
			func(predecessor Task) bool { return predecessor.Name == t.Name })
		var err error
		if p.Parents, err = compileParents(p, *t.ParentSet, before); err != nil {
			return nil, err
		}
	}
	parentNotes, parentReads := slices.Clone(p.Notes), p.reads
	for i, step := range t.Steps {
		s := stepCompiler{
			env:         env,
			plan:        p,
			parentNotes: parentNotes,
			parentReads: parentReads,
			step:        step,
			number:      i + 1,
			planned:     map[uint32]bool{},
		}
		if err := s.compile(); err != nil {
			return nil, err
		}
	}
	if t.RollUp != nil {
		table := env.Catalog.Table(t.RollUp.Table)
		p.requireRights(env, table, "SELECT", "INSERT", "DELETE")
		if table != nil {
			found, err := findOnHold(env, p, table)
			if err != nil {
				return nil, err
			}
			p.RollUpOnHold = len(found) > 0
		}
	}
	if t.RollUp != nil || t.Advances != (campaign.Option{}) {
		p.requireRights(env, env.Catalog.Table("XtkOption"), "INSERT")
	}
	for _, kind := range t.Drops {
		compileDrop(p, kind, env)
	}
	// Several selectors may have skipped the same table.
	slices.SortFunc(p.SkippedTables, func(a, b *campaign.Table) int { return strings.Compare(a.Name, b.Name) })
	p.SkippedTables = slices.Compact(p.SkippedTables)
	return p, nil
}

type stepCompiler struct {
	env         Env
	plan        *Plan
	parentNotes []message.Message
	parentReads []*campaign.Table // the tables that the rules of the parents read
	step        Step
	number      int             // the step's number, counted from 1
	planned     map[uint32]bool // object ids of relations that have a job; selectors may also return a partition itself
}

// compile adds the jobs of the step. Tables with children come first, so that a child gets its job together with
// its parent.
func (s *stepCompiler) compile() error {
	before := len(s.plan.SkippedTables)
	tables, err := s.step.On(s.env, s.plan)
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

// compileTable adds one job for each leaf of a table that has none yet.
func (s *stepCompiler) compileTable(table *campaign.Table) error {
	c := &compiler{env: s.env, plan: s.plan, table: table}
	s.plan.reads = nil
	job := Job{StepNumber: s.number, Step: s.step, Table: table, Rule: s.step.Rules.describe(s.env)}
	why := c.unusable()
	if paired := s.step.Paired; why == nil && paired != nil {
		why = c.unusablePaired(paired.Table)
	}
	if why != nil {
		s.plan.note(*why)
		s.plan.SkippedTables = append(s.plan.SkippedTables, table)
		s.plan.SkippedSteps = append(s.plan.SkippedSteps, Skip{table, s.step, job.Rule, why.Text})
		s.retain(table)
		return nil
	}
	if s.plan.Task.Kind == Policy { // all that is missing is named at once, even if the rule cannot be compiled without
		s.plan.requireRights(s.env, table, s.step.Rights()...)
	}
	if err := c.stepCondition(s.step, &job); err != nil || job.Where.IsZero() {
		return errors.Join(err, s.skip(table, job.Rule))
	}
	if c.hidesRows(table) {
		s.retain(table)
	}
	job.Date, job.DateColumns = s.step.Rules.date(row{"r", table})
	for i, column := range job.DateColumns {
		job.DateColumns[i] = table.Stored(column)
	}
	if s.step.OfParents && s.step.Update == nil {
		job.Date = s.plan.Parents.Date
	}
	job.Estimates = c.estimates(s.step)
	job.ReadsOthers = c.readsOthers || s.step.Dependent()
	job.Limit = cmp.Or(s.step.Limit, defaultLimit)
	for _, a := range s.step.Update {
		if !table.Has(a.Column) { // PostgreSQL could not infer the type of a parameter that is bound but not used
			continue
		}
		if value, ok := a.Value.sql(c, a.Column); ok {
			job.Set = append(job.Set, purge.Assignment{Column: table.Stored(a.Column), Value: value})
		}
	}
	if s.step.Update != nil && job.Set == nil { // a sweep without assignments deletes
		s.plan.notef("%s has none of the columns that would be changed: skipped", table.Name)
		return nil
	}
	if hidden := s.addCascade(&job); hidden != "" {
		s.plan.SkippedSteps = append(s.plan.SkippedSteps, Skip{table, s.step, job.Rule, hidden})
		s.retain(table)
		return nil
	}
	job.Refused = c.refused(s.step, row{"r", table})
	job.Companion, job.CompanionWrites = c.companion(s.step)
	rights := s.step.Rights()
	if s.step.Tables != nil {
		job.TypedTables = sqlexpr.SQL("true") // any row may have a table if the rule is not applicable
		r := row{"r", table}
		if s.step.Tables.If.applies(&compiler{env: s.env, plan: &Plan{}, table: table}, r) {
			typed, _ := s.step.Tables.If.sql(c, r)
			job.TypedTables = sqlexpr.Format("(%s) IS TRUE", typed)
		}
	}
	s.plan.requireRights(s.env, table, rights...)
	leaves := table.Leaves
	whole := campaign.Leaf{OID: table.OID, Schema: table.Schema, Name: table.Name, Location: table.Location}
	if len(leaves) == 0 {
		s.plan.notef("%s is partitioned and has no partition", table.Name)
		s.plan.Partitionless = append(s.plan.Partitionless, s.leafJob(whole, job, c))
	}
	if s.step.Tables != nil { // there are few lists, so the job is on the whole table
		whole.Unlogged = len(table.Leaves) > 0 && table.Leaves[0].Unlogged
		leaves = []campaign.Leaf{whole}
	}
	for _, leaf := range leaves {
		if s.planned[leaf.OID] {
			continue
		}
		s.planned[leaf.OID] = true
		if s.step.Tables == nil { // otherwise rights to the table itself are sufficient
			now, later := missing(s.env, leaf.Schema, leaf.Quoted(), leaf.Rights, rights)
			grants := slices.Concat(now, later)
			if why := s.spares(leaf, table); grants != nil && why != "" && !s.env.AllRights {
				s.plan.note(message.PartitionWithoutRights.With("table", leaf.Quoted(), "reason", why,
					"grant", strings.Join(grants, "; ")))
				continue
			}
			s.plan.addRights(now, later)
		}
		s.plan.Jobs = append(s.plan.Jobs, s.leafJob(leaf, job, c))
	}
	return nil
}

// retain makes a skipped table retain the parents that its rows refer to, or all parents if its rows refer to
// messages.
func (s *stepCompiler) retain(table *campaign.Table) {
	refers := (s.step.Link != "" && table.Has(s.step.Link)) || (s.step.Message != "" && table.Has(s.step.Message))
	if p := s.plan.Parents; p != nil && refers && !slices.Contains(p.Retaining, Retaining{table, s.step.Link}) {
		s.plan.requireRights(s.env, table, "SELECT")
		p.Retaining = append(p.Retaining, Retaining{table, s.step.Link})
	}
}

// skip records why the step skips a table, to explain it later for one of the table's rows.
func (s *stepCompiler) skip(table *campaign.Table, rule string) error {
	alone := &Plan{Task: s.plan.Task, Parents: s.plan.Parents} // the notes of the task's plan are free of duplicates
	err := (&compiler{env: s.env, plan: alone, table: table}).stepCondition(s.step, &Job{})
	var why []string
	for _, n := range slices.Concat(s.parentNotes, alone.Notes) {
		why = append(why, n.Text)
	}
	s.plan.SkippedSteps = append(s.plan.SkippedSteps, Skip{table, s.step, rule, strings.Join(why, "; ")})
	return err
}

func (s *stepCompiler) leafJob(leaf campaign.Leaf, job Job, c *compiler) Job {
	job.Location, job.Unlogged = leaf.Location, leaf.Unlogged
	job.ByKey = cmp.Or(s.step.ByKey, job.Table.Key)
	if s.step.OfParents {
		job.ByKey = s.plan.Parents.Key
	}
	if job.Paired = s.paired(); job.Paired != nil {
		job.ByKey = job.Paired.ID
		job.Location = cmp.Or(job.Location, s.env.Catalog.Table(s.step.Paired.Table).Location)
	}
	if c.distributed {
		job.Location = cmp.Or(job.Location, JudgedByOtherServer)
	}
	if job.Location != "" {
		job.Newest = nil
	}
	job.NoTIDs, job.Key, job.Older = job.Location != "", job.Table.Key, s.older(job.Table)
	job.Unit, job.Name, job.Relation = fmt.Sprintf("%d %s", s.number, leaf.Quoted()), leaf.Name, leaf.Quoted()
	job.Root, job.Facts = job.Table.Quoted(), s.facts(leaf, job)
	job.Childless = s.step.childless()
	job.Partition, job.Partitions = leaf.Quoted() != job.Table.Quoted(), s.step.Partitions
	return job
}

// facts returns what must not change about the relations that the job's statements change and read.
func (s *stepCompiler) facts(leaf campaign.Leaf, job Job) (facts []purge.Fact) {
	add := func(relation, known string, parts bool) {
		if !parts {
			known, _, _ = strings.Cut(known, " parts ")
		}
		f := purge.Fact{Relation: relation, Facts: known}
		if known != "" && !slices.Contains(facts, f) {
			facts = append(facts, f)
		}
	}
	add(leaf.Quoted(), leaf.Facts, false)
	add(job.Table.Quoted(), job.Table.Facts, false)
	reads := s.plan.reads
	if p := s.plan.Parents; p != nil && job.Step.Dependent() {
		reads = slices.Concat(reads, s.parentReads)
		add(p.Table.Quoted(), p.Table.Facts, false)
	}
	for _, t := range reads {
		add(t.Quoted(), t.Facts, t != job.Table)
	}
	return facts
}

// spares returns why the step has nothing to do with the rows of a leaf, as is known without reading them; "" if it
// may have.
func (s *stepCompiler) spares(leaf campaign.Leaf, table *campaign.Table) string {
	switch {
	case s.step.Dependent(): // rows that arrive in the meantime would lose their parents
		return ""
	case leaf.Empty:
		return "it is empty"
	}
	isSpared := func(p Part) bool {
		age, ok := p.(Age)
		if !ok || age.Else != "" || age.operator == ">" {
			return false
		}
		from, known := leaf.From[table.Stored(age.Column)]
		cutoff, _, err := age.cutoff(s.env)
		return known && err == nil && from.Add(-campaign.Day).After(cutoff)
	}
	mayMatch := func(rule Rule) bool { return !slices.ContainsFunc(rule, isSpared) }
	if len(s.step.Rules) == 0 || slices.ContainsFunc(s.step.Rules, mayMatch) {
		return ""
	}
	return "it begins after the cutoff"
}

// older returns the step's condition if it compares a single date with a cutoff; otherwise nil.
func (s *stepCompiler) older(table *campaign.Table) *purge.Older {
	if s.step.Dependent() || s.step.Update != nil || s.step.Paired != nil || len(s.step.Rules) != 1 {
		return nil
	}
	isWhole := func(p Part) bool { _, is := p.(inWholePartition); return is }
	parts := slices.DeleteFunc(slices.Clone(s.step.Rules[0]), isWhole)
	if len(parts) != 1 {
		return nil
	}
	age, ok := parts[0].(Age)
	if !ok || age.operator != "<" || age.Else != "" {
		return nil
	}
	than, _, _ := age.cutoff(s.env) // if it fails, the step has no job
	return &purge.Older{Column: table.Stored(age.Column), Than: than, Key: table.Key}
}

// paired returns the table that is paired with the step's, with the sweeps of earlier jobs that delete from it. It
// may return nil.
func (s *stepCompiler) paired() *purge.Paired {
	t := s.step.Paired
	if t == nil {
		return nil
	}
	table := s.env.Catalog.Table(t.Table)
	if table == nil || !table.Has(t.Key) {
		s.plan.notef("table %s, or its column %s, is missing: skipped", t.Table, t.Key)
		return nil
	}
	s.plan.requireRights(s.env, table, "SELECT", "DELETE")
	paired := &purge.Paired{Relation: table.Quoted(), Key: t.Key, ID: t.ID}
	for _, job := range s.plan.Jobs {
		if job.Step.Paired == t {
			paired.Before = append(paired.Before, job.Sweep)
		}
	}
	return paired
}
