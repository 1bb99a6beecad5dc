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
	"github.com/cleanupd/cleanupd/service/runs/instance"
	"github.com/cleanupd/cleanupd/service/runs/scheduler"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/worker"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// Pacer pauses, resumes and paces runs, whichever replica executes them.
type Pacer struct {
	// Pool is for callers, and Runs for what Tick does.
	Pool, Runs *pgxpool.Pool
	Owner      *instance.Owner
	Scheduler  *scheduler.Scheduler
	Worker     *worker.Worker
	// Pace is that of scheduled runs whose schedule and windows have none.
	Pace pace.Pace
	// MaxPause is the longest pause of a run; then it ends.
	MaxPause time.Duration
}

// errEnded reports that a run has ended.
var errEnded = failure.New(failure.Precondition, "the run has ended")

// awaitRelease is for how long Pause waits until no replica works on the run, and pollEvery how often it looks.
const (
	awaitRelease = 10 * time.Second
	pollEvery    = 20 * time.Millisecond
)

// Pause pauses a run on behalf of a caller, waits until no replica works on it, and returns it. It fails with
// store.ErrNotFound, or errEnded.
func (p *Pacer) Pause(ctx context.Context, id, caller string) (*store.Run, error) {
	run, err := p.change(ctx, id, audit.Details{}, func(tx pgx.Tx, run *store.Run, e store.Epoch) error {
		if run.State == store.Paused && run.PausedBy != store.Schedule {
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

// Resume lets a run continue that is paused, and returns it. It fails with store.ErrNotFound, or errEnded.
func (p *Pacer) Resume(ctx context.Context, id, caller string) (*store.Run, error) {
	return p.change(ctx, id, audit.Details{}, func(tx pgx.Tx, run *store.Run, e store.Epoch) error {
		if run.State != store.Paused {
			return nil
		}
		return resumeRun(ctx, tx, e, caller)
	})
}

// SetPace changes the pace of a run from its next batch on, and returns the run. It fails with store.ErrNotFound, or
// errEnded.
func (p *Pacer) SetPace(ctx context.Context, id string, to pace.Pace, caller string) (*store.Run, error) {
	return p.change(ctx, id, audit.Details{"pace": to}, func(tx pgx.Tx, run *store.Run, e store.Epoch) error {
		if run.Pace == to {
			return nil
		}
		return setPace(ctx, tx, e, to, caller)
	})
}

// pauseRun pauses a locked run, and logs who did it.
func pauseRun(ctx context.Context, tx pgx.Tx, e store.Epoch, by string) error {
	if err := store.PauseRun(ctx, tx, e.RunID, by); err != nil {
		return err
	}
	return store.LogToRun(ctx, tx, e, message.RunPaused.With("caller", by))
}

// resumeRun lets a locked run continue that is paused, and logs who did it.
func resumeRun(ctx context.Context, tx pgx.Tx, e store.Epoch, by string) error {
	if err := store.ResumeRun(ctx, tx, e.RunID); err != nil {
		return err
	}
	return store.LogToRun(ctx, tx, e, message.RunContinued.With("caller", by))
}

// setPace changes the pace of a locked run, and logs who did it.
func setPace(ctx context.Context, tx pgx.Tx, e store.Epoch, to pace.Pace, by string) error {
	if err := store.SetPace(ctx, tx, e.RunID, to); err != nil {
		return err
	}
	return store.LogToRun(ctx, tx, e, message.PaceChanged.With("pace", to, "caller", by))
}

// change calls do in a transaction that has locked an active run, with a note in the audit, and returns the run.
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

// Tick ends paused runs that have to end, and applies the windows of the schedule to its active run. In a database that
// belongs to another instance, it only does the former, for dry runs.
func (p *Pacer) Tick(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	owns, err := p.Owner.Owns(ctx, p.Runs)
	if err != nil {
		return err
	}
	if owns { // first, since a run that ends leaves its last batch alone
		if err := p.leaveSilentReplicas(ctx); err != nil {
			return err
		}
	}
	if err := p.endPauses(ctx, !owns); err != nil || !owns {
		return err
	}
	return pgx.BeginFunc(ctx, p.Runs, func(tx pgx.Tx) error { return p.applyWindows(ctx, tx) })
}

// leaveSilentReplicas ends the batches of paused runs whose replica no longer renews its lease: no other replica claims
// the run, and does it then.
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

// endPauses ends the paused runs that were cancelled, that were paused for too long, or whose time limit has passed;
// only dry runs if dryRuns is set.
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

// end ends a run if it is still paused.
func (p *Pacer) end(ctx context.Context, id uuid.UUID, o worker.Outcome) error {
	var ended *store.Run
	err := pgx.BeginFunc(ctx, p.Runs, func(tx pgx.Tx) error {
		if _, err := p.Scheduler.LockPending(ctx, tx); err != nil { // before any other lock, as whenever a run ends
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

// notFound returns store.ErrNotFound for a run that was pruned or never existed.
func notFound(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return store.ErrNotFound
	}
	return err
}
