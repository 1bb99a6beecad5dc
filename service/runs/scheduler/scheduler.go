// Package scheduler starts the runs of the schedule on the replicas that keep it. It uses the packages store,
// schedule and instance. Manager calls Tick periodically. The worker that ends a run also starts a run that became
// due in the meantime.
package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/tasklist"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

type Scheduler struct {
	// Enabled means that this replica keeps the schedule.
	Enabled bool
	Pool    *pgxpool.Pool
	Owner   *store.Owner
	Tasks   tasklist.Source
	// Pace is that of runs whose schedule names none.
	Pace pace.Pace
	Log  *slog.Logger
}

// Tick starts a run that is due, or that was left pending by a replica that does not keep the schedule. It also
// stores the default schedule if none is stored. If several replicas call it at the same time, only one of them
// does it.
func (s *Scheduler) Tick(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if owns, err := s.Owner.Owns(ctx, s.Pool); err != nil || !owns {
		return err
	}
	state, err := store.GetScheduleState(ctx, s.Pool)
	if err != nil {
		return err
	}
	begin := func(do func(context.Context, pgx.Tx) error) error {
		return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error { return do(ctx, tx) })
	}
	switch {
	case !state.Stored:
		return begin(insertDefault)
	case state.OtherTimeline:
		return begin(s.skipMissed)
	case state.Due:
		return begin(s.startDue)
	case state.Pending:
		return begin(func(ctx context.Context, tx pgx.Tx) error {
			pending, err := s.LockPending(ctx, tx)
			if err != nil || pending == nil {
				return err
			}
			return s.StartPending(ctx, tx, pending)
		})
	}
	return nil
}

func insertDefault(ctx context.Context, tx pgx.Tx) error {
	_, err := store.InsertSchedule(ctx, tx, schedule.Default(true))
	return err
}

// skipMissed sets a new next time for a schedule that was stored on another timeline. A missed run is not caught
// up, because in the data of this timeline it might delete other rows than expected.
func (s *Scheduler) skipMissed(ctx context.Context, tx pgx.Tx) error {
	stored, err := store.LockScheduleOfOtherTimeline(ctx, tx)
	if err != nil || stored == nil {
		return err
	}
	now, err := store.Now(ctx, tx)
	if err != nil {
		return err
	}
	next := stored.NextRunTime
	if next != nil && stored.Enabled && !next.After(now) {
		s.Log.Warn("the server was promoted or restored since: a scheduled run is not caught up", "due", next)
		if err := store.RecordMissed(ctx, tx, 0); err != nil {
			return err
		}
		if next, err = stored.Next(now); err != nil {
			return fmt.Errorf("the stored schedule: %w", err)
		}
	}
	return store.SetNextTime(ctx, tx, next)
}

// startDue starts a single run, even if several times have passed. While another run is active, the new one stays
// pending.
func (s *Scheduler) startDue(ctx context.Context, tx pgx.Tx) error {
	stored, err := store.LockDueSchedule(ctx, tx)
	if err != nil || stored == nil {
		return err
	}
	now, err := store.Now(ctx, tx)
	if err != nil {
		return err
	}
	next, err := stored.Next(now)
	if err != nil {
		return fmt.Errorf("the stored schedule: %w", err)
	}
	if err := store.RecordMissed(ctx, tx, store.MissedAfter); err != nil {
		return err
	}
	if err := store.SetPending(ctx, tx, next); err != nil {
		return err
	}
	return s.StartPending(ctx, tx, stored)
}

// LockPending locks the schedule when a run ends; it must be called before any other lock is taken. It returns nil
// if no run is pending, if this replica does not keep the schedule, or if another instance owns the database.
func (s *Scheduler) LockPending(ctx context.Context, tx pgx.Tx) (*schedule.Schedule, error) {
	if !s.Enabled {
		return nil, nil
	}
	pending, err := store.LockPendingSchedule(ctx, tx)
	if err != nil || pending == nil {
		return nil, err
	}
	err = s.Owner.Lock(ctx, tx)
	if refusal := (*failure.Refusal)(nil); errors.As(err, &refusal) {
		return nil, nil
	}
	return pending, err
}

// StartPending starts a pending run. While another run is active, it stays pending.
func (s *Scheduler) StartPending(ctx context.Context, tx pgx.Tx, pending *schedule.Schedule) error {
	var (
		plan      uuid.UUID
		planTasks []string
	)
	if pending.NextPlan != "" {
		var err error
		if plan, err = store.ParseID(pending.NextPlan); err != nil {
			return err
		}
		// If the plan was pruned in the meantime, the run is refused when it starts.
		if dryRun, err := store.GetRun(ctx, tx, plan); err == nil {
			planTasks = dryRun.Started()
		}
	}
	list, err := s.Tasks.Read(ctx, tx)
	if err != nil {
		return err
	}
	now, err := store.Now(ctx, tx)
	if err != nil {
		return err
	}
	phase, err := pending.Phase(now)
	if err != nil {
		return fmt.Errorf("the stored schedule: %w", err)
	}
	run, err := store.InsertRun(ctx, tx, store.NewRun{
		Slots:           store.DeletingSlots,
		ContinueOnError: pending.ContinueOnError,
		MaxDuration:     pending.MaxDuration,
		PauseStopsClock: pending.PauseStopsClock,
		Pace:            cmp.Or(pending.Pace, s.Pace),
		Phase:           phase,
		RequestedBy:     store.RequestedBySchedule,
		Plan:            plan,
		Pipeline:        list.Tasks,
		Chosen:          list.Choose(planTasks, nil),
	})
	if err != nil || run == nil {
		return err
	}
	return store.SetStarted(ctx, tx, run)
}
