package dryrun

import (
	"context"

	"github.com/cleanupd/cleanupd/tasks/figures"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/worktables"
)

func (t *task) judge(ctx context.Context) error {
	if t.History == nil {
		return nil
	}
	found := map[string]int64{}
	var masks, dropped []string
	for _, table := range t.found.tables.all {
		if table.Action == preview.Drop {
			masks, dropped = append(masks, table.Table.Table), append(dropped, table.dropped...)
		} else {
			found[table.Table.Table] += table.Rows
		}
	}
	trips, err := t.trips(ctx, found, dropped)
	if err != nil {
		return err
	}
	for _, trip := range t.History.AddRefused(trips, t.Options()) {
		action, name := preview.Delete, trip.Table
		if trip.Guard == guard.Tables || trip.Guard == guard.Bytes {
			action = preview.Drop
			if len(masks) > 0 {
				name = masks[0]
			}
		} else if t.found.tables.has(name, preview.Update) && !t.found.tables.has(name, preview.Delete) {
			action = preview.Update
		}
		table := t.found.tables.at(name, action, "")
		table.Guards = append(table.Guards, trip)
	}
	for name, rows := range found {
		t.found.deleted[name] += rows
	}
	return nil
}

// trips returns the guards that the task would trip. found are rows by table; dropped are work tables.
func (t *task) trips(ctx context.Context, found map[string]int64, dropped []string) ([]guard.Trip, error) {
	f := figures.Task{
		Attempt: t.Attempt,
		Jobs:    t.Plan.Jobs,
		Parents: t.parents,
		Found:   found,
		Before:  func(table string) int64 { return t.found.deleted[table] },
	}
	trips, err := f.Judge(ctx, func(guard.Trip) {})
	mask := worktables.TaskMask(t.Plan)
	if err != nil || mask == "" {
		return trips, err
	}
	more, err := t.History.JudgeDrops(ctx, guard.Drops{
		Mask:        mask,
		Tables:      int64(len(dropped)),
		Options:     t.Options(),
		ShowRefused: true,
		Sizes: func(ctx context.Context) (tables, database int64, err error) {
			return worktables.Sizes(ctx, t.Binder.Pool, dropped)
		},
	})
	return append(trips, more...), err
}
