package pacing

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// applyWindows pauses or resumes the run of the schedule, or changes its pace, when a window has opened or closed.
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
		if err := setPace(ctx, tx, run.Epoch, to, store.RequestedBySchedule); err != nil {
			return err
		}
	}
	switch {
	case !phase.Open && run.State != store.Paused:
		return pauseRun(ctx, tx, run.Epoch, store.RequestedBySchedule)
	case phase.Open && run.State == store.Paused && run.PausedBy == store.RequestedBySchedule:
		return resumeRun(ctx, tx, run.Epoch, store.RequestedBySchedule)
	}
	return nil
}
