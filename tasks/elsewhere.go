package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/tasks/purge"
)

// settle settles what a previous worker left pending on another server.
func (e *Env) settle(ctx context.Context, p *plan) error {
	if e.Cursor.Pending == nil {
		return nil
	}
	defer func() { e.Cursor.Pending = nil }()
	rows := len(e.Cursor.Pending.Keys)
	unsettled := func(why string) error {
		e.log(ctx, Warning, fmt.Sprintf("whether the last %d rows of a previous replica were changed is not known, they are not counted: %s", rows, why))
		return nil
	}
	i := slices.IndexFunc(p.units, func(u unit) bool { return u.Unit == e.Cursor.Unit })
	if i < 0 {
		return unsettled("their table is no longer among those of the task")
	}
	err := e.engine.Settle(ctx, p.units[i].Sweep, e.Cursor)
	if refusal := (*purge.RefusedError)(nil); errors.As(err, &refusal) {
		return unsettled(refusal.Reason)
	}
	return err
}

// refuse reports that rows that are elsewhere could not be deleted or updated, and makes the task fail at its end, unless none
// are left.
func (e *Env) refuse(ctx context.Context, u unit, refusal error) {
	var rows int64
	err := e.engine.Count(ctx, u.Sweep, func(_ context.Context, n int64) error { rows += n; return nil })
	many := fmt.Sprintf("%d obsolete rows are", rows)
	switch {
	case err != nil:
		many = "obsolete rows may be"
	case rows == 0:
		e.log(ctx, Warning, fmt.Sprintf("%s is %s, and no obsolete row is left there, after a refusal: %v", u.Name, u.place, refusal))
		return
	}
	message := fmt.Sprintf("%s is %s, and it could not be cleaned: %v; %s left", u.Name, u.place, refusal, many)
	e.log(ctx, Warning, message)
	e.refused = errors.Join(e.refused, errors.New(message))
	e.leaveRows(ctx, u, purge.Left{Tables: 1})
}
