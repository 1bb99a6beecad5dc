package guard

import (
	"context"
	"fmt"
)

// SafetyFactor is how many times smaller than a limit an estimate must be to make counting unnecessary.
const SafetyFactor = 10

// Rows are the rows of a table that a task would delete or update.
type Rows struct {
	// Table is the quoted name.
	Table string
	// Empties is set if the task regularly empties the table: the share of the deleted rows then means nothing.
	Empties bool
	// Orphans is set if a policy deletes rows because their parents are missing. They may only seem to be missing, for
	// example while they are being loaded, so the share is judged even in small tables.
	Orphans bool
	// Before is how many rows earlier tasks of a dry run would delete.
	Before int64
	// CutoffMoved is set if a cutoff of the task has moved by more than the time that passed.
	CutoffMoved bool
	// Options are the task's current options. DryRun is set in a dry run, which shows guards that have refused
	// the task even if their numbers are small.
	Options map[string]string
	DryRun  bool
	// Unproven is set if a policy's rule has not run yet and the run follows no saved plan.
	Unproven bool
}

// Figures are the numbers that judgements need. They are read only when needed, and counts stop at one more than
// enough.
type Figures interface {
	// Estimate returns about how many rows would be deleted; infinite if unknown.
	Estimate(ctx context.Context) (float64, error)
	// Total returns the number of the table's rows according to the planner's statistics, and whether these are recent.
	Total(ctx context.Context) (rows float64, fresh bool, err error)
	CountTotal(ctx context.Context) (float64, error)
	Count(ctx context.Context, enough int64) (int64, error)
	CountWithoutDelays(ctx context.Context, enough int64) (int64, error)
	CountSinceCutoff(ctx context.Context, enough int64) (int64, error)
}

type Judgement struct {
	Trips []Trip
	// Bound is the guard whose limit the run must not exceed while it deletes; nil for none.
	Bound *Trip
}

func (h *History) JudgeRows(ctx context.Context, r Rows, f Figures) (j Judgement, err error) {
	estimate, err := f.Estimate(ctx)
	if err != nil {
		return j, err
	}
	for _, judge := range []func() (*Trip, error){
		func() (*Trip, error) { return judgePolicy(ctx, r, f) },
		func() (*Trip, error) { return h.judgeShare(ctx, r, f, estimate, &j) },
		func() (*Trip, error) { return h.judgeGrowth(ctx, r, f, estimate) },
		func() (*Trip, error) { return h.judgeCutoff(ctx, r, f, estimate) },
	} {
		trip, err := judge()
		if err != nil {
			return j, fmt.Errorf("count the rows of %s for the guards: %w", r.Table, err)
		}
		if trip != nil {
			j.Trips = append(j.Trips, *trip)
		}
	}
	if r.Unproven && j.Trips == nil { // rows may still become obsolete during the run
		j.Bound = &Trip{Guard: Policy, Table: r.Table}
	}
	return j, nil
}

// judgePolicy trips on any row if the policy's rule has not run yet.
func judgePolicy(ctx context.Context, r Rows, f Figures) (*Trip, error) {
	if !r.Unproven {
		return nil, nil
	}
	n, err := f.Count(ctx, 0)
	if err != nil || n == 0 {
		return nil, err
	}
	return &Trip{Guard: Policy, Table: r.Table, Number: n, AtLeast: !r.DryRun}, nil
}

// judgeShare checks the share of a table's rows that would be deleted. All tasks and runs within SharePeriod count
// together.
func (h *History) judgeShare(ctx context.Context, r Rows, f Figures, estimate float64, j *Judgement) (*Trip, error) {
	if h.MaxSharePercent == 0 || r.Empties {
		return nil, nil
	}
	former, refused := h.Deletions[r.Table], h.IsRefused(Share, r.Table, r.Options)
	recent := former.Recent + r.Before
	total, fresh, err := f.Total(ctx)
	if err != nil {
		return nil, err
	}
	limit := func(deleted int64) int64 {
		floor := h.minRows()
		if r.Orphans { // what earlier tasks and runs deleted says nothing about the parents
			floor = recent + int64(total*h.MaxSharePercent/100)
		}
		return h.limit(Share, r.Table, (total+float64(deleted))*h.MaxSharePercent/100, floor)
	}
	t := Trip{Guard: Share, Table: r.Table, Number: recent, Recent: recent}
	t.Limit, t.Total = limit(0), int64(total) // the statistics may include rows that were deleted
	if about := (float64(recent) + estimate) * SafetyFactor; !refused &&
		((about < float64(t.Limit) && fresh) || (about < float64(h.minRows()) && !r.Orphans)) {
		j.Bound = &t
		return nil, nil
	}
	if !fresh || former.RecentDeleted > 0 {
		if total, err = f.CountTotal(ctx); err != nil {
			return nil, err
		}
		t.Limit, t.Total = limit(former.RecentDeleted), int64(total)+former.RecentDeleted
	}
	enough := max(t.Limit-recent, 0)
	n, err := f.Count(ctx, enough)
	if err != nil {
		return nil, err
	}
	counted := t
	counted.Number, counted.AtLeast = recent+n, n > enough && !r.DryRun
	if (n > 0 && counted.Number > t.Limit) || (r.DryRun && refused) {
		return &counted, nil
	}
	j.Bound = &t
	return nil, nil
}

func (h *History) judgeGrowth(ctx context.Context, r Rows, f Figures, estimate float64) (*Trip, error) {
	typical := h.Deletions[r.Table].Typical
	if h.MaxGrowth == 0 {
		return nil, nil
	}
	t := Trip{Guard: Growth, Table: r.Table}
	t.Limit = h.limit(Growth, r.Table, h.MaxGrowth*float64(typical), h.minRows())
	return h.judgeCount(ctx, r, t, typical > 0, estimate, f.CountWithoutDelays)
}

// judgeCutoff checks the number of rows between a former cutoff and one that has moved too fast.
func (h *History) judgeCutoff(ctx context.Context, r Rows, f Figures, estimate float64) (*Trip, error) {
	if !h.Cutoff {
		return nil, nil
	}
	t := Trip{Guard: Cutoff, Table: r.Table, Limit: h.limit(Cutoff, r.Table, 0, h.minRows())}
	return h.judgeCount(ctx, r, t, r.CutoffMoved, estimate, f.CountSinceCutoff)
}

// judgeCount counts the rows if the guard applies and the estimate is not far below the limit, or if the guard has
// refused the task before. It returns a trip if the count exceeds the limit.
func (h *History) judgeCount(
	ctx context.Context, r Rows, t Trip, applies bool, estimate float64,
	count func(ctx context.Context, enough int64) (int64, error),
) (*Trip, error) {
	refused := h.IsRefused(t.Guard, r.Table, r.Options)
	if !refused && (!applies || estimate*SafetyFactor < float64(t.Limit)) {
		return nil, nil
	}
	var err error
	if t.Number, err = count(ctx, t.Limit); err != nil {
		return nil, err
	}
	t.AtLeast = t.Number > t.Limit && !r.DryRun
	if t.Number > t.Limit || (r.DryRun && refused) {
		return &t, nil
	}
	return nil, nil
}
