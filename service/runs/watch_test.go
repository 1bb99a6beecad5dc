package runs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/service/runs"
)

// A watcher that asks for events after the run's last one, before that exists, still learns of the end.
func TestAWatcherAheadOfTheRun(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	time.AfterFunc(100*time.Millisecond, work) // the run is active when it is asked for
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := m.Watch(ctx, run.ID, 1000, func(e runs.Event) error {
		t.Errorf("event %d came", e.Sequence)
		return nil
	})
	if err != nil || got.State != runs.Succeeded {
		t.Errorf("%+v, %v", got, err)
	}
}

// A run that is deleted while a watcher that fell behind still watches it is no longer found.
func TestAWatcherOfARunThatIsForgotten(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	run := startLong(t, db, m)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := m.Watch(ctx, run.ID, 0, func(e runs.Event) error {
		if e.Sequence == 1 {
			work()
			watch(t, m, run.ID) // until the ring is far ahead
			db.Do("DELETE FROM cleanupd.run")
		}
		return nil
	})
	if !errors.Is(err, runs.ErrNotFound) {
		t.Error(err)
	}
}
