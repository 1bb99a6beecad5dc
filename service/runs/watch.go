package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/cleanupd/cleanupd/internal/rescue"
)

// ringSize is how many of a run's newest events a replica keeps in memory; a watcher further behind reads pages.
const ringSize = 1024

// pageSize is how many events are read at once.
const pageSize = 500

// tailPoll is how often a tail polls, in case a notification was missed.
const tailPoll = time.Second

// wakeCost is how long events are gathered per watcher, up to tailPoll: some fifty times what delivering an event to one
// takes, since the run's worker competes with the watchers for processor time.
const wakeCost = time.Millisecond

// tail reads a run's new events once for all its watchers on this replica.
type tail struct {
	runID    string
	wake     chan struct{}
	watchers int // guarded by the manager
	stop     context.CancelFunc

	ring     *ring
	failures time.Time // since when the database has not answered; zero: it does
}

// Watch calls send for each event of a run after a sequence, past ones first, then live ones, and returns the run
// as it ended. It fails with ErrNotFound, with send's error, or with the database's.
func (m *Manager) Watch(ctx context.Context, id string, after int64, send func(Event) error) (*Run, error) {
	run, err := m.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !run.State.Active() && after >= run.LastSequence {
		return run, nil
	}
	t := m.follow(run.ID, min(after, run.LastSequence))
	defer m.unfollow(t)
	for {
		events, more, ended, err := t.ring.after(after)
		if err != nil || ended != nil {
			return ended, err
		}
		if events == nil && more == nil { // fell behind the ring
			if events, err = readEvents(ctx, m.calls, run.ID, after, pageSize); err != nil {
				return nil, err
			}
			if len(events) == 0 { // deleted in the meantime, with their run
				return nil, ErrNotFound
			}
		}
		for _, e := range events {
			if err := send(e); err != nil {
				return nil, err
			}
			after = e.Sequence
			if e.Kind == RunFinished {
				return e.Run, nil
			}
		}
		if more == nil {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// follow joins the run's tail on this replica, which the first watcher starts.
func (m *Manager) follow(runID string, after int64) *tail {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tails[runID]
	if t == nil {
		ctx, stop := context.WithCancel(context.Background())
		t = &tail{runID: runID, wake: make(chan struct{}, 1), stop: stop, ring: newRing(after)}
		m.tails[runID] = t
		go m.keepReading(ctx, t)
	}
	t.watchers++
	return t
}

// unfollow leaves the tail, which the last watcher stops.
func (m *Manager) unfollow(t *tail) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.watchers--; t.watchers == 0 {
		t.stop()
		if m.tails[t.runID] == t {
			delete(m.tails, t.runID)
		}
	}
}

// keepReading reads a tail to its end. If it cannot, the tail's watchers are told, and the next one starts a new tail.
func (m *Manager) keepReading(ctx context.Context, t *tail) {
	if err := rescue.Call(func() error { return m.read(ctx, t) }); err != nil {
		what := "read the events of run " + t.runID
		rescue.Log(m.log, what, err)
		m.forget(t)
		t.ring.fail(fmt.Errorf("%s: %w", what, err))
	}
}

// read fills the tail's ring until it is stopped or the run has ended.
func (m *Manager) read(ctx context.Context, t *tail) error {
	for {
		reading, stop := context.WithTimeout(ctx, patience)
		events, err := readEvents(reading, m.calls, t.runID, t.ring.last(), pageSize)
		stop()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			t.failures = time.Time{}
			t.ring.add(events)
		case t.failures.IsZero():
			t.failures = time.Now()
		case time.Since(t.failures) > patience:
			return err
		}
		if n := len(events); n > 0 && events[n-1].Kind == RunFinished {
			return nil
		}
		if len(events) == pageSize {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(m.pause(t)):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
		case <-time.After(tailPoll):
		}
	}
}

// pause is how long a tail gathers events before it delivers them.
func (m *Manager) pause(t *tail) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return min(time.Duration(t.watchers)*wakeCost, tailPoll)
}

// forget makes the next watcher start a new tail.
func (m *Manager) forget(t *tail) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tails, t.runID)
}
