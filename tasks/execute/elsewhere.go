package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// settle settles what a previous worker left pending on another server.
func (t *task) settle(ctx context.Context, jobs []plan.Job, parents []int64) error {
	if t.cursor.Pending == nil {
		return nil
	}
	defer func() { t.cursor.Pending = nil }()
	rows := len(t.cursor.Pending.Keys)
	unsettled := func(why string) error {
		t.log(
			ctx,
			severity.Warning,
			fmt.Sprintf(
				"whether the last %d rows of a previous replica were changed is not known, they are not counted: %s",
				rows,
				why,
			),
		)
		return nil
	}
	i := slices.IndexFunc(jobs, func(j plan.Job) bool { return j.Unit == t.cursor.Unit })
	if i < 0 {
		return unsettled("their table is no longer among those of the task")
	}
	s, err := t.bind(ctx, &jobs[i], parents)
	if err != nil {
		return err
	}
	err = t.engine.SettlePending(ctx, s, t.cursor)
	if refusal := (*purge.RemoteError)(nil); errors.As(err, &refusal) {
		return unsettled(refusal.Reason)
	}
	return err
}

// refuse reports that rows that are elsewhere could not be deleted or updated, and makes the task fail at its end,
// unless none are left. It returns what is.
func (t *task) refuse(ctx context.Context, j plan.Job, s purge.Sweep, refusal error) purge.Retained {
	var rows int64
	err := t.engine.Count(ctx, s, func(_ context.Context, n int64) error { rows += n; return nil })
	many := fmt.Sprintf("%d obsolete rows are", rows)
	switch {
	case err != nil:
		many = "obsolete rows may be"
	case rows == 0:
		t.log(
			ctx,
			severity.Warning,
			fmt.Sprintf(
				"%s is %s, and no obsolete row is left there, after a refusal: %v",
				j.Name,
				j.Location,
				refusal,
			),
		)
		return purge.Retained{}
	}
	message := fmt.Sprintf("%s is %s, and it could not be cleaned: %v; %s left", j.Name, j.Location, refusal, many)
	t.log(ctx, severity.Warning, message)
	t.undone = errors.Join(t.undone, errors.New(message))
	undone := purge.Retained{Tables: 1}
	t.left = t.left.Plus(undone)
	return undone
}
