package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/purge"
)

// tooManyOf is the part of a task's rows, one of so many, of which no more may refuse in a task that succeeds.
const tooManyOf = 10

// report says what a sweep left, and counts it.
func (e *Env) report(ctx context.Context, u unit, r purge.Result) {
	if r.Locked > 0 {
		e.log(ctx, Warning, fmt.Sprintf("%s: %d obsolete rows stayed locked by others; left for the next run", u.Name, r.Locked))
	}
	if r.TableLocked {
		e.log(ctx, Warning, u.Name+": someone keeps the whole table locked; the rest of it is left for the next run")
	}
	if r.Kept > 0 {
		e.log(ctx, Warning, fmt.Sprintf("%s: %d obsolete rows can not be deleted, a trigger or rule of the table prevents it; left", u.Name, r.Kept))
	}
	if r.Refused > 0 {
		e.log(ctx, Warning, fmt.Sprintf("%s: %d obsolete rows refuse with an error; left", u.Name, r.Refused))
	}
	if r.GaveUp {
		e.giveUp(ctx, u.Name)
	}
	if r.Dropped {
		e.log(ctx, Info, u.Name+": all of the partition was to go: dropped")
	}
	e.refusal = cmp.Or(e.refusal, r.Refusal)
	left := r.Left
	if r.TableLocked || r.GaveUp {
		left.Tables++
	}
	e.leaveRows(ctx, u, left)
}

// leaveRows counts what a sweep left, and keeps the parents of these rows.
func (e *Env) leaveRows(ctx context.Context, u unit, left purge.Left) {
	e.left = e.left.Plus(left)
	if left != (purge.Left{}) && u.step.dependent() {
		e.holdBack(ctx, u)
	}
}

// giveUp ends the work on a table of whose rows too many refuse, which fails the task at its end.
func (e *Env) giveUp(ctx context.Context, table string) {
	message := fmt.Sprintf("%s: more than %d rows refuse: given up, the rest of it is left", table, purge.MostRefused)
	e.log(ctx, Warning, message)
	e.refused = errors.Join(e.refused, errors.New(message))
}

// tooMany is why the current task fails since rows refused; nil: none, or few did.
func (e *Env) tooMany() error {
	refused := e.left.Refused
	all := refused + e.journal.Done()
	what := fmt.Sprintf("%d of %d rows refuse", refused, all)
	switch {
	case refused <= purge.MostRefused && refused*tooManyOf <= all:
		return nil
	case e.refusal == nil: // all did under a previous worker
		return errors.New(what)
	}
	return fmt.Errorf("%s, the first of them with: %w", what, e.refusal)
}

// inWords says what stays; empty: nothing does.
func inWords(l purge.Left) string {
	var parts []string
	for _, p := range []struct {
		n         int64
		one, many string
	}{
		{l.Refused, "row refuses with an error", "rows refuse with an error"},
		{l.Locked, "row was locked by others", "rows were locked by others"},
		{l.Kept, "row is kept by a trigger or rule", "rows are kept by a trigger or rule"},
		{l.Bound, "row stays with what belongs to it", "rows stay with what belongs to them"},
		{l.Tables, "table could not be done to its end", "tables could not be done to their end"},
	} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.one)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.many))
		}
	}
	if parts == nil {
		return ""
	}
	return "obsolete rows stay: " + strings.Join(parts, ", ")
}
