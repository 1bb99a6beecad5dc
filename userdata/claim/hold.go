package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/cleanupd/cleanupd/internal/advisory"
)

// Everything is on hold, or that cannot be determined.
type HeldError struct{ error }

func (e *HeldError) Unwrap() error { return e.error }

// UnlessHeld fails with a HeldError if everything is on hold. A new hold of everything waits until fn, which deletes
// something, has returned, because fn runs with a shared lock.
func (e *Erasure) UnlessHeld(ctx context.Context, fn func() error) error {
	if err := advisory.Squatted(ctx, e.conn, advisory.Erasing, true); err != nil {
		return &HeldError{err}
	}
	if err := e.lock(ctx, "pg_advisory_lock_shared", advisory.Erasing); err != nil {
		return &HeldError{err}
	}
	err := e.Held(ctx)
	if err != nil {
		err = &HeldError{err}
	} else {
		err = fn()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), advisory.UnlockTimeout)
	defer cancel()
	_, unlockErr := e.conn.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_unlock_shared(%d)", advisory.Erasing))
	return errors.Join(err, unlockErr)
}

// For work in the folder of the document storage: "folder" in ASCII. If two erasures searched the folder at once, each
// would leave a document to the other that sessions of both refer to.
const folderLock = 0x666f6c646572

// LockFolder waits until no other erasure works in the folder of the document storage. It fails if another role's
// session is in the way. The lock is released with the claim.
func (e *Erasure) LockFolder(ctx context.Context) error {
	if err := advisory.Squatted(ctx, e.conn, folderLock, false); err != nil {
		return err
	}
	return e.lock(ctx, "pg_advisory_lock", folderLock)
}

// function is one of PostgreSQL's; it may take long.
func (e *Erasure) lock(ctx context.Context, function string, key int64) error {
	_, err := e.conn.Exec(ctx,
		fmt.Sprintf("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SELECT %s(%d)", function, key))
	return err
}
