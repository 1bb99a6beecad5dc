package userdata

import (
	"context"
	"errors"
	"fmt"

	"github.com/cleanupd/cleanupd/internal/advisory"
)

// HeldError means that everything is on hold, or that this cannot be determined.
type heldError struct{ error }

func (e *heldError) Unwrap() error { return e.error }

// UnlessHeld calls fn, which deletes something, or fails with a HeldError if everything is on hold. A shared lock
// makes a new hold of everything wait until fn has returned.
func (e *erasure) unlessHeld(ctx context.Context, fn func() error) error {
	if err := advisory.Squatted(ctx, e.conn, advisory.Erasing, true); err != nil {
		return &heldError{err}
	}
	if err := e.lock(ctx, "pg_advisory_lock_shared", advisory.Erasing); err != nil {
		return &heldError{err}
	}
	err := e.Held(ctx)
	if err != nil {
		err = &heldError{err}
	} else {
		err = fn()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), advisory.UnlockTimeout)
	defer cancel()
	_, unlockErr := e.conn.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_unlock_shared(%d)", advisory.Erasing))
	return errors.Join(err, unlockErr)
}

// folderLock is the key of the lock for work in the folder of the document storage: "folder" in ASCII. If two
// erasures searched the folder at once, each would leave a document to the other if sessions of both refer to it.
const folderLock = 0x666f6c646572

// LockFolder waits until no other erasure works in the folder of the document storage. It fails if a session of
// another database role holds the lock. The lock is released with the claim.
func (e *erasure) lockFolder(ctx context.Context) error {
	if err := advisory.Squatted(ctx, e.conn, folderLock, false); err != nil {
		return err
	}
	return e.lock(ctx, "pg_advisory_lock", folderLock)
}

// lock calls one of PostgreSQL's lock functions without a timeout, since waiting may take long.
func (e *erasure) lock(ctx context.Context, function string, key int64) error {
	_, err := e.conn.Exec(ctx,
		fmt.Sprintf("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SELECT %s(%d)", function, key))
	return err
}
