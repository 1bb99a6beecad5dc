package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Env struct {
	Catalog *campaign.Catalog
	Options *campaign.Options
	Now     time.Time
	// Earlier are cutoffs to use instead of the current ones, by the names of their delays as in Task.Cutoffs.
	Earlier map[string]time.Time
	// DryRun is set if nothing is changed, so that fewer rights are needed.
	DryRun bool
	// AllRights makes Plan.Rights list every right that the role needs or that is useful, including those that it already
	// has unless OnlyMissing is set.
	AllRights, OnlyMissing bool
	// Pipeline has all tasks. Their steps define which rows belong to a delivery, list or workflow on hold.
	Holds    Holds
	Pipeline []Task
	// HoldsWithinReach leaves rows out that count as on hold only because the keys to them are not followed to their end.
	HoldsWithinReach bool
	// Predecessors are, in a dry run, the tasks up to and including the compiled one. Tables are read as they would have
	// left them.
	Predecessors []Task
	// Record returns the statement that records the deliveries that a query returns; see Step.Records. It is nil where
	// plans are not executed.
	Record func(query sqlexpr.Expr) sqlexpr.Expr
}

type Plan struct {
	Task Task
	// Parents is nil if the task has no parents, or if they are not applicable to the database.
	Parents *Parents
	// Jobs are in the order of the steps.
	Jobs []Job
	// Partitionless are the jobs on partitioned tables that have no partition yet, so that there is nothing to do.
	Partitionless []Job
	SkippedSteps  []Skip
	// SkippedTables may have rows for the task, but are cleaned only in part or not at all. Notes say why, and so does
	// WhySkipped, without other notes.
	SkippedTables []*campaign.Table
	WhySkipped    []message.Message
	Drops         []Drop
	// RollUpOnHold is set if foreign keys may delete or change rows on hold together with rows that are rolled up.
	RollUpOnHold bool
	// Notes say what the plan leaves out, and why.
	Notes []message.Message
	// Rights are GRANT statements for what the role lacks. If the plan is for a dry run, RunRights are those that only a
	// run needs.
	Rights, RunRights []string

	reads []*campaign.Table // the tables that the SQL being compiled reads
}

// Relations returns the object ids of the relations that the jobs change and read, by quoted name. The plan may be nil.
func (p *Plan) Relations() map[string]string {
	if p == nil {
		return nil
	}
	relations := map[string]string{}
	for _, j := range p.Jobs {
		for _, f := range j.Facts {
			relations[f.Relation], _, _ = strings.Cut(f.Facts, " ")
		}
	}
	return relations
}

// Skip is a step that is not applicable to a table.
type Skip struct {
	Table *campaign.Table
	Step  Step
	// Rule describes the rows of the step; Why is the reason.
	Rule, Why string
}

type Parents struct {
	Table *campaign.Table
	Key   string
	// From is the table, or the subquery, from which the rows are read.
	From  sqlexpr.Expr
	Where sqlexpr.Expr
	// OnHold is the condition that a row is on hold; empty if none is.
	OnHold sqlexpr.Expr
	// Retaining are skipped tables with rows that depend on the parents.
	Retaining []Retaining
	// Date is the SQL of the date that the rules compare with a cutoff, if any.
	Rule, Date string
}

// Retaining is a skipped table, and the column by which its rows refer to parents. Such parents are retained. If
// Link is empty, the rows refer to messages, and all parents are retained.
type Retaining struct {
	Table *campaign.Table
	Link  string
}

// Query returns a query for a column of the parents, which may be an expression.
func (p *Parents) Query(column string) sqlexpr.Expr {
	return sqlexpr.Format("SELECT %s FROM %s AS r WHERE %s AND r.%s <> 0", column, p.From, p.Where, p.Key)
}

// Job is a step on one relation.
type Job struct {
	// Sweep still has placeholders for some arguments, and no Keys.
	purge.Sweep
	// StepNumber counts from 1.
	StepNumber int
	Step       Step
	// Rule describes which rows are obsolete; it is empty if all rows that depend on parents are.
	Rule string
	// Date is the SQL of the date that the rules compare with a cutoff, if any. DateColumns are the stored names of its
	// columns.
	Date        string
	DateColumns []string
	// Table is the relation, or the table of which it is a partition or child.
	Table    *campaign.Table
	Affected []*campaign.Table
	// ParentIDs is a query for the ids of the parents on which a row r depends; empty if it depends on none.
	ParentIDs string
	// Estimates are the reasons why a dry run may count other rows than a run deletes; nil if it is exact.
	Estimates []string
	// Location says where the rows are; empty if they are on this server.
	Location string
	// Unlogged is set if standbys have none of the rows.
	Unlogged bool
	// CompanionWrites describes the rows that the companion statement writes. It is empty if the statement may not be left
	// out when it fails.
	CompanionWrites string
	// Orphans are the links whose parent tables must have rows, or be trusted when empty. OnlyOrphans is set if every rule
	// has such a link: there is nothing to do then unless a parent table is trusted.
	Orphans     []Orphan
	OnlyOrphans bool
	// OnHold are the conditions under which rows are on hold. Where does not exclude these rows.
	OnHold []HoldCondition
	// Except are the rows that are retained because parents of another task are; nil if there are none.
	Except *Except
	// TypedTables is the SQL of whether a row r may have a table, for a step with Tables.
	TypedTables sqlexpr.Expr
}

