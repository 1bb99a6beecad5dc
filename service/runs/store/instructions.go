package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// These are the reasons why a run has to stop, as its error states them.
const (
	StopCancelled   = "cancelled by request"
	StopMaxDuration = "max_duration reached"
	// StopPaused ends only the attempt; the run itself is paused.
	StopPaused = "paused"
)

// limitReached is the SQL condition that the run has reached its time limit. It compares intervals, in which a day
// has 24 hours. Adding a day to a timestamp would be wrong on days when the clocks change.
const limitReached = `clock_timestamp() - start_time - CASE WHEN pause_stops_clock THEN paused_for
	+ COALESCE(clock_timestamp() - pause_time, '0') ELSE '0' END >= max_duration`

// Instructions say what a worker has to do from its next batch on.
type Instructions struct {
	Stop string // why the run must stop; "" if it need not
	Pace pace.Pace
}

// instructions selects the fields of Instructions as an array, or NULL if the epoch has ended.
const instructions = `(SELECT ARRAY[CASE WHEN cancel_requested THEN '` + StopCancelled + `' WHEN ` +
	limitReached + ` THEN '` +
	StopMaxDuration + `' WHEN state = 'PAUSED' THEN '` + StopPaused + `' ELSE '' END, pace]
	FROM cleanupd.run WHERE ` + inEpoch + `)`

// ParseInstructions returns nil if the epoch has ended.
func ParseInstructions(fields []string) *Instructions {
	if fields == nil {
		return nil
	}
	return &Instructions{fields[0], pace.Pace(fields[1])}
}

// ReadInstructions returns nil if the epoch has ended.
func ReadInstructions(ctx context.Context, db campaign.Querier, e Epoch) (*Instructions, error) {
	var fields []string
	err := db.QueryRow(ctx, "SELECT "+instructions, e.args(pgx.StrictNamedArgs{})).Scan(&fields)
	return ParseInstructions(fields), err
}

// idleRun is the SQL condition that no replica works on an active run.
const idleRun = "(state = 'QUEUED' OR replica = '' OR lease_until < clock_timestamp())"

// RequestCancel asks the run's replica to stop it. idle means that no replica works on the run, so that the caller has
// to end it.
func RequestCancel(ctx context.Context, tx pgx.Tx, id uuid.UUID) (idle bool, err error) {
	err = tx.QueryRow(ctx, `UPDATE cleanupd.run SET cancel_requested = true WHERE id = $1 AND `+active+`
		RETURNING `+idleRun, id).
		Scan(&idle)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return idle, err
}

func IsIdle(ctx context.Context, db campaign.Querier, id uuid.UUID) (idle bool, err error) {
	err = db.QueryRow(ctx, "SELECT "+idleRun+" FROM cleanupd.run WHERE id = $1 AND "+active, id).Scan(&idle)
	if errors.Is(err, pgx.ErrNoRows) {
		return true, nil
	}
	return idle, err
}

// PauseRun pauses a run that the caller has locked. If the run is paused already, a new pause begins, so that its
// maximum counts from now.
func PauseRun(ctx context.Context, tx pgx.Tx, id uuid.UUID, by string) error {
	if err := addPause(ctx, tx, id); err != nil {
		return err
	}
	_, err := tx.Exec(
		ctx,
		`UPDATE cleanupd.run SET state = 'PAUSED', paused_by = $2,
			paused_for = paused_for + COALESCE(clock_timestamp() - pause_time, '0'), pause_time = clock_timestamp()
		WHERE id = $1`,
		id, by,
	)
	return err
}

// ResumeRun resumes a paused run that the caller has locked. Its replica continues it if it has not left the run
// yet, otherwise any replica may.
func ResumeRun(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	if err := addPause(ctx, tx, id); err != nil {
		return err
	}
	if _, err := tx.Exec(
		ctx,
		`UPDATE cleanupd.run SET state = CASE WHEN start_time IS NULL THEN 'QUEUED' ELSE 'RUNNING' END,
			paused_for = paused_for + (clock_timestamp() - pause_time), pause_time = NULL, paused_by = '',
			lease_until = COALESCE(lease_until, clock_timestamp())
		WHERE id = $1`,
		id,
	); err != nil {
		return err
	}
	return NotifyWaiting(ctx, tx, id)
}

