package execute

import (
	"context"
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/hold"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
	"github.com/cleanupd/cleanupd/tasks/worktables"
)

// guard fails with a guard.TrippedError, before any table is dropped, if a guard trips.
func (d drops) guard(ctx context.Context, kinds []worktables.Kind) error {
	if d.task.History == nil {
		return nil
	}
	var names []string
	for _, k := range kinds {
		if len(k.Tables) == 0 {
			continue
		}
		unused, err := k.Unused(ctx, d.task.Binder.Pool, k.Tables)
		if err != nil {
			return err
		}
		names = append(names, worktables.Quoted(unused)...)
	}
	trips, err := d.judge(ctx, worktables.TaskMask(d.task.Plan), names)
	if err != nil {
		return err
	}
	return guard.Refuse(trips)
}

// judge returns the guards that trip if tables, given by their quoted names, are dropped.
func (d drops) judge(ctx context.Context, mask string, names []string) ([]guard.Trip, error) {
	return d.task.History.JudgeDrops(ctx, guard.Drops{
		Mask:    mask,
		Tables:  int64(len(names)),
		Options: d.task.Options(),
		Sizes: func(ctx context.Context) (tables, database int64, err error) {
			return worktables.Sizes(ctx, d.task.Binder.Pool, names)
		},
	})
}

func (d drops) judgeOfLists(ctx context.Context, parents binding.Parents) ([]guard.Trip, error) {
	i := slices.IndexFunc(d.task.Jobs, func(j plan.Job) bool { return j.Step.Tables != nil })
	if i < 0 || len(parents.IDs) == 0 {
		return nil, nil
	}
	j := d.task.Jobs[i]
	s, err := d.task.Binder.Sweep(ctx, &j, parents.Own())
	if err != nil {
		return nil, err
	}
	ids, err := sqlexpr.Format("SELECT r.%s::bigint FROM %s AS r WHERE (%s) AND %s", s.ByKey, s.Relation, s.Where,
		j.TypedTables).IDs(ctx, d.task.Binder.Pool)
	if err != nil {
		return nil, fmt.Errorf("read which lists have tables: %w", err)
	}
	prefix := j.Step.Tables.Prefix
	tables, err := d.task.Binder.Env.Catalog.WorkTablesOf(ctx, d.task.Binder.Pool, prefix, ids)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(tables, func(w campaign.WorkTable) bool {
		return !d.isPlanned(w) || d.task.Binder.Env.Holds.WorkTable(w, "")
	})
	onHold, err := hold.WorkTables{Attempt: d.task.Attempt}.WithRecipients(ctx, tables)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(tables, func(w campaign.WorkTable) bool { return onHold[w.Name] })
	return d.judge(ctx, worktables.Mask(prefix), worktables.Quoted(tables))
}