func (j Job) ParentsOf(relation string, where sqlexpr.Expr) sqlexpr.Expr {
	return sqlexpr.Format("SELECT DISTINCT parent.id::bigint FROM ONLY %s AS r, LATERAL (%s) AS parent (id) WHERE %s",
		relation, j.ParentIDs, where)
}

// Except are rows that are retained because parents of another task are.
type Except struct {
	Task    string
	Parents *Parents
	// Condition is true for the retained rows. Its placeholder ParentIDs stands for the ids of the retained parents.
	Condition        sqlexpr.Expr
	ReadsDistributed bool
	Rights           []string
}

// Drop is a kind of work table, compiled for a database.
type Drop struct {
	WorkTables
	Owner *campaign.Table
	// Rule describes the owners whose tables are in use; empty if the tables of all owners are.
	Rule string
	// InUse is a query for those ids among IDs whose tables are in use.
	InUse sqlexpr.Expr
	// HasOwners is a query for whether there is any owner: an empty table of owners proves nothing.
	HasOwners sqlexpr.Expr
	// Groups is the table of lists; nil if it cannot be read. KnownLists is a query for those ids among IDs that are
	// lists, and HasLists for whether there is any list.
	Groups               *campaign.Table
	KnownLists, HasLists sqlexpr.Expr
}

// DependsOn returns the names of the tasks whose outcome in a run changes what this task does.
func (p *Plan) DependsOn() []string {
	names := slices.Clone(p.Task.Requires)
	var args []any
	if p.Parents != nil {
		args = slices.Concat(p.Parents.From.Args(), p.Parents.Where.Args())
	}
	for _, j := range p.Jobs {
		args = append(args, j.Where.Args()...)
		for _, o := range j.Orphans {
			names = append(names, o.EmptyAfter)
		}
		if j.Except != nil {
			names = append(names, j.Except.Task)
		}
	}
	for _, a := range args {
		switch a.(type) {
		case SucceededTask, DryRunDeleted, RolledUpFrom:
			names = append(names, fmt.Sprint(a))
		}
	}
	return names
}

// Placeholders for arguments that are known only when a job runs.
type (
	// ParentIDs are the ids of the current parents.
	ParentIDs struct{}
	// IDs are the ids that a query looks up, such as those in the names of work tables.
	IDs struct{}
	// RemoteIDs are those of the current ids that are retained on their mid-sourcing servers. If there are none, the
	// companion statement is left out.
	RemoteIDs struct{}
	// SucceededTask is whether the task of that name has succeeded in this run.
	SucceededTask string
	// DryRunDeleted is the ids of the parents that the task of that name would delete or update.
	DryRunDeleted string
	// DryRunParents is the ids of the parents whose dependent rows the task of that name would delete. Unlike
	// DryRunDeleted it includes parents that are retained themselves.
	DryRunParents string
	// RolledUpFrom is the start of the period that the task of that name would roll up, or NULL.
	RolledUpFrom string
	// Lookup is the result of a query that is run once per task.
	Lookup string
)

func (p *Plan) Skip(t *campaign.Table, why message.Message) {
	p.note(why)
	p.SkippedTables, p.WhySkipped = append(p.SkippedTables, t), append(p.WhySkipped, why)
}

// note adds a note unless there is one with the same text.
func (p *Plan) note(m message.Message) {
	if !slices.ContainsFunc(p.Notes, func(n message.Message) bool { return n.Text == m.Text }) {
		p.Notes = append(p.Notes, m)
	}
}

func (p *Plan) notef(format string, args ...any) { p.note(message.Infof(format, args...)) }

// Describe returns the rule of a job, with the rule of the parents on which its rows depend.
func (p *Plan) Describe(j Job) string {
	join := func(a, separator, b string) string {
		if a == "" || b == "" {
			return a + b
		}
		return a + separator + b
	}
	switch {
	case !j.Step.Dependent():
		return j.Rule
	case j.Step.OfParents:
		return join(p.Parents.Rule, "; and ", j.Rule)
	}
	return join(j.Rule, ", ", fmt.Sprintf("of a row of %s: %s", p.Parents.Table.Name, p.Parents.Rule))
}

// defaultLimit is the most rows of a statement if its step sets no limit.
const defaultLimit = 5_000

// JudgedByOtherServer is the location of rows that are on this server but that a rule compares with rows of a
// distributed table.
const JudgedByOtherServer = "compared with a table " + campaign.Distributed

