package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// ClaimQuery selects the runs that a replica may claim.
type ClaimQuery struct {
	condition, lock string
	args            pgx.StrictNamedArgs
}

// Waiting selects the runs that are queued, and those whose replica no longer renews its lease. It leaves out the runs
// in working, and those with a task that this replica cannot run: one whose kind is not in kinds, or a built-in task
// that is not in builtIn.
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

func (c ClaimQuery) Among(runs []uuid.UUID) ClaimQuery {
	c.condition += " AND id = ANY (@among::uuid[])"
	c.args["among"] = runs
	return c
}

func (c ClaimQuery) DryRuns() ClaimQuery {
	c.condition += " AND dry_run"
	return c
}

// Interrupted selects the run if no other replica has claimed it since epoch e. It waits for the row, which an
// interrupted transaction of the worker may still lock.
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
	Plan            uuid.UUID    // the dry run whose plan the run follows; uuid.Nil if none
	Accepted        []guard.Trip // the guards that the run may pass
	WhatIf          map[string]int
	Restore         *RestoreParams
	ReferenceTime   time.Time
	TraceParent     string // the trace context of the call that requested the run
	Pace            pace.Pace
	LeaseUntil      time.Time
	Resumed         bool // an earlier claim started the run, so it may already have deleted rows
	FailedAttempts  int  // how many of the last attempts in a row made no progress
	// State and Replica are the values from before this claim.
	State   State
	Replica string
}

// ClaimRun claims the first run that from selects and begins a new epoch of it. It returns nil if there is no such
// run. The previous attempt counts as failed if it made no progress, unless its replica released the run or had not
// yet confirmed its start.
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
		RETURNING run.id, epoch, dry_run, continue_on_error, plan, accepted_guards, what_if, restore, reference_time,
			trace_parent,
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

// VerifyClaim finds out whether a claim was committed although its COMMIT was not answered. It waits until that
// transaction has ended, and fails with ErrNotClaimed if it was rolled back.
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
	Kind   string
	State  cleanup.State
	Cursor purge.Cursor
	// Undo is how long the trash keeps deleted rows after the run ends.
	Undo time.Duration
}

// ClaimTasks returns the chosen tasks in order. It waits for a batch that the previous worker is still committing.
func ClaimTasks(ctx context.Context, tx pgx.Tx, e Epoch) ([]ClaimedTask, error) {
	rows, _ := tx.Query(
		ctx,
		`WITH task AS (UPDATE cleanupd.task SET epoch = $2 WHERE run_id = $1 RETURNING *)
		SELECT name, kind, state, cursor, undo FROM task WHERE chosen ORDER BY position`,
		e.RunID, e.Number,
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[ClaimedTask])
}

// ResetCounts sets the counts of the current task to zero. A dry run calls it because it has no cursor and counts
// the task again from the beginning.
func ResetCounts(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := tx.Exec(
		ctx,
		`UPDATE cleanupd.task
			SET rows_deleted = 0, rows_updated = 0, rows_cascaded = 0, tables_dropped = 0, partitions_removed = 0,
				batches = 0,
				remote_deliveries_retained = 0,
			rows_failed = 0, rows_locked = 0, rows_suppressed = 0, rows_dependent = 0, rows_on_hold = 0, tables_retained = 0
		WHERE run_id = $1 AND state = 'RUNNING'`,
		id,
	)
	return err
}

// Epoch identifies the period in which one worker has a run. What that worker writes takes effect only during this
// period.
type Epoch struct {
	RunID  uuid.UUID
	Number int64
}

func (e Epoch) args(args pgx.StrictNamedArgs) pgx.StrictNamedArgs {
	args["run_id"], args["epoch"] = e.RunID, e.Number
	return args
}

// inEpoch also requires that the server is the one on which the epoch began. If the worker's connections now lead to
// another server, that server may lack the worker's writes. The start time identifies the server: it does not change
// while the server runs, and every role may read it, even where timelines are hidden.
const inEpoch = "id = @run_id AND epoch = @epoch AND server_start = pg_postmaster_start_time()"

// newEpoch takes the number from the clock, so that no two epochs have the same number, not even after a restore or
// a failover to a standby that lagged. Each generation of events therefore belongs to one worker.
const newEpoch = "epoch = greatest(epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), " +
	"server_start = pg_postmaster_start_time()"

// BeginEpoch begins a new epoch of the run, which fences the worker that has it.
func BeginEpoch(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Epoch, error) {
	e := Epoch{RunID: id}
	if err := tx.QueryRow(ctx, "UPDATE cleanupd.run SET "+newEpoch+" WHERE id = $1 RETURNING epoch", id).
		Scan(&e.Number); err != nil {
		return e, err
	}
	_, err := tx.Exec(ctx, "UPDATE cleanupd.task SET epoch = $2 WHERE run_id = $1", id, e.Number)
	return e, err
}

