package pacing

import (
	"cmp"
	"context"
	"fmt"
	"time"

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
	if to := cmp.Or(phase.Pace, stored.Pace, p.Pace); phase.Open && to != run.Pace {
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
