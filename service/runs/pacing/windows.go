package pacing

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// applyWindows pauses, resumes and paces the active run of the schedule if a window has opened or closed.
func (p *Pacer) applyWindows(ctx context.Context, tx pgx.Tx) error {
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
	if phase == nil { // the windows were removed
		err = store.SetWindowUntil(ctx, tx, run.RunID, nil)
		phase = &schedule.Phase{Open: true}
	} else {
		err = store.SetWindowUntil(ctx, tx, run.RunID, &phase.Until)
	}
	if err != nil {
		return err
	}
	if to := cmp.Or(phase.Pace, stored.Pace, p.Pace); phase.Open && to != run.Pace {
		if err := store.SetPace(ctx, tx, run.RunID, to); err != nil {
			return err
		}
		if err := store.LogToRun(
			ctx, tx, run.Epoch, message.PaceChanged.With("pace", to, "caller", store.Schedule),
		); err != nil {
			return err
		}
	}
	switch {
	case !phase.Open && run.State != store.Paused:
		if err := store.PauseRun(ctx, tx, run.RunID, store.Schedule); err != nil {
			return err
		}
		return store.LogToRun(ctx, tx, run.Epoch, message.RunPaused.With("caller", store.Schedule))
	case phase.Open && run.State == store.Paused && run.PausedBy == store.Schedule:
		if err := store.ResumeRun(ctx, tx, run.RunID); err != nil {
			return err
		}
		return store.LogToRun(ctx, tx, run.Epoch, message.RunContinued.With("caller", store.Schedule))
	}
	return nil
}
