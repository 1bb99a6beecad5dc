package runs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// session is a connection under a name; it ends with the test.
func session(t *testing.T, url, name string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url+"&application_name="+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// exec runs SQL on a connection.
func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// throttled waits for a progress event with a reason.
func throttled(db *pgtest.DB, reason string) {
	db.Until("SELECT count(*) FROM cleanupd.event WHERE body -> 'Progress' ->> 'ThrottledBy' = $1", reason)
}

// atWork waits until a number of the application's sessions are in a state.
func atWork(db *pgtest.DB, n int, state string) {
	db.Until("SELECT (count(*) >= $1)::int FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'application' AND "+state, n)
}

const (
	active  = "state = 'active' AND wait_event = 'PgSleep'"
	waiting = "wait_event_type = 'Lock'"
)

// sleepers are sessions of the application that are active until the function that is returned is called.
func sleepers(t *testing.T, db *pgtest.DB, n int) (wake func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range n {
		conn := session(t, db.URL(), "application")
		wg.Go(func() { _, _ = conn.Exec(ctx, "SELECT pg_sleep(600)") })
	}
	atWork(db, n, active)
	return func() { cancel(); wg.Wait() }
}

// queue are sessions of the application that wait for a lock of another until the function that is returned is called.
func queue(t *testing.T, db *pgtest.DB, n int, holder string) (release func()) {
	holding := session(t, db.URL(), holder)
	exec(t, holding, "BEGIN; LOCK TABLE NmsVisitor")
	var wg sync.WaitGroup
	for range n {
		conn := session(t, db.URL(), "application")
		wg.Go(func() { _, _ = conn.Exec(t.Context(), "SELECT FROM NmsVisitor") })
	}
	atWork(db, n, waiting)
	return func() { exec(t, holding, "ROLLBACK"); wg.Wait() }
}

// A batch waits as long as it would get in the way, and says why; then the run continues.
func TestManners(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		limits purge.Limits
		// hinder makes a batch wait until the function that it returns is called.
		hinder func(t *testing.T, db *pgtest.DB) (release func())
	}{
		{"active sessions", purge.Limits{ActiveSessions: 1}, func(t *testing.T, db *pgtest.DB) func() { return sleepers(t, db, 3) }},
		{"sessions waiting for locks", purge.Limits{WaitingSessions: 1}, func(t *testing.T, db *pgtest.DB) func() {
			return queue(t, db, 2, "application")
		}},
		{"others wait for our locks", purge.Limits{ActiveSessions: 1_000}, func(t *testing.T, db *pgtest.DB) func() {
			return queue(t, db, 1, "cleanupd")
		}},
		// A rate of WAL is known from the second sample on: a limit on rows makes the run last until then.
		{"WAL per second", purge.Limits{WALPerSecond: 500_000, RowsPerSecond: 500}, func(t *testing.T, db *pgtest.DB) func() {
			conn := session(t, db.URL(), "application")
			exec(t, conn, "CREATE TABLE busy (i int, t text)")
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = conn.Exec(ctx, "INSERT INTO busy SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i")
				}
			})
			return func() { cancel(); wg.Wait() }
		}},
		{"rows per second", purge.Limits{RowsPerSecond: 500}, func(*testing.T, *pgtest.DB) func() { return func() {} }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			suite.Except(t, suite.Long, "others wait for our locks", "rows per second")
			t.Parallel()
			db, _ := migrated(t)
			sessions(db, 1_000)
			own := pool(t, db.URL()+"&application_name=cleanupd")
			m, work, _ := replica(t, db, "a", func(config *runs.Config) { config.Pool, config.Limits, config.MaxRows = own, c.limits, 100 })
			release := c.hinder(t, db)
			run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
			work()
			throttled(db, c.reason)
			if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left == 0 {
				t.Error("nothing was left to wait with")
			}
			release()
			events := watch(t, m, run.ID)
			checkFinished(t, events, 1_000)
			if waited := measured(t, m, "cleanupd_throttled_seconds_total", c.reason); waited <= 0 {
				t.Error("how long it waited is not measured")
			}
		})
	}
}

// A run that waits can be stopped.
func TestCancelOfAThrottledRun(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	sessions(db, 10)
	own := pool(t, db.URL()+"&application_name=cleanupd")
	m, work, _ := replica(t, db, "a", func(config *runs.Config) { config.Pool, config.Limits = own, purge.Limits{ActiveSessions: 1} })
	defer sleepers(t, db, 2)()
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	throttled(db, "active sessions")
	if _, err := m.Cancel(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	if events := watch(t, m, run.ID); events[len(events)-1].Run.State != runs.Cancelled || db.Int("SELECT count(*) FROM XtkSessionInfo") != 10 {
		t.Errorf("%+v", events[len(events)-1].Run)
	}
}

// A lag that cannot be seen is reported once and ignored, unless a limit was given explicitly: then it is too much.
func TestLagThatCanNotBeSeen(t *testing.T) {
	t.Parallel()
	db, server := migrated(t)
	standby, err := server.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	db.Reset()
	for _, must := range []bool{false, true} {
		sessions(db, 10)
		m, work, stop := replica(t, db, fmt.Sprint(must), func(config *runs.Config) {
			config.Limits, config.MaxRows = purge.Limits{ReplicaLag: time.Hour, LagMustBeSeen: must}, 1
		})
		run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
		work()
		if must {
			throttled(db, "replica lag can not be seen: GRANT pg_monitor")
			db.Superuser("GRANT pg_monitor TO neolane")
		}
		events := watch(t, m, run.ID)
		checkFinished(t, events, 10)
		if said(events, severity.Warning, "GRANT pg_monitor would let it") == must {
			t.Errorf("must %t: %q", must, logs(events))
		}
		stop()
	}
}
