package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// timeline is the SQL for the server's timeline, which changes with a promotion or a restore; it is NULL on a
// standby. otherTimeline is the condition that the schedule was stored on another timeline.
const (
	timeline      = "CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
	otherTimeline = "timeline <> '' AND timeline <> " + timeline
)

// GetSchedule returns nil if no schedule is stored.
func GetSchedule(ctx context.Context, db campaign.Querier) (*schedule.Schedule, error) {
	return readSchedule(ctx, db, "")
}

// readSchedule returns nil if no schedule is stored, or if the condition is false.
func readSchedule(ctx context.Context, db campaign.Querier, condition string) (*schedule.Schedule, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT COALESCE(cron, ''), more_crons, once, time_zone, enabled, COALESCE(max_duration, '0'), continue_on_error,
			pause_stops_clock, COALESCE(next_plan::text, ''), pace, windows, undo, next_run_time, COALESCE(last_run_id::text, '')
		FROM cleanupd.schedule `+condition,
	)
	s, err := pgx.CollectOneRow(rows, pgx.RowToAddrOfStructByPos[schedule.Schedule])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return s, err
}

// LockSchedule locks the schedule row. If there is none, it inserts initial and reports inserted. Call it before taking
// any other lock.
func LockSchedule(
	ctx context.Context, tx pgx.Tx, initial schedule.Schedule,
) (s *schedule.Schedule, inserted bool, err error) {
	if inserted, err = InsertSchedule(ctx, tx, initial); err != nil {
		return nil, false, err
	}
	s, err = readSchedule(ctx, tx, "FOR UPDATE")
	return s, inserted, err
}

// LockPendingSchedule must be called before any other lock is taken. It returns nil if no run is pending.
func LockPendingSchedule(ctx context.Context, tx pgx.Tx) (*schedule.Schedule, error) {
	if _, err := tx.Exec(ctx, "SELECT FROM cleanupd.schedule FOR UPDATE"); err != nil {
		return nil, err
	}
	return readSchedule(ctx, tx, "WHERE pending")
}

// LockDueSchedule returns nil if no run is due, or if another replica is starting it.
func LockDueSchedule(ctx context.Context, tx pgx.Tx) (*schedule.Schedule, error) {
	return readSchedule(ctx, tx, "WHERE enabled AND next_run_time <= clock_timestamp() FOR UPDATE SKIP LOCKED")
}

// LockScheduleOfOtherTimeline returns nil if the schedule was stored on the current timeline, or if another replica
// has locked it.
func LockScheduleOfOtherTimeline(ctx context.Context, tx pgx.Tx) (*schedule.Schedule, error) {
	return readSchedule(ctx, tx, "WHERE "+otherTimeline+" FOR UPDATE SKIP LOCKED")
}

// ScheduleState says what a replica that keeps the schedule has to do.
type ScheduleState struct {
	Stored bool
	// OtherTimeline means that the server was promoted or restored since the schedule was stored.
	OtherTimeline bool
	// Due means that a run is due now. Pending means that a run became due during another run, which has ended in the
	// meantime.
	Due, Pending bool
}

func GetScheduleState(ctx context.Context, db campaign.Querier) (s ScheduleState, err error) {
	err = db.QueryRow(
		ctx,
		`SELECT true, COALESCE(`+otherTimeline+`, false), COALESCE(enabled AND next_run_time <= clock_timestamp(), false),
			pending AND NOT EXISTS (SELECT FROM cleanupd.run WHERE slot = ANY ($1) AND `+active+`)
		FROM cleanupd.schedule`,
		DeletingSlots,
	).Scan(&s.Stored, &s.OtherTimeline, &s.Due, &s.Pending)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return s, err
}

// CompleteSchedule completes a schedule that replaces the current one, if there is one, using the clock and the time
// zone of the database. It fails with failure.Violations.
func CompleteSchedule(ctx context.Context, db campaign.Querier, s, current *schedule.Schedule) error {
	var (
		now      time.Time
		timeZone string
	)
	if err := db.QueryRow(ctx, "SELECT clock_timestamp(), current_setting('TimeZone')").
		Scan(&now, &timeZone); err != nil {
		return err
	}
	return s.Complete(now, timeZone, current)
}

// InsertSchedule does nothing if a schedule is stored already.
func InsertSchedule(ctx context.Context, tx pgx.Tx, s schedule.Schedule) (inserted bool, err error) {
	return storeSchedule(ctx, tx, s, nil, "DO NOTHING")
}

// SetSchedule replaces the current schedule. A pending run stays pending unless the new schedule is disabled. It fails
// with failure.Violations.
func SetSchedule(ctx context.Context, tx pgx.Tx, s schedule.Schedule, current *schedule.Schedule) error {
	_, err := storeSchedule(ctx, tx, s, current, `DO UPDATE
		SET cron = excluded.cron, more_crons = excluded.more_crons, once = excluded.once,
		time_zone = excluded.time_zone, enabled = excluded.enabled, max_duration = excluded.max_duration,
		continue_on_error = excluded.continue_on_error, next_run_time = excluded.next_run_time,
		next_plan = excluded.next_plan, pace = excluded.pace, windows = excluded.windows,
		pause_stops_clock = excluded.pause_stops_clock, undo = excluded.undo, timeline = excluded.timeline,
		pending = schedule.pending AND excluded.enabled`)
	return err
}

func storeSchedule(
	ctx context.Context, tx pgx.Tx, s schedule.Schedule, current *schedule.Schedule, onConflict string,
) (stored bool, err error) {
	if err := CompleteSchedule(ctx, tx, &s, current); err != nil {
		return false, err
	}
	var plan uuid.UUID
	if s.NextPlan != "" {
		if plan, err = ParseID(s.NextPlan); err != nil {
			return false, err
		}
	}
	tag, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.schedule (cron, more_crons, once, time_zone, enabled, max_duration, continue_on_error,
			next_run_time, next_plan, pace, windows, pause_stops_clock, undo, timeline)
		VALUES (@cron, COALESCE(@more_crons, '{}'::text[]), @once, @time_zone, @enabled,
			NULLIF(@max_duration::interval, '0'), @continue_on_error, @next_run_time, @next_plan, @pace,
			COALESCE(@windows::jsonb, '[]'), @pause_stops_clock, @undo, `+timeline+`)
		ON CONFLICT (only_row) `+onConflict,
		pgx.StrictNamedArgs{
			"cron":              zeronull.Text(s.Cron),
			"more_crons":        s.MoreCrons,
			"once":              s.Once,
			"time_zone":         s.TimeZone,
			"enabled":           s.Enabled,
			"max_duration":      s.MaxDuration,
			"continue_on_error": s.ContinueOnError,
			"next_run_time":     s.NextRunTime,
			"next_plan":         zeronull.UUID(plan),
			"pace":              s.Pace,
			"windows":           s.Windows,
			"pause_stops_clock": s.PauseStopsClock,
			"undo":              s.Undo,
		},
	)
	return tag.RowsAffected() > 0, err
}

func SetNextTime(ctx context.Context, tx pgx.Tx, next *time.Time) error {
	_, err := tx.Exec(ctx, "UPDATE cleanupd.schedule SET next_run_time = $1, timeline = "+timeline, next)
	return err
}

// SetPending marks a run as pending, and stores when the next one is due.
func SetPending(ctx context.Context, tx pgx.Tx, next *time.Time) error {
	_, err := tx.Exec(ctx, "UPDATE cleanupd.schedule SET next_run_time = $1, pending = true, timeline = "+timeline,
		next)
	return err
}

func SetStarted(ctx context.Context, tx pgx.Tx, run *Run) error {
	_, err := tx.Exec(ctx, "UPDATE cleanupd.schedule SET pending = false, next_plan = NULL, last_run_id = $1", run.ID)
	return err
}

func DisableSchedule(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "UPDATE cleanupd.schedule SET enabled = false, next_run_time = NULL, pending = false")
	return err
}

func Now(ctx context.Context, db campaign.Querier) (now time.Time, err error) {
	return now, db.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
}
