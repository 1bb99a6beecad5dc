package eventlog

import (
	"slices"
	"sync"

	"github.com/cleanupd/cleanupd/service/runs/store"
)

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
