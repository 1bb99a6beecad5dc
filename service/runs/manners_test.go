package runs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/tasks"
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

// throttled waits for a progress event that says a reason.
func throttled(t *testing.T, db *pgtest.DB, reason string) {
	t.Helper()
	for db.Int("SELECT count(*) FROM cleanupd.event WHERE body -> 'Progress' ->> 'ThrottledBy' = $1", reason) == 0 {
		if t.Context().Err() != nil {
			t.Fatalf("no batch waits for %s", reason)
		}
	}
}

// A batch waits as long as it would be in the way, says why, and the run goes on then.
func TestManners(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		limits purge.Limits
		// hinder makes a batch wait until the function that it returns is called.
		hinder func(t *testing.T, db *pgtest.DB) (release func())
	}{
		{"active sessions", purge.Limits{ActiveSessions: 1}, func(t *testing.T, db *pgtest.DB) func() {
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 3 {
				conn := session(t, db.URL(), "application")
				wg.Go(func() { _, _ = conn.Exec(ctx, "SELECT pg_sleep(60)") })
			}
			return func() { cancel(); wg.Wait() }
		}},
		{"sessions waiting for locks", purge.Limits{WaitingSessions: 1}, func(t *testing.T, db *pgtest.DB) func() {
			holder := session(t, db.URL(), "application")
			exec(t, holder, "BEGIN; LOCK TABLE NmsVisitor")
			var wg sync.WaitGroup
			for range 2 {
				conn := session(t, db.URL(), "application")
				wg.Go(func() { _, _ = conn.Exec(t.Context(), "SELECT FROM NmsVisitor") })
			}
			return func() { exec(t, holder, "ROLLBACK"); wg.Wait() }
		}},
		{"others wait for our locks", purge.Limits{ActiveSessions: 1_000}, func(t *testing.T, db *pgtest.DB) func() {
			ours := session(t, db.URL(), "cleanupd")
			exec(t, ours, "BEGIN; LOCK TABLE NmsVisitor")
			conn := session(t, db.URL(), "application")
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = conn.Exec(t.Context(), "SELECT FROM NmsVisitor") })
			return func() { exec(t, ours, "ROLLBACK"); wg.Wait() }
		}},
		{"WAL per second", purge.Limits{WALPerSecond: 2_000_000}, func(t *testing.T, db *pgtest.DB) func() {
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
			t.Parallel()
			db, _ := migrated(t)
			sessions(db, 1_000)
			own := pool(t, db.URL()+"&application_name=cleanupd")
			m, work, _ := replica(t, db, "a", func(config *runs.Config) { config.Pool, config.Limits, config.MaxRows = own, c.limits, 100 })
			release := c.hinder(t, db)
			run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
			work()
			throttled(t, db, c.reason)
			if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left == 0 {
				t.Error("nothing was left to wait with")
			}
			release()
			events := watch(t, m, run.ID)
			checkFinished(t, events, 1_000)
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
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		conn := session(t, db.URL(), "application")
		wg.Go(func() { _, _ = conn.Exec(ctx, "SELECT pg_sleep(60)") })
	}
	defer wg.Wait()
	defer cancel()
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	throttled(t, db, "active sessions")
	if _, err := m.Cancel(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	if events := watch(t, m, run.ID); events[len(events)-1].Run.State != runs.Cancelled || db.Int("SELECT count(*) FROM XtkSessionInfo") != 10 {
		t.Errorf("%+v", events[len(events)-1].Run)
	}
}

// A lag that can not be seen is told once and not waited for, unless a limit was asked for: then it is too much.
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
			throttled(t, db, "replica lag can not be seen: GRANT pg_monitor")
			db.Superuser("GRANT pg_monitor TO neolane")
		}
		events := watch(t, m, run.ID)
		checkFinished(t, events, 10)
		if said(events, tasks.Warning, "GRANT pg_monitor would let it") == must {
			t.Errorf("must %t: %q", must, logs(events))
		}
		stop()
	}
}
