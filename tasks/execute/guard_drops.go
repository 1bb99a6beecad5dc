package execute

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/worktables"
)

// guardDrops fails with a guard.TrippedError if the task would drop an unusual number of work tables that was not
// accepted. None is dropped by then.
func (t *task) guardDrops(ctx context.Context, kinds []worktables.Kind) error {
	if t.History == nil {
		return nil
	}
	var names []string
	for _, k := range kinds {
		if len(k.Tables) == 0 {
			continue
		}
		unused, err := k.Unused(ctx, t.Binder.Pool, k.Tables)
		if err != nil {
			return err
		}
		names = append(names, worktables.Quoted(unused)...)
	}
	trips, err := t.judgeDrops(ctx, worktables.TaskMask(t.Plan), names)
	if err != nil {
		return err
	}
	return guard.Refuse(trips)
}

// judgeDrops returns the guards that trip for work tables that would be dropped, given by their quoted names.
func (t *task) judgeDrops(ctx context.Context, mask string, names []string) ([]guard.Trip, error) {
	return t.History.JudgeDrops(ctx, guard.Drops{
		Mask:    mask,
		Tables:  int64(len(names)),
		Options: t.Options(),
		Sizes: func(ctx context.Context) (tables, database int64, err error) {
			return worktables.Sizes(ctx, t.Binder.Pool, names)
		},
	})
}

// judgeListTables returns the guards that trip for the tables of lists that would be deleted.
func (t *task) judgeListTables(ctx context.Context, parents binding.Parents) ([]guard.Trip, error) {
	i := slices.IndexFunc(t.Jobs, func(j plan.Job) bool { return j.Step.Tables != nil })
	if i < 0 || len(parents.IDs) == 0 {
		return nil, nil
	}
	j := t.Jobs[i]
	s, err := t.Binder.Sweep(ctx, &j, parents.Own())
	if err != nil {
		return nil, err
	}
	rows, err := t.Binder.Pool.Query(ctx, fmt.Sprintf(
		"SELECT r.%s::bigint FROM %s AS r WHERE (%s) AND %s", s.ByKey, s.Relation, s.Where, j.TypedTables,
	), s.Args...)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("ask which lists have tables: %w", err)
	}
	prefix := j.Step.Tables.Prefix
	tables, err := t.env().Catalog.WorkTablesOf(ctx, t.Binder.Pool, prefix, ids)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(tables, func(w campaign.WorkTable) bool {
		return !t.isPlannedDrop(w) || t.env().Holds.WorkTable(w, "")
	})
	onHold, err := t.workTableHolds().WithRecipients(ctx, tables)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(tables, func(w campaign.WorkTable) bool { return onHold[w.Name] })
	return t.judgeDrops(ctx, worktables.Mask(prefix), worktables.Quoted(tables))
}
