package figures

import (
	"context"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// ParentsAtOnce is the most parents for which one statement deletes rows: their ids are sent with every statement.
const ParentsAtOnce = 20_000

// Estimate returns how many rows the jobs would delete, roughly; a negative number stands for unknown. Only
// progress and the guards depend on it.
func Estimate(ctx context.Context, b *binding.Binder, jobs []plan.Job, parents binding.Parents) int64 {
	if len(jobs) == 0 {
		return -1
	}
	var sweeps []purge.Sweep
	var factors []float64
	for _, j := range jobs {
		s, factor, err := sample(ctx, b, j, parents.IDs)
		if err != nil {
			return -1
		}
		sweeps, factors = append(sweeps, s), append(factors, factor)
	}
	rows, ok, err := b.Engine.Estimate(ctx, sweeps...)
	if err != nil || !ok {
		return -1
	}
	expected := 0.0
	for i, n := range rows {
		expected += float64(n) * factors[i]
	}
	return int64(expected)
}

// sample returns a sweep to estimate instead of a job's. If rows depend on parents, its condition has only the ids:
// the planner cannot know that the conditions by which these were found are redundant. If there are many ids it has
// some of them, and factor scales the result.
func sample(
	ctx context.Context, b *binding.Binder, j plan.Job, parents []int64,
) (s purge.Sweep, factor float64, err error) {
	ids := parents[:min(len(parents), ParentsAtOnce)]
	if s, err = b.Sweep(ctx, &j, ids); err != nil {
		return s, 0, err
	}
	link := j.Step.Link
	if j.Step.OfParents {
		link = b.Plan.Parents.Key
	}
	switch {
	case !j.Step.Dependent() || link == "" || len(j.Step.Rules) > 0:
		return s, 1, nil
	case len(ids) == 0:
		return s, 0, nil
	}
	s.Keys, s.ReadsOthers = nil, false
	s.Where = sqlexpr.Format("r.%s = ANY (%s)", link, sqlexpr.Arg(ids, "bigint[]"))
	return s, float64(len(parents)) / float64(len(ids)), nil
}
