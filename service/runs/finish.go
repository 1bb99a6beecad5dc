package runs

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Why a run was stopped, as its error says.
const (
	stopCancelled   = "cancelled by request"
	stopMaxDuration = "max_duration reached"
)

// outcome is how a run ended.
type outcome struct {
	state State
	err   string
	cause Cause
}

// outcomeOf turns what tasks.Run returned into an outcome.
func outcomeOf(err error, stop string) outcome {
	switch {
	case err == nil:
		return outcome{state: Succeeded}
	case errors.Is(err, tasks.ErrStopped):
		return outcome{Cancelled, stop, CauseCancelled}
	case errors.Is(err, campaign.ErrNotCampaign):
		return outcome{Failed, err.Error(), CauseNotCampaign}
	}
	return outcome{Failed, err.Error(), CauseInternal}
}

// finish ends a run, and returns it as it ended: its final state and its last event are one transaction, so that whoever
// sees the event can start the next run. The run of the schedule that became due meanwhile begins here, on a replica that
// keeps the schedule. A run of which a task failed under another worker has failed whatever its end.
func (m *Manager) finish(ctx context.Context, tx pgx.Tx, id string, epoch int64, o outcome) (*Run, error) {
	pending, err := m.lockPending(ctx, tx)
	if err != nil {
		return nil, err
	}
	var failures string
	if err := tx.QueryRow(ctx, `SELECT COALESCE(string_agg(format('task %s failed: %s', name, error), E'\n' ORDER BY position), '')
		FROM cleanupd.task WHERE run_id = $1::text::uuid AND state = 'FAILED'`, id).Scan(&failures); err != nil {
		return nil, err
	}
	if failures != "" && o.state == Succeeded {
		o = outcome{Failed, failures, cmp.Or(o.cause, CauseInternal)}
	}
	var events []Event
	rows, err := tx.Query(ctx, `UPDATE cleanupd.task SET state = 'CANCELLED', end_time = clock_timestamp()
		WHERE run_id = $1::text::uuid AND state = 'RUNNING' AND epoch = $2 RETURNING name`, id, epoch)
	if err != nil {
		return nil, err
	}
	cut, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	for _, name := range cut {
		measured, err := measure(ctx, tx, id, name)
		if err != nil {
			return nil, err
		}
		events = append(events, measured...)
	}
	if _, err := tx.Exec(ctx, `UPDATE cleanupd.task SET state = 'NOT_RUN' WHERE run_id = $1::text::uuid AND state = 'PENDING' AND epoch = $2`, id, epoch); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `UPDATE cleanupd.run SET state = $3, error = $4, cause = $5, end_time = clock_timestamp(), lease_until = NULL
		WHERE id = $1::text::uuid AND epoch = $2`, id, epoch, string(o.state), o.err, string(o.cause)); err != nil {
		return nil, err
	}
	run, err := get(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	for _, name := range cut {
		events = append(events, Event{Kind: TaskFinished, Result: run.Result(name)})
	}
	if err := appendEvents(ctx, tx, id, epoch, append(events, Event{Kind: RunFinished, Run: run})...); err != nil || pending == nil {
		return run, err
	}
	return run, startPending(ctx, tx, pending)
}
