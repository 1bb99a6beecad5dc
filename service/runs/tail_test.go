package runs_test

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/eventlog"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

type cluster struct {
	*pgtest.DB
	t                testing.TB
	primary, standby *localpg.Server
	both             *pgxpool.Pool // of whichever of them accepts writes
}

// asynchronous returns a cluster whose standby may fall behind.
func asynchronous(t *testing.T) *cluster {
	t.Helper()
	db, primary := migrated(t)
	standby, err := primary.AsynchronousStandby(t.Context())
	return newCluster(t, db, primary, standby, err)
}

func newCluster(t *testing.T, db *pgtest.DB, primary, standby *localpg.Server, err error) *cluster {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	db.Reset()
	hosts, err := url.Parse(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	second, err := url.Parse(standby.URL("", ""))
	if err != nil {
		t.Fatal(err)
	}
	query := hosts.Query()
	query.Set("host", query.Get("host")+","+second.Query().Get("host"))
	query.Set("port", query.Get("port")+","+second.Query().Get("port"))
	hosts.RawQuery = query.Encode()
	return &cluster{db, t, primary, standby, pool(t, hosts.String())}
}

func (c *cluster) do(errs ...error) {
	c.t.Helper()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
}

// replica returns a replica on the server that accepts writes; work makes it start working.
func (c *cluster) replica(t *testing.T, name string, change func(*runs.Config)) (m *runs.Manager, work func()) {
	t.Helper()
	m, work, _ = replica(t, c.DB, name, func(config *runs.Config) {
		config.Pool = c.both
		if change != nil {
			change(config)
		}
	})
	return m, work
}

// fallBehind makes the standby miss all later commits.
func (c *cluster) fallBehind() {
	c.t.Helper()
	c.do(c.standby.FallBehind(c.t.Context(), c.primary))
}

// failOver crashes the primary and promotes the standby, which the test's own queries use from then on.
func (c *cluster) failOver() {
	c.t.Helper()
	c.primary.Crash()
	c.do(c.standby.Promote(c.t.Context()))
	c.Pool = c.both
	c.both.Reset()
}

// spectator watches a run like a client that resumes after the place in an error.
type spectator struct {
	events []store.Event
	lost   int   // how often events were lost that it had seen
	failed error // the last error of the database after which it watched again; nil if there was none
	gone   bool  // whether the run is gone

	received atomic.Int64  // how many events it was sent
	ended    chan struct{} // closed at the end, before which only received may be read
}

// spectate watches a run until it has ended or is gone, for at most two minutes.
func spectate(t *testing.T, m *runs.Manager, id string, slow time.Duration) *spectator {
	t.Helper()
	s := &spectator{ended: make(chan struct{})}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(func() { // in case the test failed before
		stop()
		<-s.ended
	})
	go func() {
		defer stop()
		defer close(s.ended)
		for {
			var after store.Place
			if n := len(s.events); n > 0 {
				after = s.events[n-1].Place
			}
			_, err := m.Watch(ctx, id, after, func(e store.Event) error {
				if e.Sequence != int64(len(s.events)+1) {
					t.Errorf("event %d follows %d", e.Sequence, len(s.events))
				}
				s.events = append(s.events, e)
				s.received.Add(1)
				time.Sleep(slow)
				return nil
			})
			var lost *eventlog.ReplacedError
			switch {
			case errors.As(err, &lost):
				s.lost++
				s.events = s.events[:lost.AfterSequence]
				continue
			case errors.Is(err, store.ErrNotFound):
				s.gone = true
			case err != nil && ctx.Err() == nil: // the database did not answer
				s.failed = err
				time.Sleep(20 * time.Millisecond)
				continue
			case err != nil:
				t.Errorf("a watcher, after %d events: %v; the last error of the database: %v", len(s.events), err,
					s.failed)
			}
			return
		}
	}()
	return s
}

// has waits until the spectator was sent this many events.
func (s *spectator) has(t *testing.T, events int64) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); s.received.Load() < events; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it was sent %d events of %d", s.received.Load(), events)
		}
	}
}

