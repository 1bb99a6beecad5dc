package execute

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// mostHeld is how many ids on hold a statement may have as a parameter. Of more than these it reads the tables
// themselves.
const mostHeld = 1_000_000

// Timeouts of queries for ids on hold. A query that only finds out which of the ids a table has gets a few seconds:
// otherwise all ids are used.
const (
	heldTimeout   = time.Hour
	narrowTimeout = 5 * time.Second
)

// held is the condition that a row is on hold. It has no text if none is.
type held struct {
	purge.Condition
	// reads says that it reads other tables, elsewhere that one of these is distributed.
	reads, elsewhere bool
}

// onHold returns the condition that a row of a job's table is on hold. The ids in it are read once for all that is
// planned together, so that statements have neither those of other tables nor subqueries for each row. An explanation
// is about single rows, and reads no ids. among returns the condition that a column has one of some ids: purge.OneOf to
// find the rows on hold, purge.Among to judge each row.
func (t *task) onHold(
	ctx context.Context,
	j *plan.Job,
	among func(column string, ids []int64) purge.Condition,
) (h held, err error) {
	var conditions []purge.Condition
	add := func(c purge.Condition, reads, elsewhere bool) {
		conditions = append(conditions, c)
		h.reads, h.elsewhere = h.reads || reads, h.elsewhere || elsewhere
	}
	for _, way := range j.OnHold {
		if way.Column == "" || (t.preview != nil && t.preview.blind) {
			add(way.Condition, way.ReadsOthers, way.Elsewhere)
			continue
		}
		ids, err := t.heldIDs(ctx, j, way)
		switch {
		case err != nil:
			return held{}, fmt.Errorf("look for what is on hold in %s: %w", j.Name, err)
		case len(ids) > mostHeld:
			add(
				purge.Condition{Where: fmt.Sprintf("r.%s IN (%s)", way.Column, way.IDs.Where), Args: way.IDs.Args},
				true,
				way.Elsewhere,
			)
		case len(ids) > 0:
			add(among("r."+way.Column, ids), false, false)
		}
	}
	h.Condition = purge.Or(conditions...)
	return h, nil
}

// heldIDs returns the ids of a way in which rows are on hold, in ascending order; more than mostHeld if there are too
// many.
func (t *task) heldIDs(ctx context.Context, j *plan.Job, way plan.HoldCondition) (ids []int64, err error) {
	if ids, known := t.heldBy[way.IDs.Where]; known {
		return ids, nil
	}
	timeout := heldTimeout
	if way.All != nil {
		timeout = narrowTimeout
	}
	err = t.engine.Retry(ctx, j.Name, func() error {
		if err := t.engine.Wait(ctx); err != nil {
			return err
		}
		tx, err := t.engine.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", timeout.Milliseconds())); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, fmt.Sprintf("%s LIMIT %d", way.IDs.Where, mostHeld+1), way.IDs.Args...)
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	})
	switch {
	case way.All != nil && sqlstate.Is(err, pgerrcode.QueryCanceled) && ctx.Err() == nil:
		ids = way.All
	case t.vanished(ctx, err, j.Relation): // so that nothing is deleted there
		return nil, nil
	case err != nil:
		return nil, err
	}
	ids = slices.Sorted(slices.Values(ids))
	t.heldBy[way.IDs.Where] = ids
	return ids, nil
}

// exceptHeld returns a job's sweep without the rows on hold.
func (t *task) exceptHeld(ctx context.Context, j *plan.Job, s purge.Sweep) (purge.Sweep, error) {
	h, err := t.onHold(ctx, j, purge.Among)
	if err != nil || h.Where == "" {
		return s, err
	}
	return judgedBy(j, s.Without(h.Condition), h.reads, h.elsewhere), nil
}

// bindHeld returns a job's sweep of the rows on hold in place of the others, as bind does, and reports whether there
// may be any.
func (t *task) bindHeld(ctx context.Context, j *plan.Job, parents []int64) (s purge.Sweep, any bool, err error) {
	h, err := t.onHold(ctx, j, purge.OneOf)
	if err != nil || h.Where == "" {
		return s, false, err
	}
	if s, err = t.bindRules(ctx, j, parents); err != nil {
		return s, false, err
	}
	return judgedBy(j, s.And(h.Condition), h.reads, h.elsewhere), true, nil
}

// judgedBy returns a job's sweep whose condition has become more than its rule: whether it reads other tables, and
// whether one is distributed.
func judgedBy(j *plan.Job, s purge.Sweep, reads, elsewhere bool) purge.Sweep {
	s.ReadsOthers = s.ReadsOthers || reads
	if elsewhere && !s.Elsewhere {
		s.Elsewhere, j.Location = true, plan.JudgedElsewhere
	}
	return s
}
