package execute

import (
	"context"
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// outside has a task on another database done, or foreseen.
func (t *task) outside(ctx context.Context, o outside.Task) (State, error) {
	why := ""
	switch {
	case t.preview != nil && t.preview.blind: // no other task's rows depend on it
		return Skipped, nil
	case o.Work == nil:
		why = "the task was removed meanwhile"
	case o.Disabled && !t.DryRun:
		why = "the task was disabled meanwhile"
	}
	if why != "" {
		t.log(ctx, severity.Warning, why)
		return Skipped, nil
	}
	var err error
	if t.due, err = o.Due(ctx, t.Now); err != nil {
		return Failed, err
	}
	if t.given.Holds.Everything {
		t.left.OnHold = int64(len(t.due.Items))
		t.log(
			ctx,
			severity.Warning,
			fmt.Sprintf(
				"everything is on hold: %d rows of %s are retained, with all that belongs to them",
				t.left.OnHold,
				t.due.Table,
			),
		)
		return Skipped, t.countOutside(ctx, o)
	}
	t.log(ctx, severity.Warning, t.due.Notes...)
	if p := t.planned(); p != nil {
		may := idSet(p.Set)
		t.due.Items = slices.DeleteFunc(t.due.Items, func(i outside.Item) bool { return !may[i.ID] })
	}
	t.journal.At(t.due.Table, -1)
	if t.DryRun {
		return Succeeded, t.foreseeOutside(ctx, o)
	}
	if t.history != nil {
		trips := t.latched()
		if trips == nil {
			var err error
			if trips, err = t.judgeOutside(ctx, o); err != nil {
				return Failed, err
			}
		}
		if err := tripped(trips); err != nil {
			return Failed, err
		}
	}
	return Succeeded, o.Purge(ctx, t.ID, t.due, t.outsideDeleted)
}

// outsideDeleted counts the rows that a task on another database has deleted in this run in all.
func (t *task) outsideDeleted(ctx context.Context, rows int64) error {
	return t.journal.Count(ctx, purge.Delta{Deleted: rows - t.journal.Done(), Statements: 1})
}

// countOutside counts what a task on another database has deleted before everything was on hold.
func (t *task) countOutside(ctx context.Context, o outside.Task) error {
	if t.DryRun {
		return nil
	}
	rows, err := o.Purged(ctx, t.ID)
	if err != nil {
		return err
	}
	return t.outsideDeleted(ctx, rows)
}

// foreseeOutside counts the rows that go with what is due.
func (t *task) foreseeOutside(ctx context.Context, o outside.Task) error {
	due, name := t.due, t.plan.Task.Name
	for _, i := range due.Items {
		t.preview.begun[name] = append(t.preview.begun[name], i.ID)
	}
	t.preview.sets[name] = t.preview.begun[name]
	var found purge.Tally
	for _, i := range due.Items {
		found.Add(purge.Tally{Oldest: &i.Date, Newest: &i.Date, Keys: []int64{i.ID}})
	}
	items := t.preview.at(due.Table, Delete, due.Rule)
	items.RowsTotal, items.Oldest, items.Newest, items.Sample = due.Total, found.Oldest, found.Newest, found.Keys
	if t.history != nil {
		var err error
		if items.Guards, err = t.judgeOutside(ctx, o); err != nil {
			return err
		}
		t.preview.took(map[string]int64{due.Table: int64(len(due.Items))})
	}
	return o.Foresee(ctx, due, func(ctx context.Context, rows map[string]int64) error {
		d := purge.Delta{Statements: 1}
		for table, n := range rows {
			p := items
			if table != due.Table {
				p = t.preview.at(table, Delete, "of a row of "+due.Table+": "+due.Rule)
			}
			p.Rows += n
			d.Deleted += n
		}
		return t.journal.Count(ctx, d)
	})
}

// judgeOutside returns the guards that trip for what is due.
func (t *task) judgeOutside(ctx context.Context, o outside.Task) (trips []Trip, err error) {
	h, due, least := t.history, t.due, max(t.history.MinProcessInstances-1, 0)
	judge := func(of Guard, number int64, limit float64) {
		trip := Trip{of, due.Table, number, h.most(of, due.Table, limit, least)}
		if trip.Number > trip.Most || t.isShown(of, due.Table) {
			trips = append(trips, trip)
		}
	}
	if h.MaxSharePercent > 0 {
		lately, err := o.Lately(ctx, t.ID, SharePeriod)
		if err != nil {
			return nil, err
		}
		total := due.Total + lately
		lately += t.preview.takenOf(due.Table)
		judge(GuardShare, lately+int64(len(due.Items)), float64(total)*h.MaxSharePercent/100)
	}
	if was, moved := t.movedFast(t.plan.Task.Name, due.Cutoff); h.Cutoff && moved {
		var between int64
		for _, i := range due.Items {
			if !i.Date.Before(was) {
				between++
			}
		}
		judge(GuardCutoff, between, 0)
	}
	return trips, nil
}

// explainOutside tells what a task on another database would do.
func explainOutside(ctx context.Context, o outside.Task, e *Explanation) error {
	if o.Disabled {
		e.Skips = append(e.Skips, fmt.Sprintf("the task %s is disabled", o.Name))
	}
	statements, err := o.Statements(ctx, e.Now)
	for _, s := range statements {
		action := Action("")
		if s.Deletes {
			action = Delete
		}
		e.Statements = append(e.Statements, Statement{Table: s.Table, Action: action, Rule: s.Rule, SQL: s.SQL})
	}
	return err
}
