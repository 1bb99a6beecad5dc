package runs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs/eventlog"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// A watcher that resumes after an event that the log does not have gets an error at once, with the last event that the
// log still has of the watcher's generation.
func TestAWatcherAheadOfTheLog(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	run := startLong(t, db, m)
	db.Do("UPDATE cleanupd.event SET generation = CASE WHEN sequence <= 2000 THEN 7 ELSE 8 END")
	seen := errors.New("an event came")
	for _, state := range []store.State{store.Queued, store.Succeeded} {
		if state == store.Succeeded {
			work()
			watch(t, m, run.ID)
		}
		for after, shared := range map[store.Place]int64{
			{Sequence: 2000, Generation: 7}: 2000, {Sequence: 2001, Generation: 8}: 2001, {Sequence: 2999}: 2999,
			{
				Sequence:   2010,
				Generation: 7,
			}: 2000,
			{Sequence: 2000, Generation: 8}: 0,
			{Sequence: 5000, Generation: 8}: 3000,
			{Sequence: 10, Generation: 9}:   0, {Sequence: 5000}: 0,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := m.Watch(ctx, run.ID, after, func(store.Event) error { return seen })
			cancel()
			var lost *eventlog.ReplacedError
			if errors.As(err, &lost) {
				if lost.RunID != run.ID || lost.AfterSequence != shared || shared == after.Sequence {
					t.Errorf("%s, after %+v: %v", state, after, err)
				}
			} else if shared != after.Sequence || !errors.Is(err, seen) {
				t.Errorf("%s, after %+v: %v", state, after, err)
			}
		}
	}
}

// A watcher that fell behind gets ErrNotFound when its run was deleted.
func TestAWatcherOfARunThatIsForgotten(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	run := startLong(t, db, m)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := m.Watch(ctx, run.ID, store.Place{}, func(e store.Event) error {
		if e.Sequence == 1 {
			work()
			watch(t, m, run.ID) // until the ring is far ahead
			db.Do("DELETE FROM cleanupd.run")
		}
		return nil
	})
	if !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}

// Watchers of a run whose log is replaced by another get an error with the last event that the new log has. Watchers
// that were sent no other events continue with it, and later watchers are not sent events from memory.
func TestAWatchedLogThatIsReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replace string // $1 is the id of the run
		shared  int64  // the last event that both have; -1: the run is gone
	}{
		"shorter": {"DELETE FROM cleanupd.event WHERE run_id = $1::text::uuid AND sequence > 2990", 2990},
		"of the same length": {
			"UPDATE cleanupd.event SET generation = 9 WHERE run_id = $1::text::uuid AND sequence > 2990", 2990,
		},
		"quite another": {"UPDATE cleanupd.event SET generation = 9 WHERE run_id = $1::text::uuid", 0},
		"empty":         {"DELETE FROM cleanupd.event WHERE run_id = $1::text::uuid", 0},
		"gone":          {"DELETE FROM cleanupd.run WHERE id = $1::text::uuid", -1},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "of the same length", "gone")
			t.Parallel()
			db := database(t)
			m, _, _ := replica(t, db, "a", nil)
			run := startLong(t, db, m)
			db.Do("UPDATE cleanupd.event SET generation = CASE WHEN sequence <= 2000 THEN 7 ELSE 8 END")
			errEnd := errors.New("the new log has ended")
			replaced := make(chan struct{})
			begin := func(waitAt int64) <-chan error { // a watcher that waits there until the log is replaced
				reached, done := make(chan struct{}), make(chan error, 1)
				go func() {
					_, err := m.Watch(t.Context(), run.ID, store.Place{}, func(e store.Event) error {
						if e.Sequence == waitAt {
							close(reached)
							<-replaced
						}
						if e.Generation == 10 {
							return errEnd
						}
						return nil
					})
					done <- err
				}()
				<-reached
				return done
			}
			ahead, behind := begin(3000), begin(1)
			db.Do(c.replace, run.ID)
			db.Do(
				`INSERT INTO cleanupd.event (run_id, sequence, generation, body) SELECT id, (SELECT count(*)
					FROM cleanupd.event) + 1, 10, '{"Kind": "log"}' FROM cleanupd.run`,
			)
			var seen []store.Place
			_, err := m.Watch(t.Context(), run.ID, store.Place{}, func(e store.Event) error {
				seen = append(seen, e.Place)
				if e.Generation == 10 {
					return errEnd
				}
				return nil
			})
			if stored := places(t, db); !slices.Equal(seen, stored) || (c.shared >= 0 && !errors.Is(err, errEnd)) ||
				(c.shared < 0 && !errors.Is(err, store.ErrNotFound)) {
				t.Errorf("a new watcher saw %d events, %d are stored: %v", len(seen), len(stored), err)
			}
			close(replaced)
			for who, err := range map[string]error{"ahead": <-ahead, "behind": <-behind} {
				var lost *eventlog.ReplacedError
				switch {
				case c.shared < 0 && errors.Is(err, store.ErrNotFound):
				case c.shared > 0 && who == "behind" && errors.Is(err, errEnd):
				case c.shared >= 0 && errors.As(err,
					&lost) && lost.AfterSequence == c.shared && (who == "ahead" || c.shared == 0):
				default:
					t.Errorf("the watcher %s: %v", who, err)
				}
			}
		})
	}
}
