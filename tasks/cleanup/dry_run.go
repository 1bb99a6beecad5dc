package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// DryRun does a dry run. Its error is that of the failed tasks, ErrStopped, or one that wraps
// ErrLost; nil if no task failed.
func DryRun(ctx context.Context, c Config, j Journal) error {
	x := newExecutor(ctx, c, j)
	if c.WhatIf != nil {
		stored := c
		stored.WhatIf = nil
		x.baseline = newExecutor(ctx, stored, silent{j})
	}
	engine := x.run.Database.Engine
	err := engine.Retry(ctx, "the standby", func() error { return x.awaitStandby(ctx) })
	if err == nil {
		err = x.run.Begin(ctx)
	}
	if err != nil {
		return lostAs(x.standbyError(ctx, err))
	}
	x.resume()
	if x.baseline != nil {
		x.baseline.resume()
	}
	return lostAs(x.run.Tasks(ctx, x))
}

type counting struct {
	run   *Run
	found *results
	// baseline is the dry run with the stored options, if this one replaces some of them.
	baseline *counting
	// parentsOnly is set if only the parents of tasks are determined and no rows are counted.
	parentsOnly bool
}

// newExecutor returns an executor that reads from the standby, if there is one.
func newExecutor(ctx context.Context, c Config, j Journal) *counting {
	x := &counting{run: NewRun(ctx, c, j, cmp.Or(c.Standby.Pool, c.Pool))}
	x.found = newResults(x.run.Config.Chosen)
	x.run.State.DryRun = &x.found.state
	x.run.Database.Predecessors = x.found.predecessors
	return x
}

func (x *counting) resume() {
	for _, t := range x.found.chosen {
		if done, ok := x.run.Config.Done[t.Name]; ok {
			x.found.resume(t, done)
		}
		if x.run.Config.Failed[t.Name] {
			x.markIneffective(t)
		}
	}
}

// markIneffective records that a task that failed or was not run would change nothing, unless its parents are known: it
// does a part of its work then.
func (x *counting) markIneffective(t rules.Task) {
	if x.found.state.Deleted[t.Name] == nil {
		x.found.ineffective[t.Name] = true
		x.run.Database.ForgetPlans() // the compiled tasks depend on its changes
	}
}

// Try calls attempt only once, since a second attempt would count rows twice.
func (x *counting) Try(ctx context.Context, _ string, attempt func() error) error {
	return x.standbyError(ctx, attempt())
}

func (x *counting) Finish(ctx context.Context, t rules.Task, a *Attempt, o *Outcome) error {
	x.found.problems[t.Name] = cmp.Or(o.Problem, message.Join(o.Details))
	if a != nil {
		o.Preview = x.preview(x.run.Database.InZone(ctx), a)
		if err := x.previewUndo(ctx, a, o); err != nil {
			return err
		}
		if grants := a.runRights(); grants != nil && a.Plan.Rights == nil { // otherwise the error has them
			o.Details = append(o.Details, message.RunLacksRights.With("grants", strings.Join(grants, "; ")))
		}
	}
	if x.baseline != nil && a != nil {
		if err := x.compare(ctx, t, o); err != nil {
			return err
		}
	}
	if o.State == Failed || o.State == NotRun {
		x.markIneffective(t)
		if x.baseline != nil {
			x.baseline.markIneffective(t)
		}
	}
	return nil
}

type countedTask struct {
	*Attempt
	run   *Run
	found *results
	// parentsOnly is set if only the parents of tasks are determined and no rows are counted.
	parentsOnly bool
	parents     rules.ChosenParents
	// expected is how many rows would be deleted or updated; negative if unknown.
	expected   int64
	referenced map[*campaign.Table]bool
}

func (x *counting) Do(ctx context.Context, a *Attempt) (done bool, err error) {
	t := &countedTask{Attempt: a, run: x.run, found: x.found, parentsOnly: x.parentsOnly, expected: -1}
	return t.count(ctx)
}

// count counts what the task would do. done is false if there was nothing to do.
func (t *countedTask) count(ctx context.Context) (done bool, err error) {
	if t.parents, err = t.chooseParents(ctx); err != nil {
		return false, err
	}
	if !t.parentsOnly {
		t.expected = estimateRows(ctx, t.Binder, t.Jobs, t.parents)
	}
	if err := t.countJobs(ctx, t.parents); err != nil {
		return false, err
	}
	for _, table := range t.found.tables.all {
		table.logPartitions(ctx, t)
	}
	if t.parentsOnly {
		rolledUp, err := t.rollUp(ctx)
		return rolledUp || len(t.Jobs) > 0, err
	}
	if err := countOnHold(ctx, t.Attempt); err != nil {
		return false, err
	}
	if done, err = doEach(ctx, t.rollUp, t.dropWorkTables, t.vacuum); err != nil {
		return false, err
	}
	return done || len(t.Jobs) > 0, t.judge(ctx)
}

