package dryrun

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/hold"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/worktables"
)

const listsAtOnce = 256

// countLists counts lists and their tables. Rows of retained lists in other tables would be deleted all the same.
func (t *task) countLists(ctx context.Context, j plan.Job, ids []int64) error {
	deleted := []int64{}
	for group := range slices.Chunk(ids, listsAtOnce) {
		t.run.Journal.Progress.At(fmt.Sprintf("%s %d", j.Name, group[0]), t.expected)
		some, err := t.countGroup(ctx, j, group)
		if err != nil {
			return err
		}
		deleted = append(deleted, some...)
	}
	t.found.state.Deleted[t.Task.Name] = deleted
	return nil
}

// countGroup counts some lists in one transaction, or each half of them separately if one has to be retained. It
// returns the lists that would be deleted.
func (t *task) countGroup(ctx context.Context, j plan.Job, ids []int64) (deleted []int64, err error) {
	err = pgx.BeginFunc(ctx, t.Binder.Pool, func(tx pgx.Tx) error {
		found, err := t.countInTx(ctx, tx, j, ids)
		if found {
			deleted = ids
		}
		return err
	})
	if err == nil {
		return deleted, nil
	}
	if len(ids) > 1 && !pipeline.EndsAttempt(err) && !sqlstate.LostInDrop(err) {
		for half := range slices.Chunk(ids, (len(ids)+1)/2) {
			some, err := t.countGroup(ctx, j, half)
			if err != nil {
				return nil, err
			}
			deleted = append(deleted, some...)
		}
		return deleted, nil
	}
	retained := worktables.RetainedBy(err)
	if retained == (purge.Retained{}) {
		return nil, err
	}
	t.Retained = t.Retained.Plus(retained)
	if retained.OnHold == 0 {
		t.Log(ctx, worktables.ListRetained(ids[0], err))
	}
	return nil, nil
}

// countInTx counts lists in a transaction. found is false if none of them is obsolete any longer.
func (t *task) countInTx(ctx context.Context, tx pgx.Tx, j plan.Job, ids []int64) (found bool, err error) {
	s, err := t.Binder.Sweep(ctx, &j, ids)
	if err != nil {
		return false, err
	}
	lists, err := worktables.ReadLists(ctx, tx, t.Binder.Env.Catalog, j, s, "")
	if err != nil || len(lists.IDs) == 0 {
		return false, err
	}
	holds := hold.WorkTables{Attempt: t.Attempt}
	if err := holds.Check(ctx, tx, lists.Tables); err != nil {
		return false, err
	}
	rows := purge.Tally{Rows: int64(len(lists.IDs)), Keys: lists.IDs[:min(len(lists.IDs), purge.SampleSize)]}
	if j.Date != "" {
		if err := addDates(ctx, tx, j.Date, lists.From, &rows); err != nil {
			return false, err
		}
	}
	parents := t.Plan.Parents
	t.found.tables.at(j.Table.Quoted(), preview.Delete, parents.Rule).add(j.Table, j.Relation, rows)
	t.found.recordDrops(worktables.Mask(j.Step.Tables.Prefix), "of a row of "+parents.Table.Name+": "+parents.Rule,
		lists.Tables)
	return true, t.run.Journal.Counts.Count(ctx, purge.Delta{
		Deleted: int64(len(lists.IDs)),
		Dropped: int64(len(lists.Tables)),
	})
}
