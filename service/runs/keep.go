package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/refused"
)

// scheduler is who requests the runs of the schedule.
const scheduler = "schedule"

// keep starts a scheduled run that is due, or that was left pending by a replica that does not keep the schedule, and
// stores the default schedule if there is none yet. Whichever replica comes first does it.
func (m *Manager) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	if ours, err := m.owns(ctx); err != nil || !ours {
		return err
	}
	var due, left, elsewhere bool
	err := m.pool.QueryRow(ctx, `SELECT COALESCE(enabled AND next_run_time <= clock_timestamp(), false),
		pending AND NOT EXISTS (SELECT FROM cleanupd.run WHERE slot = ANY ($1::smallint[])
			AND state IN ('QUEUED', 'RUNNING')),
		COALESCE(`+moved+`, false) FROM cleanupd.schedule`, slots(Request{})).Scan(&due, &left, &elsewhere)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
			return storeSchedule(ctx, tx, Schedule{Enabled: true, ContinueOnError: true}, "DO NOTHING")
		})
	case err != nil:
		return err
	case elsewhere:
		return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error { return m.skipPassed(ctx, tx) })
	case due:
		return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error { return m.fire(ctx, tx) })
	case left:
		return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
			s, err := m.lockPending(ctx, tx)
			if err != nil || s == nil {
				return err
			}
			return m.startPending(ctx, tx, s)
		})
	}
	return nil
}

// timeline is the SQL of the server's timeline, which a promotion and a restore change; NULL on a standby. moved is
// whether it is another one than that of the schedule, if that is known.
const (
	timeline = "CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
	moved    = "timeline <> '' AND timeline <> " + timeline
)

// skipPassed sets the next time of a schedule on another timeline than before. One that has passed is not caught up: by
// the data that is here now, what the run would have done may not be what was seen.
func (m *Manager) skipPassed(ctx context.Context, tx pgx.Tx) error {
	s, now, err := lockSchedule(ctx, tx, moved)
	if err != nil || s == nil {
		return err
	}
	next := s.NextRunTime
	if next != nil && s.Enabled && !next.After(now) {
		m.log.Warn("the server was promoted or restored since: a scheduled run is not caught up", "due", next)
		if next, err = s.following(now); err != nil {
			return fmt.Errorf("the stored schedule: %w", err)
		}
	}
	_, err = tx.Exec(ctx, "UPDATE cleanupd.schedule SET next_run_time = $1, timeline = "+timeline, next)
	return err
}

// lockSchedule locks the schedule if something is true of it, and tells the time; nil: it is not, or another replica
// was first.
func lockSchedule(ctx context.Context, tx pgx.Tx, condition string) (s *Schedule, now time.Time, err error) {
	s, err = readSchedule(ctx, tx, "WHERE "+condition+" FOR UPDATE SKIP LOCKED")
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, now, nil
	}
	if err == nil {
		err = tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	}
	return s, now, err
}

// fire starts one run, however many times have passed, and sets the next time. While a run is active the new one
// becomes pending.
func (m *Manager) fire(ctx context.Context, tx pgx.Tx) error {
	s, now, err := lockSchedule(ctx, tx, "enabled AND next_run_time <= clock_timestamp()")
	if err != nil || s == nil {
		return err
	}
	next, err := s.following(now)
	if err != nil {
		return fmt.Errorf("the stored schedule: %w", err)
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE cleanupd.schedule SET next_run_time = $1, pending = true, timeline = "+timeline,
		next,
	); err != nil {
		return err
	}
	return m.startPending(ctx, tx, s)
}

// startPending starts the scheduled run; while another run is active, it stays pending.
func (m *Manager) startPending(ctx context.Context, tx pgx.Tx, s *Schedule) error {
	req := Request{
		ContinueOnError: s.ContinueOnError,
		MaxDuration:     s.MaxDuration,
		RequestedBy:     scheduler,
		Plan:            s.NextPlan,
	}
	if plan, err := get(ctx, tx, s.NextPlan); err == nil { // one that is forgotten by now does not hold, either
		req.Tasks = plan.chosen()
	}
	p, err := m.pipeline(ctx, tx)
	if err != nil {
		return err
	}
	run, err := insertRun(ctx, tx, p, req)
	if err != nil || run == nil {
		return err
	}
	_, err = tx.Exec(
		ctx,
		"UPDATE cleanupd.schedule SET pending = false, next_plan = NULL, last_run_id = $1::text::uuid",
		run.ID,
	)
	return err
}

// lockPending locks the schedule, which comes before any other lock when a run ends, and returns it if a scheduled run
// is pending; nil if none is, or this replica does not keep the schedule, as where the database is another instance's.
func (m *Manager) lockPending(ctx context.Context, tx pgx.Tx) (*Schedule, error) {
	if !m.keepSchedule {
		return nil, nil
	}
	if _, err := tx.Exec(ctx, "SELECT FROM cleanupd.schedule FOR UPDATE"); err != nil {
		return nil, err
	}
	s, err := readSchedule(ctx, tx, "WHERE pending")
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		err = m.keepOwn(ctx, tx)
	}
	if refused := (*refused.Error)(nil); errors.As(err, &refused) {
		return nil, nil
	}
	return s, err
}
