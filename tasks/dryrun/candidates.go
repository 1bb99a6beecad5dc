package dryrun

import (
	"context"
	"slices"

	"github.com/cleanupd/cleanupd/tasks/candidates"
	"github.com/cleanupd/cleanupd/tasks/hold"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// lookahead determines what all tasks would delete while one of them is current, as far as that is known.
type lookahead struct {
	run   *pipeline.Run
	found *results
	// current is the attempt of the current task; those of other tasks are simulated.
	current *pipeline.Attempt
}

// candidates returns the rows that the tasks would delete or update in some relations. They are in the order of the
// tasks, up to the first job whose rows are not known yet.
func (s lookahead) candidates(ctx context.Context, relations map[string]bool) (all []candidates.Set, err error) {
	for _, t := range s.found.chosen {
		a := s.current
		if t.Name != a.Task.Name {
			if s.found.ineffective[t.Name] {
				continue
			}
			p, err := s.run.Database.Compile(t)
			if err != nil || p.Rights != nil {
				return all, err
			}
			a = s.run.NewAttempt(p)
		}
		for _, j := range a.Plan.Jobs {
			if !relations[j.Relation] && len(candidates.Cascaded(j, j.Sweep, relations)) == 0 {
				continue
			}
			sets, known, err := s.ofJob(ctx, a, j)
			if err != nil {
				return nil, err
			}
			if !known {
				return all, nil
			}
			for _, set := range sets {
				if relations[set.Job.Relation] {
					all = append(all, set)
				}
			}
		}
	}
	return all, nil
}

// ofJob returns the rows of a job, including those of foreign keys; there are none if the job has no parents. known
// is false if the rows depend on tasks that have not been done.
func (s lookahead) ofJob(
	ctx context.Context, a *pipeline.Attempt, j plan.Job,
) (sets []candidates.Set, known bool, err error) {
	emptied := slices.ContainsFunc(j.Orphans, func(o plan.Orphan) bool { return o.EmptyAfter != "" })
	if emptied && s.found.follows(a.Task.Name, s.current.Task.Name) {
		return nil, false, nil
	}
	var ids []int64
	if j.Step.Dependent() {
		if known, err = s.loadParents(ctx, a.Task); err != nil || !known {
			return nil, false, err
		}
		ids = s.found.state.Processed[a.Task.Name]
		if j.Step.OfParents {
			ids = s.found.state.Deleted[a.Task.Name]
		}
		if len(ids) == 0 {
			return nil, true, nil
		}
	}
	for _, t := range s.found.chosen { // the job's condition reads their parents
		if !slices.Contains(j.Where.Args(), any(plan.DryRunSet(t.Name))) {
			continue
		}
		if known, err = s.loadParents(ctx, t); err != nil || !known {
			return nil, false, err
		}
	}
	sweep, err := a.Binder.Sweep(ctx, &j, ids)
	if err != nil {
		return nil, false, err
	}
	return candidates.Of(a.Task.Name, j, sweep), true, nil
}

// loadParents determines the parents of a task, and of the tasks before it, which may not have begun. known is
// false if mid-sourcing servers decide which parents are deleted.
func (s lookahead) loadParents(ctx context.Context, t plan.Task) (known bool, err error) {
	for _, before := range s.found.predecessors(t.Name) {
		if _, known := s.found.state.Deleted[before.Name]; known || before.ParentSet == nil {
			continue
		}
		if before.ParentSet.MidSourced && s.found.follows(before.Name, s.current.Task.Name) {
			return false, nil
		}
		p, err := s.run.Database.Compile(before)
		if err != nil {
			return false, err
		}
		b := s.run.Database.Binder(p, s.run.State)
		ids, err := b.Parents(ctx, p.Parents)
		if err != nil {
			return false, err
		}
		parents, _, err := hold.Parents(ctx, b, p.Jobs, ids)
		if err != nil {
			return false, err
		}
		s.found.recordParents(before.Name, parents)
	}
	return true, nil
}

func (t *task) related(relation string) (map[string]bool, error) {
	var jobs []plan.Job
	for _, other := range t.found.chosen {
		p, err := t.run.Database.Compile(other)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, p.Jobs...)
	}
	return candidates.Related(jobs, relation), nil
}
