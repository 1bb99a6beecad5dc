// Package advisory finds the sessions that hold the service's advisory locks, which anyone who may connect to the
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

// Erasing is the lock that a replica shares while it deletes from a Forms database or its document storage. After a
// hold of everything is stored, the service takes the lock exclusively, and so waits for deletions that have begun
// before. The key is "erasing" in ASCII.
const Erasing = 0x65726173696e67

// UnlockTimeout limits how long releasing a lock may take. If it takes longer, the connection is closed, which
// releases its locks.
const UnlockTimeout = 10 * time.Second

// Holders selects the other sessions that hold the advisory lock $1.
const Holders = `SELECT pid, mode, virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND granted
	AND objsubid = 1 AND pid <> pg_backend_pid()
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	AND classid::bigint = $1::bigint >> 32 & 4294967295 AND objid::bigint = $1::bigint & 4294967295`

const squatter = `SELECT pid, a.usename::text, session_user::text FROM (` + Holders + `) AS h
	JOIN pg_stat_activity a USING (pid) WHERE a.usename <> session_user AND NOT (mode = 'ShareLock' AND $2) LIMIT 1`

type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SquattedError means that a process of another database role holds a lock.
type SquattedError struct {
	PID          int
	Theirs, Ours string // the names of the roles
}

func (e *SquattedError) Error() string {
	return fmt.Sprintf(
		"process %d of the role %q holds an advisory lock of this service, whose role is %q: unless it is a replica, "+
			"SELECT pg_terminate_backend(%[1]d)",
		e.PID, e.Theirs, e.Ours,
	)
}

func (*SquattedError) Kind() failure.Kind { return failure.Unavailable }

// Squatted fails with a SquattedError if a session of another database role holds the lock. With shared, it ignores
// sessions that hold the lock in shared mode.
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

// Explain takes the error of waiting too long for a lock. If a session of another role holds the lock, it adds the
// process and that role.
func Explain(ctx context.Context, db DB, lock int64, err error) error {
	if !sqlstate.Is(err, pgerrcode.LockNotAvailable, pgerrcode.QueryCanceled) {
		return err
	}
	if who := Squatted(ctx, db, lock, false); who != nil {
		return fmt.Errorf("%w: %w", who, err)
	}
	return err
}
