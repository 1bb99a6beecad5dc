package execute

import (
	"context"
	"fmt"

	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// estimate is how many rows the jobs will delete or update; negative when unknown. Only progress depends on it.
func (t *task) estimate(ctx context.Context, jobs []plan.Job, parents []int64) int64 {
	if len(jobs) == 0 {
		return -1
	}
	var sweeps []purge.Sweep
	var scales []float64
	for _, j := range jobs {
		s, scale, err := t.sample(ctx, j, parents)
		if err != nil {
			return -1
		}
		sweeps, scales = append(sweeps, s), append(scales, scale)
	}
	rows, ok, err := t.engine.Estimate(ctx, sweeps...)
	if err != nil || !ok {
		return -1
	}
	expected := 0.0
	for i, n := range rows {
		expected += float64(n) * scales[i]
	}
	return int64(expected)
}

// sample is the sweep to estimate in place of a job's. For rows that belong to the task's set it has only the ids as
// condition: the conditions by which these were found are redundant, which the planner cannot know. Of many ids it has
// some, and scale is the factor for the result.
func (t *task) sample(ctx context.Context, j plan.Job, parents []int64) (s purge.Sweep, scale float64, err error) {
	ids := parents[:min(len(parents), parentsAtOnce)]
	if s, err = t.bind(ctx, &j, ids); err != nil {
		return s, 0, err
	}
	link := j.Step.Link
	if j.Step.OfParents {
		link = t.plan.Parents.Key
	}
	switch {
	case !j.Step.Dependent() || link == "" || len(j.Step.Rules) > 0:
		return s, 1, nil
	case len(ids) == 0:
		return s, 0, nil
	}
	s.Keys, s.ReadsOthers = nil, false
	s.Where, s.Args = fmt.Sprintf("r.%s = ANY ($1::bigint[])", link), []any{ids}
	return s, float64(len(parents)) / float64(len(ids)), nil
}
