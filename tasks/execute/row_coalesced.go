package execute

import (
	"context"
	"time"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// coalesces reports whether a task replaces rows of a table by their sums.
func (d *database) coalesces(what plan.Task, table *campaign.Table) bool {
	return what.RollUp != nil && d.given.Catalog.Table(what.RollUp.Table) == table
}

// coalesced explains what becomes of the row where a task replaces those of a period by their sums.
func (r *foundRow) coalesced(ctx context.Context, p *plan.Plan) (s RowStep, err error) {
	w, skip := r.other(p).coalescing()
	if skip != nil {
		return skipped(p.Task, plan.Skip{Rule: w.rule(), Why: skip.Text}), nil
	}
	if err := w.find(ctx, r.tx); err != nil {
		return s, err
	}
	s = r.begun(p.Task.Name, w.rule())
	s.Held = w.held()
	var inPeriod bool
	if err := r.ask(ctx, &inPeriod, "("+w.period()+") IS TRUE", []any{w.start, w.Now}); err != nil {
		return s, err
	}
	var due *time.Time
	s.Parts, due, err = r.parts(ctx, w.task, p.Clauses(w.rules(), r.table, r.givenFor(p.Task.Name)), r.relation, r.key)
	r.settle(&s, inPeriod && !s.Held, due)
	return s, err
}
