package execute

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// loadParents returns the ids of a task's set; nil: there are none.
func (t *task) loadParents(ctx context.Context, p *plan.Parents) ([]int64, error) {
	if p == nil {
		return nil, nil
	}
	args, err := t.values(ctx, p.Args, nil)
	if err != nil {
		return nil, err
	}
	return t.readIDs(ctx, p.Table, "SELECT r."+p.Key+"::bigint"+p.Rows()+" ORDER BY 1", args...)
}

// readIDs runs a query of a table for ids, and again after transient errors. It returns nil if there are none.
func (t *task) readIDs(ctx context.Context, of *campaign.Table, sql string, args ...any) (ids []int64, err error) {
	err = t.engine.Retry(ctx, of.Name, func() error {
		rows, err := t.Pool.Query(ctx, sql, args...)
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", of.Name, err)
	}
	return ids, nil
}

// exclude is some parents without others: they, and what depends on them, are left alone in this run.
func (t *task) exclude(parents, others []int64) []int64 {
	t.kept = t.kept || len(others) > 0
	return without(parents, others)
}

// without are some ids but for others.
func without(ids, others []int64) []int64 {
	if len(others) == 0 {
		return ids
	}
	stays := idSet(others)
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return stays[id] })
}

// leaveParents excludes parents, and counts them as left.
func (t *task) leaveParents(parents, others []int64) []int64 {
	rest := t.exclude(parents, others)
	t.left.Dependent += int64(len(parents) - len(rest))
	return rest
}

// retain excludes the parents of rows in tables that are passed over: without them, these rows would be orphaned.
func (t *task) retain(ctx context.Context, parents []int64) ([]int64, error) {
	if t.plan.Parents == nil || len(parents) == 0 {
		return parents, nil
	}
	for _, r := range t.plan.Parents.Retaining {
		stay, why := parents, "row security may hide rows of theirs in "+r.Table.Name
		if !r.Table.RowSecurity {
			var err error
			why = "rows of theirs are in " + r.Table.Name + ", which is left alone"
			if stay, err = t.readIDs(
				ctx,
				r.Table,
				fmt.Sprintf(
					"SELECT DISTINCT r.%s::bigint FROM %s AS r WHERE r.%[1]s = ANY ($1::bigint[])",
					r.Link,
					r.Table.Quoted(),
				),
				parents,
			); err != nil {
				return nil, err
			}
		}
		if len(stay) > 0 {
			t.log(
				ctx,
				severity.Warning,
				fmt.Sprintf("%d rows of %s stay, since %s", len(stay), t.plan.Parents.Table.Name, why),
			)
		}
		parents = t.leaveParents(parents, stay)
	}
	return parents, nil
}

// idSet is ids to look up.
func idSet(ids []int64) map[int64]bool {
	set := map[int64]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// parentsLeft returns the parents of rows that a job had to leave, so that the next run finds both. If they cannot be
// determined, these are all.
func (t *task) parentsLeft(
	ctx context.Context,
	j plan.Job,
	s purge.Sweep,
	left purge.Retained,
	parents []int64,
) []int64 {
	if left == (purge.Retained{}) || !j.Step.Dependent() {
		return nil
	}
	ids, err := t.parentsOf(ctx, j, s)
	if err != nil {
		ids = parents
	}
	if len(ids) > 0 { // a locked table may have had no such rows
		t.log(
			ctx,
			severity.Warning,
			fmt.Sprintf(
				"%d rows of %s stay, since rows of theirs stayed in %s; the next run takes both",
				len(ids),
				t.plan.Parents.Table.Name,
				j.Name,
			),
		)
	}
	return ids
}

// parentsOf returns the parents of the rows that a job has left.
func (t *task) parentsOf(ctx context.Context, j plan.Job, s purge.Sweep) (ids []int64, err error) {
	tx, err := t.engine.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	rows, err := tx.Query(
		ctx,
		fmt.Sprintf(
			"SELECT DISTINCT parent.id::bigint FROM ONLY %s AS r, LATERAL (%s) AS parent (id) WHERE %s",
			s.Relation,
			j.ParentIDs,
			s.Where,
		),
		s.Args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
