package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

// Schedule returns the default schedule if none is stored.
func (m *Manager) Schedule(ctx context.Context) (*schedule.Schedule, error) {
	s, err := store.GetSchedule(ctx, m.calls)
	if err == nil && s == nil {
		s = new(schedule.Default(m.config.KeepSchedule))
		err = store.CompleteSchedule(ctx, m.calls, s, nil)
	}
	return s, err
}

// ScheduleWarnings returns warnings if scheduled runs would not start, or would be refused.
func (m *Manager) ScheduleWarnings(ctx context.Context, s *schedule.Schedule) (warnings []message.Message, err error) {
	if !s.Enabled {
		return nil, nil
	}
	replicas, err := store.Replicas(ctx, m.calls, replicaTimeout)
	if err != nil {
		return nil, err
	}
	keeps := func(r store.Replica) bool { return r.Schedule }
	if !m.config.KeepSchedule && !slices.ContainsFunc(replicas, keeps) {
		warnings = append(warnings, message.ScheduleNotKept.With())
	}
	if s.NextPlan != "" {
		return warnings, nil
	}
	h := guard.History{}
	if h.Limits, err = store.GuardLimits(ctx, m.calls); err != nil {
		return nil, err
	}
	if h.Unattended, err = store.NextIsUnattended(ctx, m.calls); err != nil {
		return nil, err
	}
	if why := h.JudgeFirst(); why != "" {
		warnings = append(warnings, message.ScheduleRefused.With("guard", guard.First, "problem", why))
	}
	return warnings, nil
}

// SetSchedule changes the schedule. A run that became due during another one stays pending, unless the schedule is
// disabled. It fails with failure.Violations, and with etag.ErrStale if givenEtag is not that of the current
// schedule.
func (m *Manager) SetSchedule(
	ctx context.Context, givenEtag string, change func(current *schedule.Schedule) (schedule.Schedule, error),
) (stored *schedule.Schedule, err error) {
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		current, inserted, err := store.LockSchedule(ctx, tx, schedule.Default(m.config.KeepSchedule))
		if err != nil {
			return err
		}
		if err := m.owner.Lock(ctx, tx); err != nil {
			return err
		}
		if err := etag.Check(givenEtag, current.Etag(), "the schedule"); err != nil {
			return err
		}
		s, err := change(current)
		if err != nil {
			return err
		}
		if s.NextPlan != "" {
			plan, err := store.FindPlan(ctx, tx, s.NextPlan, "schedule.next_plan")
			if err != nil {
				return err
			}
			s.NextPlan = plan.ID
		}
		if err := store.SetSchedule(ctx, tx, s, current); err != nil {
			return err
		}
		if s.WindowsDiffer(current) {
			if err := store.ReapplyWindows(ctx, tx); err != nil {
				return err
			}
		}
		if stored, err = store.GetSchedule(ctx, tx); err != nil {
			return err
		}
		from := current.String()
		if inserted {
			from = (&schedule.Schedule{}).String()
		}
		return audit.Note(ctx, tx, audit.Details{"from": from, "to": stored.String()})
	})
	return stored, err
}

// tickSchedule starts a run that is due, or that was left pending by a replica that does not keep the schedule. It also
// stores the default schedule if none is stored. If several replicas call it at the same time, only one of them acts.
func (m *Manager) tickSchedule(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if owns, err := m.owner.Owns(ctx, m.pool); err != nil || !owns {
		return err
	}
	state, err := store.GetScheduleState(ctx, m.pool)
	if err != nil {
		return err
	}
	begin := func(do func(context.Context, pgx.Tx) error) error {
		return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error { return do(ctx, tx) })
	}
	switch {
	case !state.Stored:
		return begin(insertDefaultSchedule)
	case state.OtherTimeline:
		return begin(m.skipMissed)
	case state.Due:
		return begin(m.startDue)
	case state.Pending:
		return begin(func(ctx context.Context, tx pgx.Tx) error {
			pending, err := m.lockPending(ctx, tx)
			if err != nil || pending == nil {
				return err
			}
			return m.startPending(ctx, tx, pending)
		})
	}
	return nil
}

func insertDefaultSchedule(ctx context.Context, tx pgx.Tx) error {
	_, err := store.InsertSchedule(ctx, tx, schedule.Default(true))
	return err
}

// skipMissed sets a new next time for a schedule that was stored on another timeline. A missed run is not made up for,
// because on this timeline it might delete other rows than expected.
func (m *Manager) skipMissed(ctx context.Context, tx pgx.Tx) error {
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
		m.log.Warn("skipped a missed scheduled run: the server was promoted or restored since", "due", next)
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
func (m *Manager) startDue(ctx context.Context, tx pgx.Tx) error {
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
	return m.startPending(ctx, tx, stored)
}

// lockPending locks the schedule when a run ends; it must be called before any other lock is taken. It returns nil
// if no run is pending, if this replica does not keep the schedule, or if another instance owns the database.
func (m *Manager) lockPending(ctx context.Context, tx pgx.Tx) (*schedule.Schedule, error) {
	if !m.config.KeepSchedule {
		return nil, nil
	}
	pending, err := store.LockPendingSchedule(ctx, tx)
	if err != nil || pending == nil {
		return nil, err
	}
	err = m.owner.Lock(ctx, tx)
	if refusal := (*failure.Refusal)(nil); errors.As(err, &refusal) {
		return nil, nil
	}
	return pending, err
}

// startPending starts a pending run. While another run is active, it stays pending.
func (m *Manager) startPending(ctx context.Context, tx pgx.Tx, pending *schedule.Schedule) error {
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
	list, err := m.Tasks.Read(ctx, tx)
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
		Pace:            cmp.Or(pending.Pace, m.config.DefaultPace),
		Phase:           phase,
		RequestedBy:     store.RequestedBySchedule,
		Plan:            plan,
		KeepAsPlanned:   true,
		Pipeline:        m.withUndo(list.Tasks, nil, pending.Undo),
		Chosen:          list.Choose(planTasks, nil),
	})
	if err != nil || run == nil {
		return err
	}
	return store.SetStarted(ctx, tx, run)
}