// LockEpoch fails with ErrFenced if the epoch has ended.
func LockEpoch(ctx context.Context, tx pgx.Tx, e Epoch) error {
	return fencedIfNone(
		tx.Exec(ctx, "SELECT FROM cleanupd.run WHERE "+inEpoch+" FOR UPDATE", e.args(pgx.StrictNamedArgs{})))
}

func LockRun(ctx context.Context, tx pgx.Tx, id uuid.UUID) (state State, e Epoch, err error) {
	e.RunID = id
	err = tx.QueryRow(ctx, "SELECT state, epoch FROM cleanupd.run WHERE id = $1 FOR UPDATE", id).Scan(&state, &e.Number)
	return state, e, err
}

// ErrFenced says that the worker no longer has the run.
var ErrFenced = fmt.Errorf("%w: another replica has it, it has ended, or the database server was restarted or replaced",
	cleanup.ErrLost)

func fencedIfNone(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return ErrFenced
	}
	return err
}

// progressHash is the SQL for a hash of the progress of a run. The column progress_hash holds the hash from when
// the worker confirmed its start; it is empty if no worker has done so since the run was claimed.
//
// An attempt has made progress if it ended tasks, changed rows, or moved a cursor. In a dry run the counts of the
// current task are not progress, since the next attempt counts that task again.
const progressHash = `(SELECT md5(string_agg(concat_ws(' ', t.state, CASE WHEN NOT run.dry_run OR t.state <> 'RUNNING'
	THEN concat_ws(' ', t.rows_deleted, t.rows_updated, t.tables_dropped, t.partitions_removed, t.rows_restored,
		t.cursor)
	END), ',' ORDER BY t.position))
		FROM cleanupd.task t WHERE t.run_id = run.id)`

// ConfirmStart renews the lease of a run and records its progress so far. If the worker makes no progress
// afterwards, its attempt counts as failed.
func ConfirmStart(ctx context.Context, db Execer, e Epoch, lease time.Duration) error {
	return renewLease(ctx, db, e, lease, ", progress_hash = "+progressHash)
}

// RenewLease fails with ErrFenced if the epoch has ended.
func RenewLease(ctx context.Context, db Execer, e Epoch, lease time.Duration) error {
	return renewLease(ctx, db, e, lease, "")
}

func renewLease(ctx context.Context, db Execer, e Epoch, lease time.Duration, assignment string) error {
	return fencedIfNone(db.Exec(
		ctx,
		"UPDATE cleanupd.run SET lease_until = clock_timestamp() + @lease::interval"+assignment+`
		WHERE `+inEpoch+` AND state IN ('RUNNING', 'PAUSED')`,
		e.args(pgx.StrictNamedArgs{"lease": lease}),
	))
}

// ReleaseLease ends the lease and notifies the replicas that the run waits for one of them. It does nothing if
// another replica has the run.
func ReleaseLease(ctx context.Context, tx pgx.Tx, e Epoch) error {
	if _, err := tx.Exec(
		ctx,
		"UPDATE cleanupd.run SET lease_until = clock_timestamp(), replica = '' "+
			"WHERE id = $1 AND epoch = $2 AND state IN ('RUNNING', 'PAUSED')",
		e.RunID, e.Number,
	); err != nil {
		return err
	}
	return NotifyWaiting(ctx, tx, e.RunID)
}

// DiscountAttempt makes the current attempt look as if it had not confirmed its start, so that the next claim does not
// count it as failed. If the attempt made progress, it also resets the count of failed attempts. The COMMIT does not
// wait for a standby.
func DiscountAttempt(ctx context.Context, tx pgx.Tx, e Epoch) error {
	if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = off"); err != nil {
		return err
	}
	// The UPDATE also waits for a confirmation whose COMMIT was not answered.
	_, err := tx.Exec(
		ctx,
		`UPDATE cleanupd.run SET progress_hash = '', failed_attempts = CASE WHEN progress_hash IN ('', `+progressHash+`) THEN
			failed_attempts ELSE 0 END
		WHERE id = $1 AND epoch = $2`,
		e.RunID, e.Number,
	)
	return err
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

// EndRun also gives the slot of the run back to the scheduled run that it overtook.
func EndRun(ctx context.Context, tx pgx.Tx, id uuid.UUID, run *Run) error {
	if err := tx.QueryRow(
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
	).Scan(&run.EndTime, &run.PauseTime, &run.PausedBy); err != nil {
		return err
	}
	return returnSlot(ctx, tx)
}
