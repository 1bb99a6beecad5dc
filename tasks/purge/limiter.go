package purge

import (
	"context"
	"slices"
	"sync"
	"time"
)

// While other sessions are active, several workers are worth it if together they get at least half as much again done
// as one alone: what they take from each other they take from the application, too. The cost of a row is known after
// trial batches per worker; the other mode is tried after a pause that doubles.
const (
	worthIt    = 1.5
	trial      = 2
	firstPause = 2 * time.Second
	lastPause  = time.Minute
)

// limiter lets all of a sweep's workers run while the server is otherwise idle, and else one of them, or all if that is
// worth it.
type limiter struct {
	size int

	mu      sync.Mutex
	idle    bool // the server is otherwise idle
	busy    int
	allowed int
	changed chan struct{} // closed when a worker may enter
	since   time.Time     // when this mode began
	costs   []float64     // of a row in the last batches, in seconds
	alone   float64       // the cost of a row with one worker
	pause   time.Duration // until the other mode is tried
}

// newLimiter begins with one worker running.
func newLimiter(size int) *limiter {
	return &limiter{size: size, busy: 1, allowed: 1, since: time.Now(), pause: firstPause, changed: make(chan struct{})}
}

// acquire waits until one more worker may run.
func (l *limiter) acquire(ctx context.Context) error {
	for {
		l.mu.Lock()
		if l.busy < l.allowed {
			l.busy++
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

// limit is how many workers may run.
func (l *limiter) limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allowed
}

// release lets another worker run.
func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	l.wake()
}

// reacquire waits if too many workers run.
func (l *limiter) reacquire(ctx context.Context) error {
	l.mu.Lock()
	stays := l.busy <= l.allowed
	l.mu.Unlock()
	if stays {
		return nil
	}
	l.release()
	return l.acquire(ctx)
}

func (l *limiter) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// setIdle records whether the server is otherwise idle, and lets all workers run if so.
func (l *limiter) setIdle(idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case idle && !l.idle:
		l.allow(l.size)
	case !idle && l.idle:
		l.pause = firstPause
		l.allow(1)
	}
	l.idle = idle
}

// observe records what a batch's rows cost, and changes the mode if that is worth it.
func (l *limiter) observe(begun time.Time, took time.Duration, rows int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size == 1 || l.idle || rows == 0 || l.busy != l.allowed || begun.Before(l.since) {
		return
	}
	enough := trial * l.allowed
	l.costs = append(l.costs, took.Seconds()/float64(rows))
	l.costs = l.costs[max(len(l.costs)-enough, 0):]
	if len(l.costs) < enough {
		return
	}
	cost := slices.Sorted(slices.Values(l.costs))[enough/2]
	switch held := time.Since(l.since); {
	case l.allowed == 1 && held >= l.pause:
		l.alone, l.pause = cost, min(2*l.pause, lastPause)
		l.allow(l.size)
	case l.allowed > 1 && float64(l.size)/cost < worthIt/l.alone:
		l.allow(1)
	case l.allowed > 1 && held >= lastPause: // what a row costs one alone may have changed
		l.pause = firstPause
		l.allow(1)
	}
}

// allow sets how many workers may run.
func (l *limiter) allow(workers int) {
	l.allowed, l.since, l.costs = workers, time.Now(), nil
	l.wake()
}
