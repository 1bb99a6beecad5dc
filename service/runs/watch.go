package runs

import (
	"context"
	"errors"
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

// wakeCost is how long events are gathered per watcher, up to tailPoll: some fifty times what delivering an event to
// one takes, since the run's worker competes with the watchers for processor time.
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

// Watch calls send for each event of a run after a place, past ones first, then live ones, and returns the run as it
// ended. It fails with ErrNotFound, with a ReplacedError if the stored log lacks the place, or loses an event that was
// sent, with send's error, or with the database's.
func (m *Manager) Watch(ctx context.Context, id string, after Place, send func(Event) error) (*Run, error) {
	run, err := m.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	sent := trail{after}
	if after.Sequence > 0 {
		sent[0], _, err = readLog(ctx, m.calls, run.ID, after, 0)
	}
	if err == nil && !run.State.Active() && after.Sequence >= run.LastSequence {
		return run, nil
	}
	for {
		var ended *Run
		if err == nil {
			ended, err = m.watch(ctx, run.ID, &sent, send)
		}
		if !errors.Is(err, errReplaced) {
			return ended, err
		}
		// What was lost may have been sent to other watchers only.
		if err = sent.compare(ctx, m.calls, run.ID); err != nil {
			return nil, err
		}
	}
}

// watch is Watch until the log is replaced: it then fails with errReplaced.
func (m *Manager) watch(ctx context.Context, runID string, sent *trail, send func(Event) error) (*Run, error) {
	t, begun := m.follow(runID, sent.last())
	defer m.unfollow(t)
	if begun { // before the log was replaced, perhaps
		_, _, err := readLog(ctx, m.calls, runID, t.ring.last(), 0)
		if errors.Is(err, errReplaced) {
			m.drop(t, err)
		}
		if err != nil {
			return nil, err
		}
	}
	for {
		events, more, ended, err := t.ring.after(sent.last().Sequence)
		if err != nil || ended != nil {
			return ended, err
		}
		if events == nil && more == nil { // fell behind the ring
			if _, events, err = readLog(ctx, m.calls, runID, sent.last(), pageSize); err != nil {
				return nil, err
			}
			if len(events) == 0 { // the ring is ahead of the log
				return nil, errReplaced
			}
		}
		for _, e := range events {
			if err := send(e); err != nil {
				return nil, err
			}
			sent.add(e.Place)
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

// follow joins the run's tail on this replica, which the first watcher starts, and reports whether there was one
// already.
func (m *Manager) follow(runID string, after Place) (t *tail, begun bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t, begun = m.tails[runID]; !begun {
		ctx, stop := context.WithCancel(context.Background())
		t = &tail{runID: runID, wake: make(chan struct{}, 1), stop: stop, ring: newRing(after)}
		m.tails[runID] = t
		go m.keepReading(ctx, t)
	}
	t.watchers++
	return t, begun
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

// keepReading reads a tail until it is stopped. If it cannot, the tail is dropped.
func (m *Manager) keepReading(ctx context.Context, t *tail) {
	if err := rescue.Call(func() error { return m.read(ctx, t) }); err != nil {
		what := "read the events of run " + t.runID
		rescue.Log(m.log, what, err)
		m.drop(t, fmt.Errorf("%s: %w", what, err))
	}
}

// read fills the tail's ring until it is stopped, and checks that what is in it remains in the stored log.
func (m *Manager) read(ctx context.Context, t *tail) error {
	for {
		reading, stop := context.WithTimeout(ctx, shortTimeout)
		_, events, err := readLog(reading, m.calls, t.runID, t.ring.last(), pageSize)
		stop()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			t.failures = time.Time{}
			t.ring.add(events)
		case errors.Is(err, errReplaced) || errors.Is(err, ErrNotFound):
			return err
		case t.failures.IsZero():
			t.failures = time.Now()
		case time.Since(t.failures) > shortTimeout:
			return err
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

// drop ends the watching of a tail with an error, and makes the next watcher start a new one.
func (m *Manager) drop(t *tail, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tails[t.runID] == t {
		delete(m.tails, t.runID)
	}
	t.ring.fail(err)
}
