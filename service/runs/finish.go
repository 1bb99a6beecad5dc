package runs

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

// Why a run was stopped, as in its error.
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

// outcomeOf turns what execute.Run returned into an outcome.
func outcomeOf(err error, stop string) outcome {
	refused := (*refused.Error)(nil)
	switch {
	case err == nil:
		return outcome{state: Succeeded}
	case errors.Is(err, pipeline.ErrStopped):
		return outcome{Cancelled, stop, CauseCancelled}
	case errors.Is(err, campaign.ErrNotCampaign):
		return outcome{Failed, err.Error(), CauseNotCampaign}
	case errors.As(err, &refused):
		return outcome{Failed, err.Error(), Cause(refused.Reason)}
	}
	return outcome{Failed, err.Error(), CauseInternal}
}

// finish ends a run, and returns it as it ended: its final state and its last event are one transaction, so that
// whoever sees the event can start the next run. A replica that keeps the schedule also starts a scheduled run that
// became due in the meantime. A run of which a task failed under another worker has failed, however it ended.
func (m *Manager) finish(ctx context.Context, tx pgx.Tx, id string, epoch int64, o outcome) (*Run, error) {
	pending, err := m.lockPending(ctx, tx)
	if err != nil {
		return nil, err
	}
	// The run is locked first, as by a claim: another replica that may claim it by now skips it while it ends.
	locked, err := tx.Exec(ctx, "SELECT FROM cleanupd.run WHERE "+held+" FOR UPDATE", id, epoch)
	if err != nil {
		return nil, err
	}
	if locked.RowsAffected() == 0 {
		return nil, errFenced
	}
	rows, err := tx.Query(ctx, `
		WITH ended AS (UPDATE cleanupd.task SET state = CASE state
			WHEN 'RUNNING' THEN 'CANCELLED' ELSE 'NOT_RUN' END, end_time = CASE state
			WHEN 'RUNNING' THEN clock_timestamp() END
			WHERE run_id = $1::text::uuid AND state IN ('RUNNING', 'PENDING') AND epoch = $2 RETURNING name, state)
		SELECT name FROM ended WHERE state = 'CANCELLED'`, id, epoch)
	if err != nil {
		return nil, err
	}
	cut, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	var events []Event
	for _, name := range cut {
		measured, err := measure(ctx, tx, id, name)
		if err != nil {
			return nil, err
		}
		events = append(events, measured...)
	}
	run, err := get(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if failures := run.failures(); failures != "" && o.state == Succeeded {
		o = outcome{Failed, failures, cmp.Or(o.cause, run.refusal(), CauseInternal)}
	}
	run.State, run.Error, run.Cause = o.state, o.err, o.cause
	if err := tx.QueryRow(ctx, `UPDATE cleanupd.run
		SET state = $2, error = $3, cause = $4, end_time = clock_timestamp(), lease_until = NULL
		WHERE id = $1::text::uuid RETURNING end_time`, id, string(o.state), connection.Text(o.err), string(o.cause)).
		Scan(&run.EndTime); err != nil {
		return nil, err
	}
	if err := keepTaken(ctx, tx, id); err != nil {
		return nil, err
	}
	for _, name := range cut {
		events = append(events, Event{Kind: TaskFinished, Result: run.Result(name)})
	}
	events = append(events, Event{Kind: RunFinished, Run: run})
	if err := appendEvents(ctx, tx, id, epoch, events...); err != nil || pending == nil {
		return run, err
	}
	return run, m.startPending(ctx, tx, pending)
}

// ended records the outcome of a run that this replica ended, once its last transaction is committed.
func (m *Manager) ended(r *Run) {
	m.metrics.runEnded(r)
	level := map[State]slog.Level{
		Succeeded: slog.LevelInfo,
		Cancelled: slog.LevelWarn,
		Failed:    slog.LevelError,
	}[r.State]
	var deleted, updated int64
	for _, t := range r.Results {
		deleted += t.RowsDeleted
		updated += t.RowsUpdated
	}
	attributes := []any{
		"run_id",
		r.ID,
		"state",
		r.State,
		"dry_run",
		r.DryRun,
		"rows_deleted",
		deleted,
		"rows_updated",
		updated,
	}
	if r.StartTime != nil { // it was not cancelled before
		attributes = append(attributes, "duration", r.EndTime.Sub(*r.StartTime))
	}
	if r.Error != "" {
		attributes = append(attributes, "error", r.Error)
	}
	m.log.Log(context.Background(), level, "the run has ended", attributes...)
}

// stood reports whether a run's last transaction is committed of which the COMMIT was not answered.
func (m *Manager) stood(ctx context.Context, ended *Run) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shortTimeout)
	defer cancel()
	run, err := m.Get(ctx, ended.ID)
	return err == nil && run.EndTime != nil && run.EndTime.Equal(*ended.EndTime)
}
