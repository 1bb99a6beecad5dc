package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

const (
	// ringSize is how many of the newest events of a run a replica keeps in memory. A watcher that is further behind
	// reads them from the database.
	ringSize = 1024
	// pageSize is how many events a query reads.
	pageSize = 500
	// pollEvery is how often a tail polls, in case a notification was missed.
	pollEvery = time.Second
	// gatherPerWatcher is how long, for each watcher, a tail lets events gather before it reads them, up to pollEvery in
	// total. It is about fifty times as long as it takes to deliver an event to a watcher, which leaves processor time to
	// the worker of the run.
	gatherPerWatcher = time.Millisecond
)

// tail reads the new events of a run once for all its watchers on this replica.
type tail struct {
	runID    uuid.UUID
	wake     chan struct{}
	watchers int // guarded by the Log
	stop     context.CancelFunc

	ring        *ring
	failedSince time.Time // when the database first failed to answer; zero while it answers
}

// join joins the tail of a run. The first watcher starts it after the given place. running means that it was
// running already.
func (l *Log) join(id uuid.UUID, after store.Place) (t *tail, running bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t, running = l.tails[id]; !running {
		ctx, stop := context.WithCancel(context.Background())
		t = &tail{runID: id, wake: make(chan struct{}, 1), stop: stop, ring: newRing(after)}
		l.tails[id] = t
		go l.run(ctx, t)
	}
	t.watchers++
	return t, running
}

// leave stops the tail when its last watcher leaves.
func (l *Log) leave(t *tail) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.watchers--; t.watchers == 0 {
		t.stop()
		if l.tails[t.runID] == t {
			delete(l.tails, t.runID)
		}
	}
}

func (l *Log) run(ctx context.Context, t *tail) {
	if err := failure.Catch(func() error { return l.read(ctx, t) }); err != nil {
		what := "read the events of run " + t.runID.String()
		failure.LogPanic(l.log, what, err)
		l.drop(t, fmt.Errorf("%s: %w", what, err))
	}
}

// read fills the ring of a tail until it is stopped. It also checks that the stored log still has the last event of
// the ring.
func (l *Log) read(ctx context.Context, t *tail) error {
	for {
		reading, stop := context.WithTimeout(ctx, store.Timeout)
		_, events, err := store.ReadEvents(reading, l.pool, t.runID, t.ring.last(), pageSize)
		stop()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			t.failedSince = time.Time{}
			t.ring.add(events)
		case errors.Is(err, store.ErrNoPlace) || errors.Is(err, store.ErrNotFound):
			return err
		case t.failedSince.IsZero():
			t.failedSince = time.Now()
		case time.Since(t.failedSince) > store.Timeout:
			return err
		}
		if len(events) == pageSize {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(l.gatherFor(t)):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
		case <-time.After(pollEvery):
		}
	}
}

func (l *Log) gatherFor(t *tail) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(time.Duration(t.watchers)*gatherPerWatcher, pollEvery)
}

// drop ends a tail with an error for its watchers. The next watcher starts a new tail.
func (l *Log) drop(t *tail, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tails[t.runID] == t {
		delete(l.tails, t.runID)
	}
	t.ring.fail(err)
}

// ring has the newest events of a run. Sequences have no gaps, so the position of an event follows from its
// sequence.
type ring struct {
	mu      sync.Mutex
	events  []store.Event
	newest  store.Place // of the last event, or where the ring begins if it is empty
	changed chan struct{}
	ended   *store.Run // the run as in its last event; nil until that is read
	err     error
}

func newRing(after store.Place) *ring { return &ring{newest: after, changed: make(chan struct{})} }

func (r *ring) last() store.Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// add appends events, and drops the oldest ones that do not fit.
func (r *ring) add(events []store.Event) {
	if len(events) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, events...)
	if over := len(r.events) - ringSize; over > 0 {
		r.events = append([]store.Event(nil), r.events[over:]...)
	}
	last := events[len(events)-1]
	r.newest = last.Place
	if last.Kind == store.RunFinished {
		r.ended = last.Run
	}
	r.wake()
}

// fail ends the ring, so that after returns the error instead of waiting for more events.
func (r *ring) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	r.wake()
}

func (r *ring) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// after returns the events after a sequence, with a channel that is closed when there are more. If the run ended
// with the last of them, it returns the run. It returns nothing if the ring does not reach back that far.
func (r *ring) after(sequence int64) (events []store.Event, more <-chan struct{}, ended *store.Run, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.newest.Sequence - int64(len(r.events))
	switch {
	case sequence < before:
		return nil, nil, nil, nil
	case r.err != nil:
		return nil, nil, nil, r.err
	case sequence >= r.newest.Sequence && r.ended != nil:
		return nil, nil, r.ended, nil
	case sequence >= r.newest.Sequence:
		return nil, r.changed, nil, nil
	}
	return slices.Clip(r.events[sequence-before:]), r.changed, nil, nil // shared, since events are never changed
}
