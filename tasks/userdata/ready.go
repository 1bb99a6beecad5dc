package userdata

import (
	"context"
	"errors"
	"sync"
	"time"
)

// askAgain is how old an answer about the database may be, and askTimeout how long the question may take.
const (
	askAgain   = time.Second
	askTimeout = 1500 * time.Millisecond
)

// errSilent is for everyone, unlike the error behind it.
var errSilent = errors.New("the Forms database does not answer")

// readiness is the last answer about the database.
type readiness struct {
	mu    sync.Mutex // one question at a time, however many ask
	asked time.Time
	err   error
}

// Ready fails if the Forms database does not answer, or lacks the service's schema. It asks once a second at most.
func (d *Database) Ready(ctx context.Context) error {
	d.readiness.mu.Lock()
	defer d.readiness.mu.Unlock()
	if time.Since(d.readiness.asked) < askAgain {
		return d.readiness.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	_, err := d.Pool.Exec(ctx, "SELECT FROM cleanupd.erasure LIMIT 1")
	d.readiness.asked, d.readiness.err = time.Now(), nil
	if err != nil {
		d.readiness.err = errSilent
	}
	return d.readiness.err
}