// chooseParents chooses the parents, and records them for the tasks that follow.
func (t *countedTask) chooseParents(ctx context.Context) (parents rules.ChosenParents, err error) {
	name := t.Task.Name
	t.found.parents[name] = t.Parents
	if parents, err = chooseParents(ctx, t.Attempt); err != nil {
		return parents, err
	}
	if parents.IDs, err = t.PurgeMidSourced(ctx, parents, countedRemote{t}); err != nil {
		return parents, err
	}
	if t.Task.ParentRule != nil {
		t.found.recordParents(name, parents)
		t.run.State.RetainedParents[name] = t.ParentsRetained
	}
	return parents, nil
}

func (t *countedTask) rollUp(ctx context.Context) (bool, error) {
	p, rows, ok, err := prepareRollUp(ctx, t.Attempt)
	if err != nil || rows == 0 {
		return ok, err
	}
	t.run.Journal.At(p.Table.Name, rows)
	from := p.Start.Time
	t.found.state.RolledUp[t.Task.Name] = &from
	sum := purge.Tally{Rows: rows}
	if err := t.Binder.Engine.Retry(ctx, p.Table.Name, func() error {
		return addDates(ctx, t.Binder.Pool, "r."+p.Date, p.Rows(), &sum)
	}); err != nil {
		return false, err
	}
	table := t.found.tables.at(p.Table.Quoted(), ActionDelete, p.Rule())
	table.remark(p.Remark())
	table.add(p.Table, p.Table.Quoted(), sum)
	table.found[p.Table.Quoted()] -= rows
	return true, t.run.Journal.Count(ctx, purge.Delta{Deleted: rows})
}

func (t *countedTask) vacuum(ctx context.Context) (bool, error) {
	if !t.Task.Vacuums {
		return false, nil
	}
	commands, tables, err := PrepareVacuum(ctx, t.Attempt, t.run.Config.VacuumTruncate)
	if err != nil {
		return false, err
	}
	for _, g := range commands.Groups(tables) {
		t.Log(ctx, message.Infof("would run %s on %d tables", g.Command, len(g.Tables)))
	}
	return true, nil
}

// Simulation determines the parents of tasks and counts no rows. Explaining a single row is based on it.
type Simulation struct {
	executor *counting
}

func Simulate(ctx context.Context, c Config, holds rules.Holds) (*Simulation, error) {
	c.DryRun, c.ContinueOnError, c.Chosen, c.Todo = true, true, c.Pipeline, nil
	x := newExecutor(ctx, c, Discard{Held: holds})
	x.parentsOnly = true
	x.run.Database.OnHold.ConditionsOnly = true
	return &Simulation{x}, x.run.Database.Refresh(ctx)
}

func (s *Simulation) Database() *Database { return s.executor.run.Database }

// Do simulates tasks in the order of the pipeline. A task that fails becomes ineffective.
func (s *Simulation) Do(ctx context.Context, tasks []rules.Task) error {
	s.executor.run.Config.Todo = tasks
	err := s.executor.run.Tasks(ctx, s.executor)
	if errors.Is(err, ErrLost) || sqlstate.Lost(err) || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	return nil
}

func (s *Simulation) Ineffective(task string) (problem string, ineffective bool) {
	return s.executor.found.problems[task], s.executor.found.ineffective[task]
}

// LacksRights says which rights a run of the task needs, beyond those of a dry run, that the role lacks; empty if none.
func (s *Simulation) LacksRights(p *rules.Plan) string {
	grants := s.Attempt(p).runRights()
	if grants == nil {
		return ""
	}
	return rules.MissingRights(grants).Error()
}

func (s *Simulation) Rows(ctx context.Context, relations map[string]bool) ([]rules.JobRows, error) {
	chosen := s.executor.found.chosen
	p, err := s.Database().Compile(chosen[len(chosen)-1])
	if err != nil {
		return nil, err
	}
	return lookahead{s.executor.run, s.executor.found, s.Attempt(p)}.rows(ctx, relations)
}

// Attempt returns an attempt that sees its tables as the tasks before it would have left them.
func (s *Simulation) Attempt(p *rules.Plan) *Attempt { return s.executor.run.NewAttempt(p) }

