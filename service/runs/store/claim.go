package store

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// ClaimQuery selects the runs that a replica may claim.
type ClaimQuery struct {
	condition, lock string
	args            pgx.StrictNamedArgs
}

// Waiting selects runs that are queued, or whose replica no longer renews its lease, except those that this replica
// works on, and those with a task that this replica cannot run: of a kind not in kinds, or built only into a newer
// version.
func Waiting(working []uuid.UUID, builtIn, kinds []string) ClaimQuery {
	return ClaimQuery{
		`(state = 'QUEUED' OR state = 'RUNNING' AND lease_until < clock_timestamp())
			AND id <> ALL (@working::uuid[])
			AND NOT EXISTS (SELECT FROM cleanupd.task t WHERE t.run_id = run.id AND t.chosen
				AND (t.kind <> ALL (@kinds::text[]) OR t.kind = 'BUILT_IN' AND t.name <> ALL (@built_in::text[])))`,
		" ORDER BY create_time LIMIT 1 FOR UPDATE SKIP LOCKED",
		pgx.StrictNamedArgs{"working": working, "built_in": builtIn, "kinds": kinds},
	}
}

func (c ClaimQuery) DryRuns() ClaimQuery {
	c.condition += " AND dry_run"
	return c
}

// The run may still be locked by a transaction of its worker that was cut off.
func Interrupted(e Epoch) ClaimQuery {
	return ClaimQuery{
		"state = 'RUNNING' AND id = @run_id AND epoch = @epoch", " FOR UPDATE", e.args(pgx.StrictNamedArgs{}),
	}
}

func (c ClaimQuery) Exist(ctx context.Context, db campaign.Querier) (exist bool, err error) {
	err = db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM cleanupd.run WHERE "+c.condition+")", c.args).Scan(&exist)
	return exist, err
}

type Claim struct {
	Epoch
	DryRun          bool
	ContinueOnError bool
	Plan            uuid.UUID    // the dry run that it follows; uuid.Nil for none
	Accepted        []guard.Trip // the guards that do not refuse it
	WhatIf          map[string]int
	ReferenceTime   time.Time
	TraceParent     string // the span of the call that requested it
	Pace            pace.Pace
	LeaseUntil      time.Time
	Resumed         bool // it was claimed before, and may have done something
	FailedAttempts  int  // the last ones, without progress
	// As before the claim.
	State   State
	Replica string
}

// ClaimRun begins an epoch of the first candidate; nil without one. An attempt counts as failed if it made no progress,
// unless its replica released the run, or had not confirmed its start.
func ClaimRun(ctx context.Context, tx pgx.Tx, from ClaimQuery, replica string, lease time.Duration) (*Claim, error) {
	args := maps.Clone(from.args)
	args["replica"], args["lease"] = replica, lease
	rows, _ := tx.Query(
		ctx,
		`WITH waiting AS (SELECT id, state, replica, start_time AS before FROM cleanupd.run
			WHERE `+from.condition+from.lock+`)
		UPDATE cleanupd.run SET state = 'RUNNING', `+newEpoch+`,
			lease_until = clock_timestamp() + @lease::interval, replica = @replica,
			start_time = COALESCE(start_time, now()), reference_time = COALESCE(reference_time, now()),
			paused_for = CASE WHEN start_time IS NULL THEN '0' ELSE paused_for END,
			failed_attempts = CASE WHEN waiting.replica = '' THEN 0 WHEN progress_hash = '' THEN failed_attempts
				WHEN progress_hash = `+progressHash+` THEN failed_attempts + 1 ELSE 1 END, progress_hash = ''
		FROM waiting WHERE run.id = waiting.id
		RETURNING run.id, epoch, dry_run, continue_on_error, plan, accepted_guards, what_if, reference_time, trace_parent,
			pace, lease_until, before IS NOT NULL, failed_attempts, waiting.state, waiting.replica`,
		args,
	)
	c, err := pgx.CollectOneRow(rows, pgx.RowToAddrOfStructByPos[Claim])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return c, err
}

var ErrNotClaimed = errors.New("the claim was not committed")

// VerifyClaim waits for the end of a claim's transaction whose COMMIT was not answered. It fails with ErrNotClaimed.
func VerifyClaim(ctx context.Context, tx pgx.Tx, c *Claim, replica string) error {
	var committed bool
	err := tx.QueryRow(
		ctx,
		`SELECT epoch = @epoch AND replica = @replica AND lease_until = @lease_until FROM cleanupd.run
			WHERE id = @run_id FOR UPDATE`,
		c.args(pgx.StrictNamedArgs{"replica": replica, "lease_until": c.LeaseUntil}),
	).Scan(&committed)
	if errors.Is(err, pgx.ErrNoRows) || (err == nil && !committed) {
		return ErrNotClaimed
	}
	return err
}

