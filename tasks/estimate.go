package tasks

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/cleanupd/cleanupd/tasks/purge"
)

// estimate is how many rows the sweeps of a task will delete or update; negative when unknown. Only progress depends on it.
func (e *Env) estimate(ctx context.Context, units []unit) int64 {
	if len(units) == 0 {
		return -1
	}
	var sweeps []purge.Sweep
	var scales []float64
	for i, u := range units {
		if slices.ContainsFunc(units[:i], u.meets) { // estimated with the first of them
			continue
		}
		asked, scale := e.ofSet(u)
		for _, other := range units[i+1:] {
			if u.meets(other) {
				asked.Where = fmt.Sprintf("(%s) OR (%s)", asked.Where, shifted(other.Where, len(asked.Args)))
				asked.Args = slices.Concat(asked.Args, other.Args)
			}
		}
		sweeps, scales = append(sweeps, asked), append(scales, scale)
	}
	rows, ok, err := e.engine.Estimate(ctx, sweeps...)
	if err != nil || !ok {
		return -1
	}
	expected := 0.0
	for i, n := range rows {
		expected += float64(n) * scales[i]
	}
	return int64(expected)
}

// meets reports whether two sweeps may match the same rows of a table.
func (u unit) meets(other unit) bool {
	return u.Relation == other.Relation && u.Set == nil && other.Set == nil && !u.step.dependent() && !other.step.dependent()
}

var parameter = regexp.MustCompile(`\$(\d+)`)

// shifted is a condition with its parameter numbers increased.
func shifted(where string, by int) string {
	return parameter.ReplaceAllStringFunc(where, func(p string) string {
		number, _ := strconv.Atoi(p[1:])
		return fmt.Sprintf("$%d", number+by)
	})
}

// ofSet is the sweep to estimate in place of a unit's. For rows that belong to the task's set it has only the ids as
// condition: the conditions by which these were found are redundant, which the planner cannot know. Of many ids it has some,
// and scale is the factor for the result.
func (e *Env) ofSet(u unit) (s purge.Sweep, scale float64) {
	link := u.step.Link
	if u.step.OfSet {
		link = e.set.Key
	}
	if !u.step.dependent() || link == "" || len(u.step.Rules) > 0 {
		return u.Sweep, 1
	}
	ids := e.set.ids[:min(len(e.set.ids), setSize)]
	if len(ids) == 0 {
		return u.Sweep, 0
	}
	s = u.Sweep
	s.Keys = nil
	s.Where, s.Args = fmt.Sprintf("r.%s = ANY ($1::bigint[])", link), []any{ids}
	return s, float64(len(e.set.ids)) / float64(len(ids))
}
