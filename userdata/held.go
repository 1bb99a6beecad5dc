package userdata

import (
	"context"
	"errors"
	"fmt"

	"github.com/cleanupd/cleanupd/internal/advisory"
)

// heldError ends the work on an erasure because everything is on hold, or because that cannot be determined.
type heldError struct{ error }

func (e *heldError) Unwrap() error { return e.error }

// unlessHeld calls fn, which deletes something, unless everything is on hold; then it fails with a heldError.
// CreateHold waits until fn has returned, because of the lock that is shared meanwhile.
func (e *erasure) unlessHeld(ctx context.Context, fn func() error) error {
	if err := advisory.Squatted(ctx, e.conn, advisory.Erasing, true); err != nil {
		return &heldError{err}
	}
	if _, err := e.conn.Exec(
		ctx,
		fmt.Sprintf(
			"SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SELECT pg_advisory_lock_shared(%d)",
			advisory.Erasing,
		),
	); err != nil {
		return &heldError{err}
	}
	err := e.Held(ctx)
	if err != nil {
		err = &heldError{err}
	} else {
		err = fn()
	}
	_, unlockErr := e.conn.Exec(
		context.WithoutCancel(ctx),
		fmt.Sprintf("SELECT pg_advisory_unlock_shared(%d)", advisory.Erasing),
	)
	return errors.Join(err, unlockErr)
}
