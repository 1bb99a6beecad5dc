package runs

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/etag"
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
		s = new(schedule.Default(m.scheduler.Enabled))
		err = store.CompleteSchedule(ctx, m.calls, s)
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
	if !m.scheduler.Enabled && !slices.ContainsFunc(replicas, keeps) {
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
		current, inserted, err := store.LockSchedule(ctx, tx, schedule.Default(m.scheduler.Enabled))
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
		if err := store.SetSchedule(ctx, tx, s); err != nil {
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
