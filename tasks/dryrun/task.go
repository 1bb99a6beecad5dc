package dryrun

import (
	"context"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/figures"
	"github.com/cleanupd/cleanupd/tasks/hold"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rollup"
	"github.com/cleanupd/cleanupd/tasks/vacuum"
)

type task struct {
	*pipeline.Attempt
	run   *pipeline.Run
	found *results
	// setsOnly is set if only the parents of tasks are determined and no rows are counted.
	setsOnly bool
	parents  binding.Parents
	// expected is how many rows would be deleted or updated; negative if unknown.
	expected   int64
	referenced map[*campaign.Table]bool
}

func (x *executor) Do(ctx context.Context, a *pipeline.Attempt) (done bool, err error) {
	t := &task{Attempt: a, run: x.run, found: x.found, setsOnly: x.setsOnly, expected: -1}
	return t.count(ctx)
}

// count counts what the task would do. done is false if there was nothing to do.
func (t *task) count(ctx context.Context) (done bool, err error) {
	if t.parents, err = t.chooseParents(ctx); err != nil {
		return false, err
	}
	if !t.setsOnly {
		t.expected = figures.Estimate(ctx, t.Binder, t.Jobs, t.parents)
	}
	if err := t.countJobs(ctx, t.parents); err != nil {
		return false, err
	}
	for _, table := range t.found.tables.all {
		table.logPartitions(ctx, t)
	}
	if t.setsOnly {
		rolledUp, err := t.rollUp(ctx)
		return rolledUp || len(t.Jobs) > 0, err
	}
	if err := hold.Count(ctx, t.Attempt); err != nil {
		return false, err
	}
	if done, err = pipeline.DoEach(ctx, t.rollUp, t.dropWorkTables, t.vacuum); err != nil {
		return false, err
	}
	return done || len(t.Jobs) > 0, t.judge(ctx)
}

// chooseParents chooses the parents, and records them for the tasks that follow.
func (t *task) chooseParents(ctx context.Context) (parents binding.Parents, err error) {
	name := t.Task.Name
	t.found.parents[name] = t.Parents
	if parents, err = hold.Choose(ctx, t.Attempt); err != nil {
		return parents, err
	}
	if parents.IDs, err = t.PurgeMidSourced(ctx, parents, remote{t}); err != nil {
		return parents, err
	}
	if t.Task.ParentSet != nil {
		t.found.recordParents(name, parents)
		t.run.State.RetainedParents[name] = t.ParentsRetained
	}
	return parents, nil
}

func (t *task) rollUp(ctx context.Context) (bool, error) {
	p, rows, ok, err := rollup.Prepare(ctx, t.Attempt)
	if err != nil || rows == 0 {
		return ok, err
	}
	t.run.Journal.Progress.At(p.Table.Name, rows)
	from := p.Start.Time
	t.found.state.RolledUp[t.Task.Name] = &from
	sum := purge.Tally{Rows: rows}
	if err := t.Binder.Engine.Retry(ctx, p.Table.Name, func() error {
		return addDates(ctx, t.Binder.Pool, "r."+p.Date, p.Rows(), &sum)
	}); err != nil {
		return false, err
	}
	table := t.found.tables.at(p.Table.Quoted(), preview.Delete, p.Rule())
	table.remark(p.Remark())
	table.add(p.Table, p.Table.Quoted(), sum)
	return true, t.run.Journal.Counts.Count(ctx, purge.Delta{Deleted: rows})
}

func (t *task) vacuum(ctx context.Context) (bool, error) {
	if !t.Task.Vacuums {
		return false, nil
	}
	commands, tables, err := vacuum.Prepare(ctx, t.Attempt, t.run.Config.VacuumTruncate)
	if err != nil {
		return false, err
	}
	for _, g := range commands.Groups(tables) {
		t.Log(ctx, message.Infof("would run %s on %d tables", g.Command, len(g.Tables)))
	}
	return true, nil
}
