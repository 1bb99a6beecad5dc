package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

var errEnded = failure.New(failure.Precondition, "the run has ended")

// awaitRelease is how long Pause waits for the replica to leave the run.
const (
	awaitRelease = 10 * time.Second
	idlePoll     = 20 * time.Millisecond
)

// Pause stores that the run is paused. It returns when no replica works on the run any more, or after awaitRelease. The
// worker reads this with its next batch (attempt.follow), or during a long statement (attempt.watchInstructions). Its
// attempt ends with errPaused, as after a lost lease: no task or run is recorded as ended, and nobody claims the run
// until it is resumed. Pause fails with store.ErrNotFound, or errEnded.
func (m *Manager) Pause(ctx context.Context, id, caller string) (*store.Run, error) {
	run, err := m.changeRun(ctx, id, audit.Details{}, func(tx pgx.Tx, run *store.Run, e store.Epoch) error {
		if run.State == store.Paused && run.PausedBy != store.RequestedBySchedule {
			return nil
		}
		return pauseRun(ctx, tx, e, caller)
	})
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(awaitRelease)
	for {
		idle, err := store.IsIdle(ctx, m.calls, run.UUID())
		if err != nil {
			return nil, err
		}
		if idle || time.Now().After(deadline) {
			return store.GetRun(ctx, m.calls, run.UUID())
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(idlePoll):
		}
	}
}

// Resume fails with store.ErrNotFound, errEnded, or a store.ActiveError while a run by hand has the run's slot.
func (m *Manager) Resume(ctx context.Context, id, caller string) (*store.Run, error) {
	return m.changeRun(ctx, id, audit.Details{}, func(tx pgx.Tx, run *store.Run, e store.Epoch) error {
		if run.State != store.Paused {
			return nil
		}
		if run.WaitsFor != "" {
			return &store.ActiveError{RunID: run.WaitsFor}
		}
		return resumeRun(ctx, tx, e, caller)
	})
}

// SetPace changes the pace from the next batch on. It fails with store.ErrNotFound, or errEnded.
func (m *Manager) SetPace(ctx context.Context, id string, to pace.Pace, caller string) (*store.Run, error) {
	return m.changeRun(ctx, id, audit.Details{"pace": to}, func(tx pgx.Tx, run *store.Run, e store.Epoch) error {
		if run.Pace == to {
			return nil
		}
		return setPace(ctx, tx, e, to, caller)
	})
}

// changeRun locks an active run, notes the change in the audit, and calls do in the same transaction.
func (m *Manager) changeRun(
	ctx context.Context, id string, details audit.Details, do func(tx pgx.Tx, run *store.Run, e store.Epoch) error,
) (run *store.Run, err error) {
	parsed, err := store.ParseID(id)
	if err != nil {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if run, err = store.GetRun(ctx, tx, parsed); err != nil {
			return err
		}
		if !run.DryRun {
			if err := m.owner.Lock(ctx, tx); err != nil {
				return err
			}
		}
		_, epoch, err := store.LockRun(ctx, tx, parsed)
		if err != nil {
			return notFound(err)
		}
		if run, err = store.GetRun(ctx, tx, parsed); err != nil {
			return err
		}
		if !run.State.Active() {
			return fmt.Errorf("%w: it is %s", errEnded, run.State)
		}
		details["run_id"] = run.ID
		if err := audit.Note(ctx, tx, details); err != nil {
			return err
		}
		if err := do(tx, run, epoch); err != nil {
			return err
		}
		run, err = store.GetRun(ctx, tx, parsed)
		return err
	})
	return run, err
}

// pauseRun, resumeRun and setPace need a run that the caller has locked.
func pauseRun(ctx context.Context, tx pgx.Tx, e store.Epoch, by string) error {
	if err := store.PauseRun(ctx, tx, e.RunID, by); err != nil {
		return err
	}
	return store.LogToRun(ctx, tx, e, message.RunPaused.With("caller", by))
}

func resumeRun(ctx context.Context, tx pgx.Tx, e store.Epoch, by string) error {
	if err := store.ResumeRun(ctx, tx, e.RunID); err != nil {
		return err
	}
	return store.LogToRun(ctx, tx, e, message.RunContinued.With("caller", by))
}

