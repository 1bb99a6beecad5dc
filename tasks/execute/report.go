package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// report logs what a sweep of a table retained, counts it, and returns it.
func (t *task) report(ctx context.Context, table string, r purge.Result) purge.Retained {
	warn := func(format string, args ...any) {
		t.Log(ctx, severity.Warning, table+": "+fmt.Sprintf(format, args...))
	}
	if r.Locked > 0 {
		warn("%d obsolete rows were locked by others; left for the next run", r.Locked)
	}
	if r.TableLocked {
		warn("the whole table is locked; the rest of it is left for the next run")
	}
	if r.Suppressed > 0 {
		warn("%d obsolete rows were retained: a trigger or rule of the table prevents their deletion", r.Suppressed)
	}
	if r.Failed > 0 {
		warn("%d obsolete rows failed with an error; left", r.Failed)
	}
	if r.GaveUp {
		t.giveUp(ctx, table)
	}
	if r.Dropped {
		t.Log(ctx, severity.Info, table+": all of the partition was to go: dropped")
	}
	t.RowError = cmp.Or(t.RowError, r.FirstError)
	retained := r.Retained
	if r.TableLocked || r.GaveUp {
		retained.Tables++
	}
	t.Retained = t.Retained.Plus(retained)
	return retained
}

// giveUp records that too many rows of a table failed, which fails the task at its end.
func (t *task) giveUp(ctx context.Context, table string) {
	message := fmt.Sprintf("%s: more than %d rows refuse: given up, the rest of it is left", table, purge.MaxFailedRows)
	t.Log(ctx, severity.Warning, message)
	t.Unfinished = errors.Join(t.Unfinished, errors.New(message))
}
