package pace

import (
	"context"
	"slices"
	"sync"
	"time"
)

// While other sessions are active, several workers run only if together they are at least minGain times as fast as
// one; otherwise they would only take time from the application. The cost of a row is known after trialBatches
// batches per worker. The other mode is tried after a pause that doubles from minPause to maxPause.
const (
	minGain      = 1.5
	trialBatches = 2
	minPause     = 2 * time.Second
	maxPause     = time.Minute
)

// Limiter limits how many workers of a sweep run: all of them while the server is otherwise idle; otherwise one, or all
// if they are enough faster (minGain).
type Limiter struct {
	workers int

	mu      sync.Mutex
	idle    bool // the server is otherwise idle, or that does not matter
	single  bool // only one worker may run
	running int
	allowed int
	changed chan struct{} // closed when a worker may start
	since   time.Time     // when this mode began
	costs   []float64     // seconds per row in the last batches
	one     float64       // the cost of a row with one worker
	pause   time.Duration // until the other mode is tried
}

// NewLimiter returns a Limiter for a sweep of which one worker is already running.
func NewLimiter(workers int) *Limiter {
	return &Limiter{
		workers: workers,
		running: 1,
		allowed: 1,
		since:   time.Now(),
		pause:   minPause,
		changed: make(chan struct{}),
	}
}

// Acquire waits until one more worker may run.
func (l *Limiter) Acquire(ctx context.Context) error {
	for {
		l.mu.Lock()
		if l.running < l.allowed {
			l.running++
			l.mu.Unlock()
			return nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Limiter) Allowed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allowed
}

func (l *Limiter) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	l.wake()
}

// Reacquire waits if too many workers run.
func (l *Limiter) Reacquire(ctx context.Context) error {
	l.mu.Lock()
	ok := l.running <= l.allowed
	l.mu.Unlock()
	if ok {
		return nil
	}
	l.Release()
	return l.Acquire(ctx)
}

func (l *Limiter) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// SetMode lets all workers run if idle is set, and only one if single is set. Otherwise the costs of rows decide.
func (l *Limiter) SetMode(idle, single bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.single = single; single && l.allowed > 1 {
		l.allow(1)
	}
	switch {
	case idle && !l.idle:
		l.allow(l.workers)
	case !idle && l.idle:
		l.pause = minPause
		l.allow(1)
	}
	l.idle = idle
}

// Observe records the duration and the rows of a batch, and changes the number of workers if this makes the sweep
// faster or if it is time to try.
func (l *Limiter) Observe(begun time.Time, took time.Duration, rows int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers == 1 || l.idle || l.single || rows == 0 || l.running != l.allowed || begun.Before(l.since) {
		return
	}
	enough := trialBatches * l.allowed
	l.costs = append(l.costs, took.Seconds()/float64(rows))
	l.costs = l.costs[max(len(l.costs)-enough, 0):]
	if len(l.costs) < enough {
		return
	}
	cost := slices.Sorted(slices.Values(l.costs))[enough/2]
	switch elapsed := time.Since(l.since); {
	case l.allowed == 1 && elapsed >= l.pause:
		l.one, l.pause = cost, min(2*l.pause, maxPause)
		l.allow(l.workers)
	case l.allowed > 1 && float64(l.workers)/cost < minGain/l.one:
		l.allow(1)
	case l.allowed > 1 && elapsed >= maxPause: // the cost of a row with one worker may have changed
		l.pause = minPause
		l.allow(1)
	}
}

func (l *Limiter) allow(workers int) {
	l.allowed, l.since, l.costs = workers, time.Now(), nil
	l.wake()
}