func setPace(ctx context.Context, tx pgx.Tx, e store.Epoch, to pace.Pace, by string) error {
	if err := store.SetPace(ctx, tx, e.RunID, to); err != nil {
		return err
	}
	return store.LogToRun(ctx, tx, e, message.PaceChanged.With("pace", to, "caller", by))
}

func notFound(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return store.ErrNotFound
	}
	return err
}

// tickPauses ends paused runs that have to end, and applies the schedule's windows to its active run. If another
// instance owns the database, it only ends dry runs.
func (m *Manager) tickPauses(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	owns, err := m.owner.Owns(ctx, m.pool)
	if err != nil {
		return err
	}
	if owns { // first, because ending a run does not end its last batch
		if err := m.leaveSilentReplicas(ctx); err != nil {
			return err
		}
	}
	if err := m.endPauses(ctx, !owns); err != nil || !owns {
		return err
	}
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error { return m.applyWindows(ctx, tx) })
}

// leaveSilentReplicas ends the batch of a replica that no longer renews its lease on a paused run. No other replica
// would do that, because no replica claims a paused run.
func (m *Manager) leaveSilentReplicas(ctx context.Context) error {
	found, err := store.FindLeftPaused(ctx, m.pool)
	if err != nil {
		return err
	}
	for _, e := range found {
		m.endBatch(ctx, e.RunID)
		if err := pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
			return store.ReleaseLease(ctx, tx, e)
		}); err != nil {
			return err
		}
	}
	return nil
}

// endPauses ends the paused runs that were cancelled, were paused for too long, or have reached their time limit. With
// dryRuns it ends only dry runs.
func (m *Manager) endPauses(ctx context.Context, dryRuns bool) error {
	found, err := store.FindPausesToEnd(ctx, m.pool, m.config.MaxPause, dryRuns)
	if err != nil {
		return err
	}
	for _, f := range found {
		outcome := outcome{
			State: store.Cancelled,
			Error: cmp.Or(f.Stop, fmt.Sprintf("paused for longer than --max-pause (%s)", m.config.MaxPause)),
			Cause: store.CauseCancelled,
		}
		if err := m.endIdle(ctx, m.pool, f.ID, outcome, func(tx pgx.Tx) (bool, error) {
			state, _, err := store.LockRun(ctx, tx, f.ID)
			return state == store.Paused, notFound(err)
		}); err != nil {
			return err
		}
	}
	return nil
}

// applyWindows pauses or resumes the run of the schedule, or changes its pace, when a window has opened or closed.
func (m *Manager) applyWindows(ctx context.Context, tx pgx.Tx) error {
	run, err := store.LockWindowedRun(ctx, tx)
	if err != nil || run == nil {
		return err
	}
	stored, err := store.GetSchedule(ctx, tx)
	if err != nil {
		return err
	}
	if stored == nil {
		stored = &schedule.Schedule{}
	}
	now, err := store.Now(ctx, tx)
	if err != nil {
		return err
	}
	phase, err := stored.Phase(now)
	if err != nil {
		return fmt.Errorf("the stored schedule: %w", err)
	}
	var until *time.Time
	if phase == nil { // the windows were removed
		phase = &schedule.Phase{Open: true}
	} else {
		until = &phase.Until
	}
	awaits := run.State == store.Paused && run.PausedBy == store.RequestedBySchedule
	if awaits && phase.Open && run.Yields { // tried again until the run by hand has ended, or the window closes
		return nil
	}
	if err := store.SetWindowUntil(ctx, tx, run.RunID, until); err != nil {
		return err
	}
	if to := cmp.Or(phase.Pace, stored.Pace, m.config.DefaultPace); phase.Open && to != run.Pace {
		if err := setPace(ctx, tx, run.Epoch, to, store.RequestedBySchedule); err != nil {
			return err
		}
	}
	switch {
	case phase.Open && awaits:
		return resumeRun(ctx, tx, run.Epoch, store.RequestedBySchedule)
	case phase.Open, run.State == store.Paused && !awaits:
		return nil
	}
	if !awaits {
		if err := store.PauseRun(ctx, tx, run.RunID, store.RequestedBySchedule); err != nil {
			return err
		}
	}
	return store.LogWindow(ctx, tx, run.Epoch, phase.Until)
}