// Concerning returns the tasks that match a filter, and those on whose outcome they depend, in the order of the
// pipeline.
func (s *Simulation) Concerning(filter func(*rules.Plan) bool) ([]rules.Task, error) {
	concerns := map[string]bool{}
	all := s.executor.found.chosen
	for _, t := range slices.Backward(all) { // tasks depend on earlier ones
		p, err := s.Database().Compile(t)
		if err != nil {
			return nil, err
		}
		if !filter(p) && !concerns[t.Name] {
			continue
		}
		concerns[t.Name] = true
		for _, name := range p.DependsOn() {
			concerns[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(t rules.Task) bool { return !concerns[t.Name] }), nil
}

const maxNames = 20

// table is what the current task would do to a table, or to the work tables of a kind.
type table struct {
	PreviewTable
	of          *campaign.Table // nil for work tables
	found       trashed         // without those that could not go to the trash
	dropped     []string        // all names, quoted
	foreignView bool            // whether one of them is a view of another role
}

type tables struct{ all []*table }

func (ts *tables) at(name string, action PreviewAction, rule string) *table {
	for _, t := range ts.all {
		if t.Table == name && t.Action == action {
			switch {
			case t.Rule == "":
				t.Rule = rule
			case !strings.Contains(t.Rule, rule):
				t.Rule += "; or " + rule
			}
			return t
		}
	}
	t := &table{PreviewTable: PreviewTable{Table: name, Action: action, Rule: rule}}
	ts.all = append(ts.all, t)
	return t
}

// of returns what a task would do to the table of a job.
func (ts *tables) of(p *rules.Plan, j rules.Job) *table {
	t := ts.at(j.Table.Quoted(), actionOf(j), p.Describe(j))
	t.of = j.Table
	return t
}

func (ts *tables) has(name string, action PreviewAction) bool {
	return slices.ContainsFunc(ts.all, func(t *table) bool { return t.Table == name && t.Action == action })
}

// take returns the tables, and removes them from ts. It leaves out a table without rows, unless a guard trips for it or
// it has remarks.
func (ts *tables) take() (taken []*table) {
	for _, t := range ts.all {
		if t.Rows > 0 || t.Tables > 0 || t.Partitions > 0 || t.Guards != nil || t.Remarks != nil {
			taken = append(taken, t)
		}
	}
	ts.all = nil
	return taken
}

func (t *table) add(of *campaign.Table, relation string, found purge.Tally) {
	t.of = of
	sum := purge.Tally{Oldest: t.Oldest, Newest: t.Newest, Keys: t.Sample}
	sum.Add(found)
	t.Rows, t.Oldest, t.Newest, t.Sample = t.Rows+found.Rows, sum.Oldest, sum.Newest, sum.Keys
	if t.found == nil {
		t.found = trashed{}
	}
	if t.found[relation] != whole {
		t.found[relation] += found.Rows
	}
}

func (t *table) addDropped(w campaign.WorkTable) {
	t.Tables++
	t.dropped = append(t.dropped, w.Quoted())
	t.foreignView = t.foreignView || w.View && w.ByFunction
	if len(t.Names) < maxNames {
		t.Names = append(t.Names, w.Name)
	}
}

// addPartition adds a partition that would be dropped or detached with all of its rows.
func (t *table) addPartition(j rules.Job) {
	t.Partitions++
	t.add(j.Table, j.Relation, purge.Tally{}) // if it has no rows
	t.found[j.Relation] = whole
	if t.Action == ActionDetach {
		t.dropped = append(t.dropped, j.Relation)
	}
	if len(t.Names) < maxNames {
		t.Names = append(t.Names, j.Name)
	}
}

func (t *table) logPartitions(ctx context.Context, to *countedTask) {
	if t.Partitions == 0 {
		return
	}
	names := strings.Join(t.Names, ", ")
	if more := t.Partitions - int64(len(t.Names)); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	m := message.PartitionsToDrop.With("table", t.of.Name, "partitions", t.Partitions, "names", names)
	if t.Action == ActionDetach {
		m = message.PartitionsToDetach.With("table", t.of.Name, "partitions", t.Partitions, "names", names)
	}
	to.Log(ctx, m)
}

// remark adds a remark, unless the table has it already.
func (t *table) remark(text string) {
	if !slices.Contains(t.Remarks, text) {
		t.Remarks = append(t.Remarks, text)
	}
}

// addCaveats adds remarks on what else happens when the rows of a job are deleted or updated: on other servers, by the
// companion statement, and by foreign keys.
func (t *table) addCaveats(j rules.Job) {
	if j.NoTIDs {
		t.remark("rows are " + j.Location + ": it is unknown what another server does with them")
	}
	if j.Companion != nil && j.CompanionWrites != "" {
		t.remark(j.CompanionWrites + " are inserted")
	}
	if t.Action != ActionDelete {
		return
	}
	for _, c := range j.Table.Cascades {
		if j.Childless && c.Table != j.Table {
			continue
		}
		remark := "a foreign key deletes or changes rows of " + c.Table.NameIn(j.Table.Schema) + " that refer to these"
		if !c.Table.CanSelect || j.NoTIDs || c.Table.Location != "" {
			remark += ", which are not counted here"
		}
		t.remark(remark)
	}
}
