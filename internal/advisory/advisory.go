// Package advisory finds the sessions that hold the service's advisory locks, which everybody who may connect to the
// database can take.
package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// A replica shares Erasing while it deletes from a Forms database or its document storage. A hold of everything takes
// it exclusively once it is stored, and so waits for what has begun before: "erasing" in ASCII.
const Erasing = 0x65726173696e67

// UnlockTimeout limits how long releasing a lock may take. A connection on which it takes longer is closed, and its
// locks end with it.
const UnlockTimeout = 10 * time.Second

// $1: the advisory lock. The session itself is left out.
const Holders = `SELECT pid, mode, virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND granted
	AND objsubid = 1 AND pid <> pg_backend_pid()
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	AND classid::bigint = $1::bigint >> 32 & 4294967295 AND objid::bigint = $1::bigint & 4294967295`

const squatter = `SELECT pid, a.usename::text, session_user::text FROM (` + Holders + `) AS h
	JOIN pg_stat_activity a USING (pid) WHERE a.usename <> session_user AND NOT (mode = 'ShareLock' AND $2) LIMIT 1`

type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SquattedError: a process of another role than the session's holds a lock.
type SquattedError struct {
	PID          int
	Theirs, Ours string // roles
}

func (e *SquattedError) Error() string {
	return fmt.Sprintf(
		"process %d of the role %q holds an advisory lock of this service, whose role is %q: unless it is a replica, "+
			"SELECT pg_terminate_backend(%[1]d)",
		e.PID, e.Theirs, e.Ours,
	)
}

func (*SquattedError) Kind() failure.Kind { return failure.Unavailable }

// Squatted fails with a SquattedError if another role than the session's holds the lock; with shared, in such a way
// that it cannot be shared.
func Squatted(ctx context.Context, db DB, lock int64, shared bool) error {
	var who SquattedError
	err := db.QueryRow(ctx, squatter, lock, shared).Scan(&who.PID, &who.Theirs, &who.Ours)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &who
}

// Explain adds to the error of waiting too long the process and the role of another role's session that holds the lock.
func Explain(ctx context.Context, db DB, lock int64, err error) error {
	if !sqlstate.Is(err, pgerrcode.LockNotAvailable, pgerrcode.QueryCanceled) {
		return err
	}
	if who := Squatted(ctx, db, lock, false); who != nil {
		return fmt.Errorf("%w: %w", who, err)
	}
	return err
}