// addPause adds the time of the current pause, if the run is paused, to the pauses of its running task.
func addPause(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := tx.Exec(
		ctx,
		`UPDATE cleanupd.task SET paused_for = task.paused_for + (clock_timestamp() - run.pause_time)
		FROM cleanupd.run WHERE run.id = $1 AND task.run_id = run.id AND task.state = 'RUNNING'
			AND run.pause_time IS NOT NULL`,
		id,
	)
	return err
}

func SetPace(ctx context.Context, tx pgx.Tx, id uuid.UUID, p pace.Pace) error {
	_, err := tx.Exec(ctx, "UPDATE cleanupd.run SET pace = $2 WHERE id = $1", id, p)
	return err
}

// LogToRun writes a message to the log of a run that the caller has locked, whether or not a replica works on the
// run. If the server was restarted since the epoch began, it begins a new epoch first.
func LogToRun(ctx context.Context, tx pgx.Tx, e Epoch, m message.Message) error {
	err := AppendEvents(ctx, tx, e, LogEvent("", m))
	if !errors.Is(err, ErrFenced) {
		return err
	}
	if e, err = BeginEpoch(ctx, tx, e.RunID); err != nil {
		return err
	}
	return AppendEvents(ctx, tx, e, LogEvent("", m))
}

// LogWindow writes to the log of a run, as LogToRun does, that the schedule has paused it until its window opens.
func LogWindow(ctx context.Context, tx pgx.Tx, e Epoch, opens time.Time) error {
	return LogToRun(ctx, tx, e, message.RunAwaitsWindow.With("time", opens.UTC().Format(time.RFC3339)))
}

// PausedRun is a paused run that has to end.
type PausedRun struct {
	ID   uuid.UUID
	Stop string // why the run has to end; "" if it was paused for too long
}

// FindPausesToEnd returns the paused runs that no replica works on and that were cancelled, have reached their time
// limit, or were paused for longer than longest. A pause by the schedule's windows may last longer, because it ends
// by itself.
func FindPausesToEnd(
	ctx context.Context, db campaign.Querier, longest time.Duration, dryRuns bool,
) ([]PausedRun, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT id, CASE WHEN cancel_requested THEN '`+StopCancelled+`' WHEN `+limitReached+` THEN '`+StopMaxDuration+`'
			ELSE '' END FROM cleanupd.run
		WHERE state = 'PAUSED' AND `+idleRun+` AND (dry_run OR NOT $3) AND (cancel_requested OR `+limitReached+`
			OR pause_time < clock_timestamp() - $1::interval AND paused_by <> $2)`,
		longest, RequestedBySchedule, dryRuns,
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[PausedRun])
}

// FindLeftPaused returns the paused runs whose replica no longer renews its lease.
func FindLeftPaused(ctx context.Context, db campaign.Querier) ([]Epoch, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT id, epoch FROM cleanupd.run
		WHERE state = 'PAUSED' AND replica <> '' AND lease_until < clock_timestamp()`,
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Epoch])
}

// WindowedRun is an active run to which the windows of the schedule apply.
type WindowedRun struct {
	Epoch
	State    State
	PausedBy string
	Pace     pace.Pace
	Yields   bool // whether a run by hand has its slot
}

// LockWindowedRun returns the run for which a window has opened or closed. It returns nil if there is none, or if
// another replica has locked it.
func LockWindowedRun(ctx context.Context, tx pgx.Tx) (*WindowedRun, error) {
	rows, _ := tx.Query(
		ctx,
		`SELECT id, epoch, state, paused_by, pace, `+yields+` FROM cleanupd.run
		WHERE `+active+` AND window_until <= clock_timestamp() LIMIT 1 FOR UPDATE SKIP LOCKED`,
	)
	r, err := pgx.CollectOneRow(rows, func(row pgx.CollectableRow) (r WindowedRun, err error) {
		return r, row.Scan(&r.RunID, &r.Number, &r.State, &r.PausedBy, &r.Pace, &r.Yields)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &r, err
}

// SetWindowUntil stores when the next window opens or closes for the run; nil if no windows apply.
func SetWindowUntil(ctx context.Context, tx pgx.Tx, id uuid.UUID, until *time.Time) error {
	_, err := tx.Exec(ctx, "UPDATE cleanupd.run SET window_until = $2 WHERE id = $1", id, until)
	return err
}

// ReapplyWindows makes the windows of the schedule apply again to its active run.
func ReapplyWindows(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "UPDATE cleanupd.run SET window_until = clock_timestamp() WHERE requested_by = $1 AND "+active,
		RequestedBySchedule)
	return err
}
