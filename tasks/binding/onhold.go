package binding

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// maxIDs is how many ids on hold a statement may have in a parameter. If there are more, it reads the tables with
// the ids instead.
const maxIDs = 1_000_000

// These are timeouts of queries for ids on hold. narrowTimeout is for a query that only finds which of the given
// ids a table has: if it takes longer, all ids are used.
const (
	idsTimeout    = time.Hour
	narrowTimeout = 5 * time.Second
)

// OnHold finds the rows on hold of all jobs that are compiled for one environment. It reads each list of ids once,
// so that statements need neither ids that belong to other tables nor subqueries for each row.
type OnHold struct {
	Engine *purge.Engine
	// ConditionsOnly is set for explanations, which are about single rows and read no ids.
	ConditionsOnly bool

	ids map[string][]int64 // by query
}

// onHold is the condition that a row is on hold; it is empty if no row is.
type onHold struct {
	condition sqlexpr.Expr
	// readsOthers is set if the condition reads other tables, and readsDistributed if it reads a distributed one.
	readsOthers, readsDistributed bool
}

// condition returns the condition that a row of a job is on hold. among makes the condition that a column has one
// of several ids: sqlexpr.OneOf is for finding the rows on hold, sqlexpr.Among for checking each row.
func (o *OnHold) condition(
	ctx context.Context, j *plan.Job, among func(column string, ids []int64) sqlexpr.Expr,
) (h onHold, err error) {
	add := func(c sqlexpr.Expr, readsOthers, readsDistributed bool) {
		h.condition = sqlexpr.Or(h.condition, c)
		h.readsOthers, h.readsDistributed = h.readsOthers || readsOthers, h.readsDistributed || readsDistributed
	}
	for _, by := range j.OnHold {
		if by.Column == "" || o.ConditionsOnly {
			add(by.Condition, by.ReadsOthers, by.ReadsDistributed)
			continue
		}
		ids, err := o.idsOnHold(ctx, j, by)
		switch {
		case err != nil:
			return onHold{}, fmt.Errorf("find what is on hold in %s: %w", j.Name, err)
		case len(ids) > maxIDs:
			add(sqlexpr.Format("r.%s IN (%s)", by.Column, by.IDs), true, by.ReadsDistributed)
		case len(ids) > 0:
			add(among("r."+by.Column, ids), false, false)
		}
	}
	return h, nil
}

// idsOnHold returns the ids on hold in ascending order; more than maxIDs if there are too many.
func (o *OnHold) idsOnHold(ctx context.Context, j *plan.Job, by plan.HoldCondition) (ids []int64, err error) {
	query, _ := by.IDs.Build()
	if ids, known := o.ids[query]; known {
		return ids, nil
	}
	timeout := idsTimeout
	if by.All != nil {
		timeout = narrowTimeout
	}
	err = o.Engine.Retry(ctx, j.Name, func() (err error) {
		if err := o.Engine.Wait(ctx); err != nil {
			return err
		}
		ids, err = o.read(ctx, by.IDs, timeout)
		return err
	})
	switch {
	case by.All != nil && sqlstate.Is(err, pgerrcode.QueryCanceled) && ctx.Err() == nil:
		ids = by.All
	case campaign.Dropped(ctx, o.Engine.Pool, err, j.Relation): // nothing is deleted from a table that no longer exists
		return nil, nil
	case err != nil:
		return nil, err
	}
	ids = slices.Sorted(slices.Values(ids))
	if o.ids == nil {
		o.ids = map[string][]int64{}
	}
	o.ids[query] = ids
	return ids, nil
}

func (o *OnHold) read(ctx context.Context, query sqlexpr.Expr, timeout time.Duration) (ids []int64, err error) {
	err = o.Engine.InTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", timeout.Milliseconds()))
		if err == nil {
			ids, err = sqlexpr.Format("%s LIMIT %d", query, maxIDs+1).IDs(ctx, tx)
		}
		return err
	})
	return ids, err
}