type ClaimedTask struct {
	Name   string
	State  pipeline.State
	Cursor purge.Cursor
}

// ClaimTasks returns the chosen tasks in order. It waits for a batch that the previous worker is just committing.
func ClaimTasks(ctx context.Context, tx pgx.Tx, e Epoch) ([]ClaimedTask, error) {
	rows, _ := tx.Query(
		ctx,
		`WITH task AS (UPDATE cleanupd.task SET epoch = $2 WHERE run_id = $1 RETURNING *)
		SELECT name, state, cursor FROM task WHERE chosen ORDER BY position`,
		e.RunID, e.Number,
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[ClaimedTask])
}

// The current task of a dry run has no cursor, and is counted from its beginning.
func ResetCounts(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := tx.Exec(
		ctx,
		`UPDATE cleanupd.task
			SET rows_deleted = 0, rows_updated = 0, rows_cascaded = 0, tables_dropped = 0, batches = 0,
				remote_deliveries_retained = 0,
			rows_failed = 0, rows_locked = 0, rows_suppressed = 0, rows_dependent = 0, rows_on_hold = 0, tables_retained = 0
		WHERE run_id = $1 AND state = 'RUNNING'`,
		id,
	)
	return err
}

// Reasons to stop a run, as in its error.
const (
	StopCancelled   = "cancelled by request"
	StopMaxDuration = "max_duration reached"
	// Only the attempt ends: the run is paused.
	StopPaused = "paused"
)

// limitReached: the run's time limit is reached. It compares intervals, in which a day has 24 hours: adding a day to a
// time would not, where the clock is changed on that day.
const limitReached = `clock_timestamp() - start_time - CASE WHEN pause_stops_clock THEN paused_for
	+ COALESCE(clock_timestamp() - pause_time, '0') ELSE '0' END >= max_duration`

// Order is what a worker has to do from its next batch on.
type Instructions struct {
	Stop string // why the run must stop; "" if it need not
	Pace pace.Pace
}

// instructions has the fields of Instructions, as an array; NULL if the epoch has ended.
const instructions = `(SELECT ARRAY[CASE WHEN cancel_requested THEN '` + StopCancelled + `' WHEN ` +
	limitReached + ` THEN '` +
	StopMaxDuration + `' WHEN state = 'PAUSED' THEN '` + StopPaused + `' ELSE '' END, pace]
	FROM cleanupd.run WHERE ` + inEpoch + `)`

// nil: the epoch has ended.
func ParseInstructions(fields []string) *Instructions {
	if fields == nil {
		return nil
	}
	return &Instructions{fields[0], pace.Pace(fields[1])}
}

// idle: no replica works on the run.
func RequestCancel(ctx context.Context, tx pgx.Tx, id uuid.UUID) (idle bool, err error) {
	err = tx.QueryRow(ctx, `UPDATE cleanupd.run SET cancel_requested = true WHERE id = $1 AND `+active+`
		RETURNING `+idleRun, id).
		Scan(&idle)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return idle, err
}

func StopTasks(ctx context.Context, tx pgx.Tx, e Epoch) (running []string, err error) {
	if err := addPause(ctx, tx, e.RunID); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `
		WITH ended AS (UPDATE cleanupd.task SET state = CASE state
			WHEN 'RUNNING' THEN 'CANCELLED' ELSE 'NOT_RUN' END, end_time = CASE state
			WHEN 'RUNNING' THEN clock_timestamp() END
			WHERE run_id = $1 AND state IN ('RUNNING', 'PENDING') AND epoch = $2 RETURNING name, state)
		SELECT name FROM ended WHERE state = 'CANCELLED'`, e.RunID, e.Number)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func EndRun(ctx context.Context, tx pgx.Tx, id uuid.UUID, run *Run) error {
	return tx.QueryRow(
		ctx,
		`UPDATE cleanupd.run
			SET state = @state, error = @error, cause = @cause, end_time = clock_timestamp(), lease_until = NULL,
				pause_time = NULL, paused_by = ''
		WHERE id = @run_id RETURNING end_time, pause_time, paused_by`,
		pgx.StrictNamedArgs{
			"run_id": id,
			"state":  string(run.State),
			"error":  connection.Text(run.Error),
			"cause":  string(run.Cause),
		},
	).Scan(&run.EndTime, &run.PauseTime, &run.PausedBy)
}
