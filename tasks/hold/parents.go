package hold

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Choose returns the parents of the task without those that skipped tables or holds retain, and counts the retained
// ones.
func Choose(ctx context.Context, a *pipeline.Attempt) (parents binding.Parents, err error) {
	ids, err := a.RetainForSkipped(ctx, a.Parents)
	if err != nil {
		return parents, err
	}
	parents, retained, err := Parents(ctx, a.Binder, a.Jobs, ids)
	if err != nil {
		return parents, err
	}
	a.Retained.OnHold += retained
	a.ParentsRetained = a.ParentsRetained || len(parents.IDs) < len(ids) || len(parents.RowsOnHold) > 0
	return parents, nil
}

// Parents leaves out the parents of a message whose log is on hold, since only that log shows to which parent the
// message belongs. The others are processed, except for the own rows of parents that are on hold themselves or have
// a dependent row on hold. retained is how many parents are retained only because of their dependent rows.
func Parents(
	ctx context.Context, b *binding.Binder, jobs []plan.Job, ids []int64,
) (parents binding.Parents, retained int64, err error) {
	themselves, err := parentsOnHold(ctx, b)
	if err != nil {
		return parents, 0, err
	}
	onHold := slices.Clone(themselves)
	for _, j := range jobs {
		if !j.Step.Dependent() || j.Step.OfParents || len(ids) == 0 {
			continue
		}
		by, err := parentsOfRowsOnHold(ctx, b, j, ids)
		if err != nil {
			return parents, 0, err
		}
		if j.Step.Message == "" {
			onHold = append(onHold, by...)
			continue
		}
		retained += int64(len(binding.Without(binding.Intersection(ids, by), themselves)))
		ids = binding.Without(ids, by)
	}
	parents = binding.Parents{IDs: ids, RowsOnHold: binding.Intersection(ids, onHold)}
	return parents, retained + int64(len(binding.Without(parents.RowsOnHold, themselves))), nil
}

func parentsOnHold(ctx context.Context, b *binding.Binder) ([]int64, error) {
	p := b.Plan.Parents
	if p == nil || p.OnHold.IsZero() {
		return nil, nil
	}
	onHold := *p
	onHold.Where = sqlexpr.Format("%s AND (%s) IS TRUE", p.Where, p.OnHold)
	return b.Parents(ctx, &onHold)
}

// parentsOfRowsOnHold returns the parents of those rows of the job that are on hold.
func parentsOfRowsOnHold(ctx context.Context, b *binding.Binder, j plan.Job, ids []int64) (by []int64, err error) {
	s, any, err := b.SweepOnHold(ctx, &j, ids)
	if err != nil || !any {
		return nil, err
	}
	err = b.Engine.Retry(ctx, j.Name, func() (err error) { by, err = b.ParentsOf(ctx, j, s); return err })
	if err != nil && !campaign.Dropped(ctx, b.Pool, err, s.Relation) {
		return nil, fmt.Errorf("find rows on hold in %s: %w", j.Name, err)
	}
	return by, nil
}

// Count counts the obsolete rows of all jobs that are on hold.
func Count(ctx context.Context, a *pipeline.Attempt) error {
	ofParents := func(j plan.Job) bool { return j.Step.OfParents }
	for i, j := range a.Jobs {
		countedLater := ofParents(j) && slices.ContainsFunc(a.Jobs[i+1:], ofParents)
		if countedLater || (j.Step.Dependent() && len(a.Parents) == 0) {
			continue
		}
		rows, err := countRows(ctx, a, j)
		if a.Retained.OnHold += rows; err != nil {
			return fmt.Errorf("count rows on hold in %s: %w", j.Name, err)
		}
	}
	return nil
}

// countRows counts the rows of a job that are on hold. For dependent rows a single statement is sufficient, since
// it finds them by their link to the parents.
func countRows(ctx context.Context, a *pipeline.Attempt, j plan.Job) (rows int64, err error) {
	b := a.Binder
	j.Except = nil
	s, any, err := b.SweepOnHold(ctx, &j, a.Parents)
	if err != nil || !any {
		return 0, err
	}
	if j.Step.Dependent() {
		query := sqlexpr.Format("SELECT count(*) FROM ONLY %s AS r WHERE %s", s.Relation, s.Where)
		count := func(tx pgx.Tx) error { return query.QueryRow(ctx, tx).Scan(&rows) }
		err = b.Engine.Retry(ctx, j.Name, func() error { return b.Engine.InTx(ctx, count) })
	} else {
		if s.Paired != nil {
			alone := *s.Paired
			alone.Before = nil // other jobs delete no rows on hold
			s.Paired = &alone
		}
		err = b.Engine.Count(ctx, s, func(_ context.Context, n int64) error { rows += n; return nil })
	}
	return rows, a.Uncounted(ctx, j, s, err)
}
