// Package readiness remembers whether a database is ready, so that the database is asked rarely, however many
// callers there are.
package readiness

import (
	"sync"
	"time"
)

// askAgain is how old an answer may be.
const askAgain = time.Second

// Check keeps the last answer. The zero Check has not asked yet.
type Check struct {
	mu    sync.Mutex // one question at a time
	asked time.Time
	err   error
}

// Get returns the last answer, or calls ask with it if it is too old.
func (c *Check) Get(ask func(last error) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.asked) >= askAgain {
		c.err = ask(c.err)
		c.asked = time.Now()
	}
	return c.err
}
