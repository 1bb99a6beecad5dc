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

// mostHeld is how many ids on hold a statement may have as a parameter. Of more than these it reads the tables themselves.
const mostHeld = 1_000_000

// Timeouts of queries for ids on hold. Which of the ids on hold a table has is not worth more than a few seconds, since all of them will do, too.
const (
	heldTimeout   = time.Hour
	narrowTimeout = 5 * time.Second
)

// onHold returns the condition that a row of a job's table is on hold. It has no text if none is. The ids are read once for all that is planned
// together, so that statements have neither those of other tables nor subqueries for each row.
func (t *task) onHold(ctx context.Context, j *plan.Job) (held purge.Condition, reads, elsewhere bool, err error) {
	add := func(c purge.Condition) {
		if held.Where != "" {
			held.Where += " OR "
		}
		held.Where += c.After(len(held.Args))
		held.Args = append(held.Args, c.Args...)
	}
	for _, way := range j.Held {
		if way.Column == "" {
			add(way.Condition)
			reads, elsewhere = reads || way.Reads, elsewhere || way.Elsewhere
			continue
		}
		ids, err := t.heldIDs(ctx, j, way)
		switch {
		case err != nil:
			return held, false, false, fmt.Errorf("look for what is on hold in %s: %w", j.Name, err)
		case len(ids) > mostHeld:
			add(purge.Condition{Where: fmt.Sprintf("r.%s IN (%s)", way.Column, way.IDs.Where), Args: way.IDs.Args})
			reads, elsewhere = true, elsewhere || way.Elsewhere
		case len(ids) > 0:
			add(purge.Condition{Where: purge.In("r."+way.Column, "$1::bigint[]"), Args: []any{ids}})
		}
	}
	return held, reads, elsewhere, nil
}

// heldIDs returns the ids of a way in which rows are on hold, in order; more than mostHeld if there are too many.
func (t *task) heldIDs(ctx context.Context, j *plan.Job, way plan.Held) (ids []int64, err error) {
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
		ids, err = way.All, nil
	case t.vanished(ctx, err, j.Relation):
		ids, err = nil, nil
	}
	if err == nil {
		slices.Sort(ids)
		t.heldBy[way.IDs.Where] = ids
	}
	return ids, err
}

// exceptHeld returns a job's sweep without the rows on hold.
func (t *task) exceptHeld(ctx context.Context, j *plan.Job, s purge.Sweep) (purge.Sweep, error) {
	held, reads, elsewhere, err := t.onHold(ctx, j)
	if err != nil {
		return s, err
	}
	if held.Where != "" {
		s = s.Without(held)
		s.Older, s.ReadsOthers = nil, s.ReadsOthers || reads
		if elsewhere && !s.Elsewhere {
			s.Elsewhere, j.Place = true, plan.JudgedElsewhere
		}
	}
	return s, nil
}

// bindHeld returns a job's sweep of the rows on hold in place of the others, as bind does, and reports whether there may be any.
func (t *task) bindHeld(ctx context.Context, j *plan.Job, parents []int64) (s purge.Sweep, any bool, err error) {
	held, reads, _, err := t.onHold(ctx, j)
	if err != nil || held.Where == "" {
		return s, false, err
	}
	if s, err = t.bindRules(ctx, j, parents); err != nil {
		return s, false, err
	}
	s = s.And(held)
	s.Older, s.ReadsOthers = nil, s.ReadsOthers || reads
	return s, true, nil
}
