package pacing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/scheduler"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/worker"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// Pacer works on runs no matter which replica executes them.
type Pacer struct {
	// Pool is for API calls, Runs for Tick.
	Pool, Runs *pgxpool.Pool
	Owner      *store.Owner
	Scheduler  *scheduler.Scheduler
	Worker     *worker.Worker
	// Pace is that of scheduled runs whose schedule and windows name none.
	Pace pace.Pace
	// MaxPause is how long a run may be paused before it ends.
	MaxPause time.Duration
}

var errEnded = failure.New(failure.Precondition, "the run has ended")

// awaitRelease is how long Pause waits for the replica to leave the run.
const (
	awaitRelease = 10 * time.Second
	pollEvery    = 20 * time.Millisecond
)

// Pause returns when no replica works on the run any more. It fails with store.ErrNotFound, or errEnded.
func (p *Pacer) Pause(ctx context.Context, id, caller string) (*store.Run, error) {
	run, err := p.change(ctx, id, audit.Details{}, func(tx pgx.Tx, run *store.Run, e store.Epoch) error {
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
		idle, err := store.IsIdle(ctx, p.Pool, run.UUID())
		if err != nil {
			return nil, err
		}
		if idle || time.Now().After(deadline) {
			return store.GetRun(ctx, p.Pool, run.UUID())
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// Resume fails with store.ErrNotFound, errEnded, or a store.ActiveError while a run by hand has the run's slot.
func (p *Pacer) Resume(ctx context.Context, id, caller string) (*store.Run, error) {
	return p.change(ctx, id, audit.Details{}, func(tx pgx.Tx, run *store.Run, e store.Epoch) error {
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
func (p *Pacer) SetPace(ctx context.Context, id string, to pace.Pace, caller string) (*store.Run, error) {
	return p.change(ctx, id, audit.Details{"pace": to}, func(tx pgx.Tx, run *store.Run, e store.Epoch) error {
		if run.Pace == to {
			return nil
		}
		return setPace(ctx, tx, e, to, caller)
	})
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

// change locks an active run, notes the change in the audit, and calls do in the same transaction.
func (p *Pacer) change(
	ctx context.Context, id string, details audit.Details, do func(tx pgx.Tx, run *store.Run, e store.Epoch) error,
) (run *store.Run, err error) {
	parsed, err := store.ParseID(id)
	if err != nil {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, p.Pool, func(tx pgx.Tx) error {
		if run, err = store.GetRun(ctx, tx, parsed); err != nil {
			return err
		}
		if !run.DryRun {
			if err := p.Owner.Lock(ctx, tx); err != nil {
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

// Tick ends paused runs that have to end, and applies the schedule's windows to its active run. If another instance
// owns the database, it only ends dry runs.
func (p *Pacer) Tick(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	owns, err := p.Owner.Owns(ctx, p.Runs)
	if err != nil {
		return err
	}
	if owns { // first, because ending a run does not end its last batch
		if err := p.leaveSilentReplicas(ctx); err != nil {
			return err
		}
	}
	if err := p.endPauses(ctx, !owns); err != nil || !owns {
		return err
	}
	return pgx.BeginFunc(ctx, p.Runs, func(tx pgx.Tx) error { return p.applyWindows(ctx, tx) })
}

// leaveSilentReplicas ends the batch of a replica that no longer renews its lease on a paused run. No other replica
// would do that, because nobody claims a paused run.
func (p *Pacer) leaveSilentReplicas(ctx context.Context) error {
	found, err := store.FindLeftPaused(ctx, p.Runs)
	if err != nil {
		return err
	}
	for _, e := range found {
		p.Worker.EndBatch(ctx, e.RunID)
		if err := pgx.BeginFunc(ctx, p.Runs, func(tx pgx.Tx) error {
			return store.ReleaseLease(ctx, tx, e)
		}); err != nil {
			return err
		}
	}
	return nil
}

// endPauses ends the paused runs that were cancelled, were paused for too long, or have reached their time limit.
func (p *Pacer) endPauses(ctx context.Context, dryRuns bool) error {
	found, err := store.FindPausesToEnd(ctx, p.Runs, p.MaxPause, dryRuns)
	if err != nil {
		return err
	}
	for _, f := range found {
		outcome := worker.Outcome{
			State: store.Cancelled,
			Error: cmp.Or(f.Stop, fmt.Sprintf("paused for longer than --max-pause (%s)", p.MaxPause)),
			Cause: store.CauseCancelled,
		}
		if err := p.end(ctx, f.ID, outcome); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pacer) end(ctx context.Context, id uuid.UUID, o worker.Outcome) error {
	var ended *store.Run
	err := pgx.BeginFunc(ctx, p.Runs, func(tx pgx.Tx) error {
		if _, err := p.Scheduler.LockPending(ctx, tx); err != nil { // before any other lock, as always when a run ends
			return err
		}
		state, _, err := store.LockRun(ctx, tx, id)
		if err != nil || state != store.Paused {
			return notFound(err)
		}
		ended, err = p.Worker.Terminate(ctx, tx, id, o)
		return err
	})
	if ended != nil {
		p.Worker.Terminated(ctx, ended, err)
	}
	return err
}

func notFound(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return store.ErrNotFound
	}
	return err
}
