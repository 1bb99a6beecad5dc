package runs

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// Cancel makes a run stop after its current batch. A run that no replica executes ends at once, and one that has
// ended is returned unchanged. Cancel fails with store.ErrNotFound.
func (m *Manager) Cancel(ctx context.Context, runID string) (*store.Run, error) {
	run, err := m.Get(ctx, runID)
	if err != nil {
		return nil, err
	}
	id := run.UUID()
	cancelled := outcome{store.Cancelled, store.StopCancelled, store.CauseCancelled}
	err = m.endIdle(ctx, m.calls, id, cancelled, func(tx pgx.Tx) (idle bool, err error) {
		if !run.DryRun {
			if err := m.owner.Lock(ctx, tx); err != nil {
				return false, err
			}
		}
		if err := audit.Note(ctx, tx, audit.Details{"run_id": run.ID}); err != nil {
			return false, err
		}
		return store.RequestCancel(ctx, tx, id)
	})
	if err != nil {
		return nil, err
	}
	return store.GetRun(ctx, m.calls, id)
}

// endIdle ends a run if idle, which it calls in the same transaction, reports that no replica works on the run. It
// counts and logs the end.
func (m *Manager) endIdle(
	ctx context.Context, pool *pgxpool.Pool, id uuid.UUID, o outcome, idle func(tx pgx.Tx) (bool, error),
) error {
	var ended *store.Run // nil if it does not end now
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := m.lockPending(ctx, tx); err != nil { // before any other lock, as always when a run ends
			return err
		}
		is, err := idle(tx)
		if err != nil || !is {
			return err
		}
		ended, err = m.terminate(ctx, tx, id, o)
		return err
	})
	if ended == nil {
		return err
	}
	if err != nil { // the COMMIT may have succeeded without a response
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
		defer cancel()
		stored, getErr := store.GetRun(ctx, m.calls, id)
		if getErr != nil || stored.EndTime == nil || !stored.EndTime.Equal(*ended.EndTime) {
			return err
		}
	}
	m.reportEnd(ended)
	return nil
}

// Adopt makes this instance the owner of the database. It cancels active runs and disables the schedule.
func (m *Manager) Adopt(ctx context.Context) error {
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		if err := store.DisableSchedule(ctx, tx); err != nil {
			return err
		}
		// SetIdentity waits for transactions that are starting runs, and later ones wait for this transaction.
		if err := store.SetIdentity(ctx, tx, m.config.Instance); err != nil {
			return err
		}
		adoption, err := store.PreviewAdoption(ctx, tx, m.config.Instance)
		if err != nil {
			return err
		}
		for _, id := range adoption.Runs {
			if _, err := m.terminate(ctx, tx, id, outcome{
				State: store.Cancelled,
				Error: "the database was adopted by " + adoption.To,
				Cause: store.CauseCancelled,
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// terminate ends a run that no replica executes, or fences the replica that executes it.
func (m *Manager) terminate(ctx context.Context, tx pgx.Tx, id uuid.UUID, o outcome) (*store.Run, error) {
	e, err := store.BeginEpoch(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	return m.finish(ctx, tx, e, o)
}

type outcome struct {
	State store.State
	Error string
	Cause store.Cause
}

// outcomeOf returns the outcome of a run; err is the error that the executor returned.
func outcomeOf(err error, stopReason string) outcome {
	refusal := (*failure.Refusal)(nil)
	switch {
	case err == nil:
		return outcome{State: store.Succeeded}
	case errors.Is(err, cleanup.ErrStopped):
		return outcome{store.Cancelled, stopReason, store.CauseCancelled}
	case errors.Is(err, campaign.ErrNotCampaign):
		return outcome{store.Failed, err.Error(), store.CauseNotCampaign}
	case errors.As(err, &refusal):
		return outcome{store.Failed, err.Error(), store.Cause(refusal.Reason)}
	}
	return outcome{store.Failed, sqlstate.Text(err), store.CauseInternal}
}

// finish ends a run. It stores the final state and the last event in one transaction, so that a watcher that sees
// the event can start the next run. If this replica keeps the schedule, it also starts a scheduled run that became
// due in the meantime. A run with a failed task fails, even if another worker executed that task.
func (m *Manager) finish(ctx context.Context, tx pgx.Tx, e store.Epoch, o outcome) (*store.Run, error) {
	pending, err := m.lockPending(ctx, tx)
	if err != nil {
		return nil, err
	}
	// The run is locked before its tasks, as in a claim, so that another replica that looks for runs skips it while it
	// ends.
	if err := store.LockEpoch(ctx, tx, e); err != nil {
		return nil, err
	}
	stopped, err := store.StopTasks(ctx, tx, e)
	if err != nil {
		return nil, err
	}
	var events []store.Event
	for _, name := range stopped {
		warnings, err := store.Measure(ctx, tx, e.RunID, name)
		if err != nil {
			return nil, err
		}
		events = append(events, warnings...)
	}
	if err := store.CloseTrash(ctx, tx, e.RunID); err != nil {
		return nil, err
	}
	run, err := store.GetRun(ctx, tx, e.RunID)
	if err != nil {
		return nil, err
	}
	if failures := run.Failures(); failures != "" && o.State == store.Succeeded {
		o = outcome{store.Failed, failures, cmp.Or(o.Cause, run.RefusedTask(), store.CauseInternal)}
	}
	run.State, run.Error, run.Cause = o.State, o.Error, o.Cause
	if err := store.EndRun(ctx, tx, e.RunID, run); err != nil {
		return nil, err
	}
	if err := store.RecordDeletions(ctx, tx, e.RunID); err != nil {
		return nil, err
	}
	if err := store.RecordFirst(ctx, tx, e.RunID); err != nil {
		return nil, err
	}
	for _, name := range stopped {
		events = append(events, store.Event{Kind: store.TaskFinished, Result: run.Result(name)})
	}
	events = append(events, store.Event{Kind: store.RunFinished, Run: run})
	if err := store.AppendEvents(ctx, tx, e, events...); err != nil || pending == nil {
		return run, err
	}
	return run, m.startPending(ctx, tx, pending)
}

// reportEnd counts and logs the end of a run. Call it once the last transaction is committed.
func (m *Manager) reportEnd(r *store.Run) {
	m.counters.RunEnded(r)
	level := map[store.State]slog.Level{
		store.Succeeded: slog.LevelInfo,
		store.Cancelled: slog.LevelWarn,
		store.Failed:    slog.LevelError,
	}[r.State]
	var deleted, updated int64
	for _, t := range r.Results {
		deleted += t.RowsDeleted
		updated += t.RowsUpdated
	}
	attributes := []slog.Attr{
		slog.String("run_id", r.ID), slog.Any("state", r.State), slog.Bool("dry_run", r.DryRun),
		slog.Int64("rows_deleted", deleted), slog.Int64("rows_updated", updated),
	}
	if r.StartTime != nil { // nil if the run was cancelled before it was claimed
		attributes = append(attributes, slog.Duration("duration", r.EndTime.Sub(*r.StartTime)))
	}
	if r.Error != "" {
		attributes = append(attributes, slog.String("error", r.Error))
	}
	m.log.LogAttrs(context.Background(), level, "the run has ended", attributes...)
}
