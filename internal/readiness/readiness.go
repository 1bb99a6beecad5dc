// Package readiness keeps the answer to whether a database is ready, for however many ask.
package readiness

import (
	"sync"
	"time"
)

// How old an answer may be.
const askAgain = time.Second

// A question and its last answer. The zero Check was never asked.
type Check struct {
	mu    sync.Mutex // one question at a time
	asked time.Time
	err   error
}

// ask is given the last answer.
func (c *Check) Get(ask func(last error) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.asked) >= askAgain {
		c.err = ask(c.err)
		c.asked = time.Now()
	}
	return c.err
}
