package userdata

import (
	"context"
	"errors"
	"time"
)

// askTimeout is how long the question may take whether the database is ready.
const askTimeout = 1500 * time.Millisecond

// errSilent is for everyone, unlike the error behind it.
var errSilent = errors.New("the Forms database does not answer")

// Ready fails if the Forms database does not answer, or lacks the service's own tables. It asks once a second at most.
func (d *Database) Ready(ctx context.Context) error {
	return d.readiness.Get(func(error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		if _, err := d.Forms.identify(ctx); err != nil {
			return errSilent
		}
		return nil
	})
}
