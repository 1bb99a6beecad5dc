package purge

import (
	"context"
	"slices"
	"sync"
	"time"
)

// While other sessions are active, several workers are worth it if together they get at least half as much again done as one
// alone: what they take from each other they take from the application, too. The cost of a row is known after trial batches
// per worker; the other mode is tried after a pause that doubles.
const (
	worthIt    = 1.5
	trial      = 2
	firstPause = 2 * time.Second
	lastPause  = time.Minute
)

// crowd lets all of a sweep's workers run while the server is otherwise idle, and else one of them, or all if that is worth
// it.
type crowd struct {
	size int

	mu      sync.Mutex
	quiet   bool // the server is otherwise idle
	busy    int
	allowed int
	changed chan struct{} // closed when a worker may enter
	since   time.Time     // when this mode began
	costs   []float64     // of a row in the last batches, in seconds
	alone   float64       // the cost of a row with one worker
	pause   time.Duration // until the other mode is tried
}

// newCrowd begins with one worker running.
func newCrowd(size int) *crowd {
	return &crowd{size: size, busy: 1, allowed: 1, since: time.Now(), pause: firstPause, changed: make(chan struct{})}
}

// enter waits until one more worker may run.
func (c *crowd) enter(ctx context.Context) error {
	for {
		c.mu.Lock()
		if c.busy < c.allowed {
			c.busy++
			c.mu.Unlock()
			return nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// places is how many workers may run.
func (c *crowd) places() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allowed
}

// leave lets another worker run.
func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	c.wake()
}

// stay waits if too many workers run.
func (c *crowd) stay(ctx context.Context) error {
	c.mu.Lock()
	stays := c.busy <= c.allowed
	c.mu.Unlock()
	if stays {
		return nil
	}
	c.leave()
	return c.enter(ctx)
}

func (c *crowd) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// see records whether the server is otherwise idle, and lets all workers run if so.
func (c *crowd) see(quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case quiet && !c.quiet:
		c.let(c.size)
	case !quiet && c.quiet:
		c.pause = firstPause
		c.let(1)
	}
	c.quiet = quiet
}

// took records what a batch's rows cost, and changes the mode if that is worth it.
func (c *crowd) took(begun time.Time, took time.Duration, rows int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size == 1 || c.quiet || rows == 0 || c.busy != c.allowed || begun.Before(c.since) {
		return
	}
	enough := trial * c.allowed
	c.costs = append(c.costs, took.Seconds()/float64(rows))
	c.costs = c.costs[max(len(c.costs)-enough, 0):]
	if len(c.costs) < enough {
		return
	}
	cost := slices.Sorted(slices.Values(c.costs))[enough/2]
	switch held := time.Since(c.since); {
	case c.allowed == 1 && held >= c.pause:
		c.alone, c.pause = cost, min(2*c.pause, lastPause)
		c.let(c.size)
	case c.allowed > 1 && float64(c.size)/cost < worthIt/c.alone:
		c.let(1)
	case c.allowed > 1 && held >= lastPause: // what a row costs one alone may have changed
		c.pause = firstPause
		c.let(1)
	}
}

// let sets how many workers may run.
func (c *crowd) let(workers int) {
	c.allowed, c.since, c.costs = workers, time.Now(), nil
	c.wake()
}
