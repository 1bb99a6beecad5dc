package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// tooManyOf is the part of a task's rows, one of so many, of which no more may refuse in a task that succeeds.
const tooManyOf = 10

// report says what a sweep of a table left, counts it, and returns it.
func (t *task) report(ctx context.Context, table string, r purge.Result) purge.Retained {
	if r.Locked > 0 {
		t.log(
			ctx,
			severity.Warning,
			fmt.Sprintf("%s: %d obsolete rows stayed locked by others; left for the next run", table, r.Locked),
		)
	}
	if r.TableLocked {
		t.log(
			ctx,
			severity.Warning,
			table+": someone keeps the whole table locked; the rest of it is left for the next run",
		)
	}
	if r.Suppressed > 0 {
		t.log(
			ctx,
			severity.Warning,
			fmt.Sprintf(
				"%s: %d obsolete rows can not be deleted, a trigger or rule of the table prevents it; left",
				table,
				r.Suppressed,
			),
		)
	}
	if r.Failed > 0 {
		t.log(ctx, severity.Warning, fmt.Sprintf("%s: %d obsolete rows refuse with an error; left", table, r.Failed))
	}
	if r.GaveUp {
		t.giveUp(ctx, table)
	}
	if r.Dropped {
		t.log(ctx, severity.Info, table+": all of the partition was to go: dropped")
	}
	t.refusal = cmp.Or(t.refusal, r.FirstError)
	left := r.Retained
	if r.TableLocked || r.GaveUp {
		left.Tables++
	}
	t.left = t.left.Plus(left)
	return left
}

// giveUp ends the work on a table of whose rows too many refuse, which fails the task at its end.
func (t *task) giveUp(ctx context.Context, table string) {
	message := fmt.Sprintf("%s: more than %d rows refuse: given up, the rest of it is left", table, purge.MaxFailedRows)
	t.log(ctx, severity.Warning, message)
	t.undone = errors.Join(t.undone, errors.New(message))
}

// tooMany is why the current task fails since rows refused; nil: none, or few did.
func (t *task) tooMany() error {
	refused := t.left.Failed
	all := refused + t.journal.Done()
	what := fmt.Sprintf("%d of %d rows refuse", refused, all)
	switch {
	case refused <= purge.MaxFailedRows && refused*tooManyOf <= all:
		return nil
	case t.refusal == nil: // all did under a previous worker
		return errors.New(what)
	}
	return fmt.Errorf("%s, the first of them with: %w", what, t.refusal)
}

// notVacuumed says how many tables VACUUM or ANALYZE failed on; empty if on none.
func notVacuumed(tables int64) string {
	switch tables {
	case 0:
		return ""
	case 1:
		return "VACUUM or ANALYZE failed on 1 table"
	}
	return fmt.Sprintf("VACUUM or ANALYZE failed on %d tables", tables)
}

// inWords says what stays; empty: nothing does.
func inWords(l purge.Retained) string {
	var parts []string
	for _, p := range []struct {
		n         int64
		one, many string
	}{
		{l.Failed, "row refuses with an error", "rows refuse with an error"},
		{l.Locked, "row was locked by others", "rows were locked by others"},
		{l.Suppressed, "row is kept by a trigger or rule", "rows are kept by a trigger or rule"},
		{l.Dependent, "row stays with what belongs to it", "rows stay with what belongs to them"},
		{l.OnHold, "row is held", "rows are held"},
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