func places(t *testing.T, db *pgtest.DB) []store.Place {
	t.Helper()
	rows, err := db.Query(t.Context(), "SELECT sequence, generation FROM cleanupd.event ORDER BY sequence")
	if err != nil {
		t.Fatal(err)
	}
	stored, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.Place])
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func (s *spectator) check(t *testing.T, stored []store.Place) {
	t.Helper()
	if len(s.events) != len(stored) {
		t.Errorf("%d events were seen, %d are stored", len(s.events), len(stored))
		return
	}
	for i, e := range s.events {
		if e.Place != stored[i] {
			t.Errorf("event %+v was seen, %+v is stored", e.Place, stored[i])
		}
	}
}

// A failover to a standby that lags undoes events that were sent, and the batches of that time. The run continues from
// the state of the standby and deletes all obsolete rows there. Every watcher learns which of its events are gone.
func TestFailoverToALateStandby(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	const rows = 1_000
	c := asynchronous(t)
	sessions(c.DB, rows)
	a, work := c.replica(t, "a", slowly)
	b, _ := c.replica(t, "b", nil)
	run := start(t, a, runs.Request{Tasks: []string{"sessions", "reactions"}})
	watchers := []*spectator{
		spectate(t, a, run.ID, 0), spectate(t, b, run.ID, 0), spectate(t, b, run.ID, 300*time.Millisecond),
	}
	work()
	untilDeleting(t, c.DB, run.ID)
	c.fallBehind()
	held := int64(len(places(t, c.DB)))
	for _, w := range watchers[:2] {
		w.has(t, held+3) // the standby lacks the last ones
	}
	late := places(t, c.DB)
	c.failOver()
	events := watch(t, b, run.ID)
	checkFinished(t, events, rows)
	if left := c.Int("SELECT count(*) FROM XtkSessionInfo"); left != 0 {
		t.Errorf("%d rows are left", left)
	}
	stored, lost := places(t, c.DB), 0
	for _, w := range watchers {
		<-w.ended
		w.check(t, stored)
		lost += w.lost
	}
	if lost < 2 || stored[len(late)-1] == late[len(late)-1] {
		t.Errorf("%d watchers lost events", lost)
	}
}

// A run that the standby does not have is lost in the failover: its watchers get an error, its worker stops, and the
// next run deletes all rows.
func TestARunThatIsLost(t *testing.T) {
	t.Parallel()
	rows := suite.Size[int64](suite.Long, 100, 1_000)
	c := asynchronous(t)
	sessions(c.DB, int(rows))
	release := holdLast(c.DB, int(rows))
	a, work := c.replica(t, "a", slowly)
	c.fallBehind()
	run := start(t, a, runs.Request{Tasks: []string{"sessions"}})
	watchers := []*spectator{spectate(t, a, run.ID, 0), spectate(t, a, run.ID, 0)}
	work()
	untilDeleting(t, c.DB, run.ID)
	c.failOver()
	release()
	for _, w := range watchers {
		if <-w.ended; !w.gone {
			t.Errorf("a watcher saw %d events, and lost some %d times", len(w.events), w.lost)
		}
	}
	if left := c.Int("SELECT count(*) FROM XtkSessionInfo"); left != rows {
		t.Errorf("%d rows are left", left)
	}
	checkFinished(t, watch(t, a, start(t, a, runs.Request{Tasks: []string{"sessions"}}).ID), rows)
}

// A run that is queued again after the failover, since the standby missed its claim, is claimed again, even by the
// replica that had it.
func TestARunThatIsQueuedAgain(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	rows := suite.Size(suite.Long, 300, 1_000)
	c := asynchronous(t)
	sessions(c.DB, rows)
	release := holdLast(c.DB, rows)
	a, work := c.replica(t, "a", slowly)
	run := start(t, a, runs.Request{Tasks: []string{"sessions"}})
	s := spectate(t, a, run.ID, 0)
	c.fallBehind()
	work()
	untilDeleting(t, c.DB, run.ID)
	s.has(t, 4)
	c.failOver()
	release()
	<-s.ended
	checkFinished(t, s.events, int64(rows))
	s.check(t, places(t, c.DB))
	if s.lost == 0 || s.events[0].Kind != store.RunStarted {
		t.Errorf("events were lost %d times; the first one is %s", s.lost, s.events[0].Kind)
	}
}
