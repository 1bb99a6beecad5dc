package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

type Outcome struct {
	State store.State
	Error string
	Cause store.Cause
}

// outcomeOf returns the outcome of a run; err is the error that the executor returned.
func outcomeOf(err error, stopReason string) Outcome {
	refusal := (*failure.Refusal)(nil)
	switch {
	case err == nil:
		return Outcome{State: store.Succeeded}
	case errors.Is(err, cleanup.ErrStopped):
		return Outcome{store.Cancelled, stopReason, store.CauseCancelled}
	case errors.Is(err, campaign.ErrNotCampaign):
		return Outcome{store.Failed, err.Error(), store.CauseNotCampaign}
	case errors.As(err, &refusal):
		return Outcome{store.Failed, err.Error(), store.Cause(refusal.Reason)}
	}
	return Outcome{store.Failed, sqlstate.Text(err), store.CauseInternal}
}

// finish ends a run. It stores the final state and the last event in one transaction, so that a watcher that sees
// the event can start the next run. If this replica keeps the schedule, it also starts a scheduled run that became
// due in the meantime. A run with a failed task fails, even if another worker executed that task.
func (w *Worker) finish(ctx context.Context, tx pgx.Tx, e store.Epoch, o Outcome) (*store.Run, error) {
	pending, err := w.Scheduler.LockPending(ctx, tx)
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
	run, err := store.GetRun(ctx, tx, e.RunID)
	if err != nil {
		return nil, err
	}
	if failures := run.Failures(); failures != "" && o.State == store.Succeeded {
		o = Outcome{store.Failed, failures, cmp.Or(o.Cause, run.RefusedTask(), store.CauseInternal)}
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
	return run, w.Scheduler.StartPending(ctx, tx, pending)
}

// Terminate ends a run that no replica executes, or fences the replica that executes it. Call Terminated after the
// COMMIT.
func (w *Worker) Terminate(ctx context.Context, tx pgx.Tx, id uuid.UUID, o Outcome) (*store.Run, error) {
	e, err := store.BeginEpoch(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	return w.finish(ctx, tx, e, o)
}

// Terminated counts and logs the end of the run if the transaction was committed. An error may only mean that the
// COMMIT was not answered, so it then reads the stored state.
func (w *Worker) Terminated(ctx context.Context, run *store.Run, err error) {
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
		defer cancel()
		stored, err := store.GetRun(ctx, w.Calls, run.UUID())
		if err != nil || stored.EndTime == nil || !stored.EndTime.Equal(*run.EndTime) {
			return
		}
	}
	w.ended(run)
}

// ended counts and logs the end of a run. Call it once the last transaction is committed.
func (w *Worker) ended(r *store.Run) {
	w.Metrics.RunEnded(r)
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
	w.Log.LogAttrs(context.Background(), level, "the run has ended", attributes...)
}
