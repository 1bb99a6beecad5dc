package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// Timeout limits the short transactions of the service itself, so that a connection that does not answer cannot
// block a replica forever.
const Timeout = 10 * time.Second

// ErrFenced says that the worker no longer has the run.
var ErrFenced = fmt.Errorf("%w: another replica has it, it has ended, or the database server was restarted or replaced",
	cleanup.ErrLost)

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

// inEpoch also requires that the server is the one on which the epoch began. If the worker's connections now lead
// to another server, that server may lack what the worker has written. The start time identifies the server: it
// does not change while the server runs, and every role may read it, even where timelines are hidden.
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

type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// progressHash is the SQL for a hash of the progress of a run. The column progress_hash holds the hash from when
// the worker confirmed its start; it is empty if no worker has done so since the run was claimed.
//
// An attempt has made progress if it ended tasks, changed rows, or moved a cursor. In a dry run the counts of the
// current task are not progress, since the next attempt counts that task again.
const progressHash = `(SELECT md5(string_agg(concat_ws(' ', t.state, CASE WHEN NOT run.dry_run OR t.state <> 'RUNNING'
	THEN concat_ws(' ', t.rows_deleted, t.rows_updated, t.tables_dropped, t.partitions_removed, t.cursor)
	END), ',' ORDER BY t.position))
		FROM cleanupd.task t WHERE t.run_id = run.id)`

// RenewLease fails with ErrFenced if the epoch has ended.
func RenewLease(ctx context.Context, db Execer, e Epoch, lease time.Duration) error {
	return renewLease(ctx, db, e, lease, "")
}

// ConfirmStart renews the lease of a run and records its progress so far. If the worker makes no progress
// afterwards, its attempt counts as failed.
func ConfirmStart(ctx context.Context, db Execer, e Epoch, lease time.Duration) error {
	return renewLease(ctx, db, e, lease, ", progress_hash = "+progressHash)
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

// DiscountAttempt makes the current attempt look as if its start was not confirmed, so that the next claim does not
// count it as failed. The progress that it made stays recorded. The COMMIT does not wait for a standby.
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

func fencedIfNone(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return ErrFenced
	}
	return err
}

// WriteProbe is a statement that changes nothing, and fails if the database is read-only or lacks the schema.
const WriteProbe = "UPDATE cleanupd.run SET epoch = epoch WHERE false"