// Compile compiles a task for a database. It fails if the task needs the delivery mappings and they could not be
// read.
func Compile(t Task, env Env) (*Plan, error) {
	p := &Plan{Task: t}
	if t.ParentRule != nil {
		before := env
		before.Predecessors = slices.DeleteFunc(slices.Clone(env.Predecessors),
			func(predecessor Task) bool { return predecessor.Name == t.Name })
		var err error
		if p.Parents, err = compileParents(p, *t.ParentRule, before); err != nil {
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
			found, err := findOnHold(env, p, table, false)
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
	if s.plan.Task.Kind == Policy { // name all missing rights at once, even if the rule cannot be compiled without them
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
	job.Estimates = c.estimates(s.step, job)
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
	alone := &Plan{Task: s.plan.Task, Parents: s.plan.Parents} // the task's plan drops repeated notes
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
	job.NoTIDs, job.Key, job.Older = job.Location != "", job.Table.ShownKey(), s.older(job.Table)
	job.Unit, job.Name, job.Relation = fmt.Sprintf("%d %s", s.number, leaf.Quoted()), leaf.Name, leaf.Quoted()
	job.Root, job.Facts = job.Table.Quoted(), s.facts(leaf, job)
	job.Childless = s.step.childless()
	job.Partition, job.Partitions = leaf.Quoted() != job.Table.Quoted(), s.step.Partitions
	job.PartitionOnHold = s.env.Holds.hasTable(job.Table) || s.env.Holds.hasLeaf(leaf)
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

const isEmpty = "it is empty"

// spares returns why the step cannot match any row of a leaf, as far as that is known without reading the leaf; "" if
// it may match some.
func (s *stepCompiler) spares(leaf campaign.Leaf, table *campaign.Table) string {
	switch {
	case s.step.Dependent(): // rows that arrive in the meantime would lose their parents
		return ""
	case leaf.Empty:
		return isEmpty
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

// compiler compiles the SQL of one statement on one table, and adds notes and missing rights to the plan.
type compiler struct {
	env         Env
	plan        *Plan
	table       *campaign.Table
	readsOthers bool
	// distributed is set if the SQL reads a distributed table. Rows cannot be found by their TIDs then. remote is set if
	// it reads any table with rows on other servers.
	distributed, remote bool
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
	c.remote = c.remote || t.Location != ""
	c.distributed = c.distributed || t.Location == campaign.Distributed
}

// hidesRows reports whether queries may not see all rows of a table, which is the compiled one or one that its rule
// reads. If so, it notes that the compiled table is not cleaned completely.
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

// trustedParent returns the parent table if a row that is not found in it certainly does not exist. Otherwise it adds a
// note or the missing right, and returns nil.
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
	case !t.CanSelect && c.plan.Task.Kind != Policy:
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
	// no key refers to a column that a step updates: policies must not assign those
	job.OnHold, err = findOnHold(c.env, c.plan, c.table, step.Update != nil)
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

// compileDrop adds a kind of work table to the plan's drops. If it cannot be found out which tables are in use, it only
// notes why.
func compileDrop(p *Plan, kind WorkTables, env Env) {
	if env.Catalog.Table("NmsDelivery") == nil {
		p.note(message.DeliveriesMissing.With())
		return
	}
	c := compiler{env: env, plan: p}
	d := Drop{WorkTables: kind, Owner: c.trustedParent(kind.Owner, kind.Key)}
	if d.Owner == nil {
		return
	}
	c.table = d.Owner
	if !c.applies(kind.InUse, row{"o", d.Owner}) {
		return
	}
	d.Rule = Rules{kind.InUse}.describe(env)
	d.InUse, d.HasOwners = idQuery(p, env, d.Owner, kind.Key, kind.InUse), existsQuery(p, env, d.Owner)
	if kind.Lists {
		d.Groups = env.Catalog.Table("NmsGroup")
		p.requireRights(env, d.Groups, "SELECT")
		switch {
		case d.Groups == nil:
			p.notef("table NmsGroup is missing: tables with _grp and an id in their names are retained")
		case d.Groups.RowSecurity:
			p.note(message.ListsHidden.With("table", d.Groups.Name))
			d.Groups = nil
		default:
			d.KnownLists, d.HasLists = idQuery(p, env, d.Groups, "iGroupId", nil), existsQuery(p, env, d.Groups)
		}
	}
	p.Drops = append(p.Drops, d)
}

// idQuery returns a query for the ids among IDs that are keys of rows that the rule matches.
func idQuery(p *Plan, env Env, t *campaign.Table, key string, rule Rule) sqlexpr.Expr {
	c := compiler{env: env, plan: p, table: t}
	known := sqlexpr.Format("SELECT o.%[2]s::bigint FROM %[1]s AS o WHERE o.%[2]s = ANY (%[3]s) AND o.%[2]s <> 0",
		c.afterPredecessors(t), key, sqlexpr.Arg(IDs{}, "bigint[]"))
	matches, _ := c.allParts(rule, row{"o", t})
	return sqlexpr.Join(" AND ", known, matches)
}

func existsQuery(p *Plan, env Env, t *campaign.Table) sqlexpr.Expr {
	c := compiler{env: env, plan: p, table: t}
	return sqlexpr.Format("SELECT EXISTS (SELECT FROM %s AS o)", c.afterPredecessors(t))
}
