package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/figures"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// sweepAll sweeps the jobs that depend on parents, for some parents at a time and step by step, and then the other
// jobs. done are the parents that were not retained.
func (t *task) sweepAll(ctx context.Context, jobs []plan.Job, parents binding.Parents) (done []int64, err error) {
	independent := func(j plan.Job) bool { return !j.Step.Dependent() }
	dependents := slices.DeleteFunc(slices.Clone(jobs), independent)
	for ids := range slices.Chunk(parents.IDs, figures.ParentsAtOnce) {
		ofStep := ids
		for i, j := range dependents {
			// A step gets the parents that the steps before it have not retained.
			if i == 0 || j.StepNumber != dependents[i-1].StepNumber {
				if j.Step.OfParents {
					if ids, err = t.retainForAttached(ctx, dependents[:i], ids); err != nil {
						return nil, err
					}
				}
				ofStep = ids
			}
			retained, err := t.sweep(ctx, j, binding.Parents{IDs: ofStep, RowsOnHold: parents.RowsOnHold})
			if err != nil {
				return nil, err
			}
			ids = t.RetainParents(ids, retained)
		}
		done = append(done, ids...)
	}
	others := slices.DeleteFunc(slices.Clone(jobs), func(j plan.Job) bool { return !independent(j) })
	first := slices.IndexFunc(others, func(j plan.Job) bool { return j.Unit == t.Cursor.Unit })
	for _, j := range others[max(first, 0):] { // a previous worker may have come as far as one of them
		if _, err := t.sweep(ctx, j, binding.Parents{}); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// sweep sweeps one job, and returns the parents that must be retained because dependent rows are.
func (t *task) sweep(ctx context.Context, j plan.Job, parents binding.Parents) (retained []int64, err error) {
	ids := parents.Of(j)
	if j.Step.OfParents && len(ids) == 0 {
		return nil, nil
	}
	if j.Step.Tables != nil {
		return nil, (&listDeleter{task: t, job: j}).delete(ctx, ids)
	}
	t.journal.Progress.At(j.Name, t.expected)
	s, err := t.Binder.Sweep(ctx, &j, ids)
	if err != nil {
		return nil, err
	}
	if saved := t.Saved(); saved != nil && j.Partitions == purge.DetachPartitions &&
		!slices.Contains(saved.Dropped, j.Relation) {
		return nil, t.retainUnplanned(ctx, j, s)
	}
	from := *t.Cursor
	from.Before = t.Retained
	result, err := t.Binder.Engine.Sweep(ctx, s, from)
	if j.CompanionWrites != "" && s.Companion != nil && sqlstate.Of(err) != "" && !sqlstate.Lost(err) {
		return t.sweepWithoutCompanion(ctx, j, parents, err)
	}
	if campaign.Dropped(ctx, t.Binder.Pool, err, s.Relation) {
		t.Log(ctx, message.TableDropped.With("table", j.Name))
		return nil, nil
	}
	var failed purge.Retained
	var remote *purge.OtherServerError
	switch {
	case errors.Is(err, purge.ErrDetached):
		t.Log(ctx, message.TableDetached.With("table", j.Name, "parent", j.Table.Name))
		failed.Tables = 1
		t.Retained = t.Retained.Plus(failed)
	case errors.As(err, &remote):
		failed = t.OtherServerFailed(ctx, j, s, remote)
	case err != nil:
		return nil, err
	}
	return t.parentsOfRetained(ctx, j, s, failed.Plus(t.report(ctx, j.Name, result)), ids), nil
}

// retainUnplanned retains a partition that would be detached, and that the saved plan does not show.
func (t *task) retainUnplanned(ctx context.Context, j plan.Job, s purge.Sweep) error {
	removes, problem, err := t.Binder.Engine.Removes(ctx, s)
	if removes {
		problem = "the saved plan does not have it"
	}
	t.report(ctx, j.Name, purge.Result{NotDetached: problem})
	return err
}

// sweepWithoutCompanion sweeps a job again after an error that may be that of the companion statement.
func (t *task) sweepWithoutCompanion(
	ctx context.Context, j plan.Job, parents binding.Parents, failed error,
) (retained []int64, err error) {
	j.Companion = nil
	if retained, err = t.sweep(ctx, j, parents); err == nil {
		t.Log(ctx, message.JobLogNotWritten.With("table", j.Name, "error", sqlstate.Explain(failed)))
	}
	return retained, err
}

// parentsOfRetained returns the parents of retained rows. They are retained, too, so that the next run finds both.
// If the parents cannot be determined, it returns all parents.
func (t *task) parentsOfRetained(
	ctx context.Context, j plan.Job, s purge.Sweep, rows purge.Retained, parents []int64,
) []int64 {
	if rows == (purge.Retained{}) || !j.Step.Dependent() {
		return nil
	}
	ids, err := t.Binder.ParentsOf(ctx, j, s)
	if err != nil {
		ids = parents
	}
	if len(ids) > 0 { // a locked table may have had no such rows
		t.Log(ctx,
			message.DependentsRetained.With("rows", len(ids), "table", t.Plan.Parents.Table.Name, "dependents", j.Name))
	}
	return ids
}

// retainForAttached retains the parents of rows in partitions that were added to tables since the task was
// compiled: no job deletes these rows. It returns the other parents.
func (t *task) retainForAttached(ctx context.Context, jobs []plan.Job, parents []int64) ([]int64, error) {
	jobs = slices.DeleteFunc(slices.Concat(jobs, t.Plan.Partitionless), func(j plan.Job) bool {
		return !j.Step.Dependent() || j.Step.OfParents
	})
	if len(jobs) == 0 {
		return parents, nil
	}
	var tables []*campaign.Table
	for _, j := range jobs {
		tables = append(tables, j.Table)
	}
	attached, err := campaign.AddedLeaves(ctx, t.Binder.Pool, tables)
	if err != nil {
		return nil, err
	}
	for i, j := range jobs {
		if i > 0 && j.StepNumber == jobs[i-1].StepNumber && j.Table == jobs[i-1].Table { // another leaf of it
			continue
		}
		for _, leaf := range attached[j.Table] {
			if parents, err = t.retainForLeaf(ctx, j, leaf, parents); err != nil {
				return nil, err
			}
		}
	}
	return parents, nil
}

// retainForLeaf retains the parents of rows in a leaf, whether or not these are on hold, or all parents if the rows
// cannot be read. It returns the other parents.
func (t *task) retainForLeaf(ctx context.Context, j plan.Job, leaf campaign.Leaf, parents []int64) ([]int64, error) {
	s, err := t.Binder.Obsolete(ctx, &j, parents)
	if err != nil {
		return nil, err
	}
	s.Relation = leaf.Quoted()
	retained, err := t.Binder.ParentsOf(ctx, j, s)
	problem := "dependent rows are in " + leaf.Name
	if err != nil {
		retained, problem = parents, fmt.Sprintf("%s may have dependent rows: %s", leaf.Name, purge.Message(err))
	}
	if len(retained) == 0 {
		return parents, nil
	}
	t.Log(ctx, message.TableAttached.With("table", leaf.Name, "parent", j.Table.Name),
		message.ParentsRetained.With("rows", len(retained), "table", t.Plan.Parents.Table.Name, "problem", problem))
	return t.RetainParents(parents, retained), nil
}
