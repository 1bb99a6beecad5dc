package runs_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// session opens a connection with this name, which lasts until the test ends.
func session(t *testing.T, url, name string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url+"&application_name="+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// throttled waits for a progress event that begins with a reason.
func throttled(db *pgtest.DB, reason string) {
	db.Until("SELECT count(*) FROM cleanupd.event WHERE starts_with(body -> 'Progress' ->> 'Throttle', $1)", reason)
}

// atWork waits until n of the application's sessions are in a state.
func atWork(db *pgtest.DB, n int, state string) {
	db.Until(
		"SELECT (count(*) >= $1)::int FROM pg_stat_activity WHERE datname = current_database() AND application_name "+
			"= 'application' AND "+state,
		n,
	)
}

const (
	active  = "state = 'active' AND wait_event = 'PgSleep'"
	waiting = "wait_event_type = 'Lock'"
)

// sleepers keeps n sessions of the application active until wake is called.
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

// queue makes n sessions of the application wait for the lock of another one until release is called.
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

// A batch waits as long as it would get in the way of others, and says why. Then the run continues.
func TestManners(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for _, c := range []struct {
		reason string
		limits purge.Limits
		// Makes a batch wait until release is called.
		hinder func(t *testing.T, db *pgtest.DB) (release func())
	}{
		{
			"active sessions",
			purge.Limits{ActiveSessions: 1},
			func(t *testing.T, db *pgtest.DB) func() { return sleepers(t, db, 3) },
		},
		{"sessions waiting for locks", purge.Limits{WaitingSessions: 1}, func(t *testing.T, db *pgtest.DB) func() {
			return queue(t, db, 2, "application")
		}},
		{"others wait for our locks", purge.Limits{ActiveSessions: 1_000}, func(t *testing.T, db *pgtest.DB) func() {
			return queue(t, db, 1, "cleanupd")
		}},
		// The rate of WAL is known from the second sample on. A limit on rows makes the run last until then.
		{
			"WAL per second",
			purge.Limits{
				WALPerSecond:  500_000,
				RowsPerSecond: 500,
			},
			func(t *testing.T, db *pgtest.DB) func() {
				conn := session(t, db.URL(), "application")
				exec(t, conn, "CREATE TABLE busy (i int, t text)")
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					for ctx.Err() == nil {
						_, _ = conn.Exec(ctx,
							"INSERT INTO busy SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i")
					}
				})
				return func() { cancel(); wg.Wait() }
			},
		},
		{"rows per second", purge.Limits{RowsPerSecond: 500}, func(*testing.T, *pgtest.DB) func() { return func() {} }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			suite.Except(t, suite.Long, "others wait for our locks", "rows per second")
			t.Parallel()
			db, _ := migrated(t)
			sessions(db, 1_000)
			own := pool(t, db.URL()+"&application_name=cleanupd")
			m, work, _ := replica(t, db, "a",
				func(config *runs.Config) { config.Pool, config.Limits, config.MaxRows = own, c.limits, 100 })
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

// A lag that the role cannot see is reported once and ignored, unless a limit was given explicitly: then it counts as
// too much, except for standbys to ignore.
func TestLagThatCanNotBeSeen(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, server := migrated(t)
	standby, err := server.Standby(t.Context())
	newCluster(t, db, server, standby, err)
	for name, c := range map[string]struct {
		must   bool
		ignore []string
		warned bool
	}{
		"seen if possible": {warned: true},
		"must be seen":     {must: true, ignore: []string{"another"}},
		"ignored":          {must: true, ignore: []string{"another", "walreceiver"}},
	} {
		sessions(db, 10)
		db.Superuser("REVOKE pg_monitor FROM neolane")
		m, work, stop := replica(t, db, name, func(config *runs.Config) {
			config.Limits, config.MaxRows = purge.Limits{
				ReplicaLag:    time.Hour,
				LagMustBeSeen: c.must,
				LagIgnore:     c.ignore,
			}, 1
		})
		run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
		work()
		if name == "must be seen" {
			throttled(db, "replica lag cannot be seen")
			db.Superuser("GRANT pg_monitor TO neolane")
		}
		events := watch(t, m, run.ID)
		checkFinished(t, events, 10)
		if said(events, message.Warning, "to make them wait: GRANT pg_monitor") != c.warned {
			t.Errorf("%s: %q", name, logs(events))
		}
		stop()
	}
}

// Batches do not wait for the reader of a logical slot, which is not a standby.
func TestReaderOfALogicalSlot(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Long)
	db, server := migrated(t)
	db.Superuser("ALTER SYSTEM SET wal_level = logical")
	if err := server.Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	db.Reset()
	db.Superuser("SELECT pg_create_logical_replication_slot('reader', 'test_decoding')")
	reader := server.Client(t.Context(), "pg_recvlogical", "--dbname", db.Name, "--slot", "reader", "--start", "--file",
		"-")
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Process.Kill(); _ = reader.Wait() })
	db.Until("SELECT count(*) FROM pg_replication_slots WHERE active")
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", func(config *runs.Config) {
		config.Limits, config.MaxRows = purge.Limits{ReplicaLag: time.Hour, LagMustBeSeen: true}, 1
	})
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	checkFinished(t, watch(t, m, run.ID), 10)
}

// Batches do not wait for a receiver that stores WAL and never replays it.
func TestReceiverOfWAL(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, server := migrated(t)
	db.Superuser("GRANT pg_monitor TO neolane")
	receiver := server.Client(t.Context(), "pg_receivewal", "--directory", t.TempDir(), "--no-loop")
	if err := receiver.Start(); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this PostgreSQL has no pg_receivewal: install its clients")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = receiver.Process.Kill(); _ = receiver.Wait() })
	db.Until("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
	sessions(db, 10)
	db.Until("SELECT count(*) FROM pg_stat_replication WHERE replay_lag > '1 second' AND replay_lsn IS NULL")
	m, work, _ := replica(t, db, "a", func(config *runs.Config) {
		config.Limits, config.MaxRows = purge.Limits{ReplicaLag: time.Second, LagMustBeSeen: true}, 1
	})
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	events := watch(t, m, run.ID)
	checkFinished(t, events, 10)
	if n := db.Int(
		"SELECT count(*) FROM cleanupd.event WHERE body -> 'Progress' ->> 'Throttle' LIKE 'replica%'",
	); n != 0 {
		t.Errorf("batches waited for the receiver: %q", logs(events))
	}
}

// A standby that is delayed on purpose does not stop a run: after a while its delay is ignored, which is reported.
func TestDelayedStandby(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Long)
	c := asynchronous(t)
	db, standby := c.DB, c.standby
	db.Superuser("GRANT pg_monitor TO neolane")
	there, err := pgx.Connect(t.Context(), standby.URL("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	exec(t, there, "ALTER SYSTEM SET recovery_min_apply_delay = '3s'")
	exec(t, there, "SELECT pg_reload_conf()")
	_ = there.Close(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	application := session(t, db.URL(), "application")
	exec(t, application, "CREATE TABLE busy (i int)")
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_, _ = application.Exec(ctx, "INSERT INTO busy VALUES (1); SELECT pg_sleep(0.1)")
		}
	})
	db.Until("SELECT count(*) FROM pg_stat_replication WHERE replay_lag > '2 seconds'")
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", func(config *runs.Config) {
		config.Limits, config.MaxRows = purge.Limits{ReplicaLag: time.Second}, 1
	})
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	throttled(db, "replica lag: walreceiver is ")
	events := watch(t, m, run.ID)
	checkFinished(t, events, 10)
	if !said(events, message.Warning, "the standby walreceiver lags by ", "because of recovery_min_apply_delay") {
		t.Errorf("%q", logs(events))
	}
	cancel()
	wg.Wait()
}

// Sessions that wait for advisory locks, for snapshots, or in another database, do not count.
func TestWaitsThatDoNotMatter(t *testing.T) {
	t.Parallel()
	db, other := database(t), pgtest.Campaign(t)
	holding := session(t, db.URL(), "application")
	exec(t, holding, "SELECT pg_advisory_lock(1)")
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		conn := session(t, db.URL(), "application")
		wg.Go(func() { _, _ = conn.Exec(ctx, "SELECT pg_advisory_lock(1)") })
	}
	atWork(db, 2, "wait_event = 'advisory'")
	exec(t, holding, "BEGIN; CREATE TABLE mine (a int)")
	db.Do("CREATE TABLE one (a int); CREATE TABLE two (a int)")
	for _, table := range []string{"one", "two"} { // they wait for the end of the transaction of another table
		conn := session(t, db.URL(), "application")
		wg.Go(func() { _, _ = conn.Exec(ctx, "CREATE INDEX CONCURRENTLY ON "+table+" (a)") })
	}
	atWork(db, 2, "wait_event = 'virtualxid'")
	release := queue(t, other, 2, "application")
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", func(config *runs.Config) {
		config.Limits = purge.Limits{WaitingSessions: 1}
	})
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	checkFinished(t, watch(t, m, run.ID), 10)
	release()
	cancel()
	wg.Wait()
}

// When batches have waited for one reason for a while, the log has a warning with a remedy. A run that waits can be
// stopped.
func TestWaitsForTooLong(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	sessions(db, 10)
	own := pool(t, db.URL()+"&application_name=cleanupd")
	m, work, _ := replica(t, db, "a", func(config *runs.Config) {
		config.Pool, config.Limits = own, purge.Limits{ActiveSessions: 1, MaxWait: time.Second}
	})
	wake := sleepers(t, db, 2)
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	throttled(db, "active sessions")
	if _, err := m.Cancel(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	if events := watch(t, m, run.ID); events[len(events)-1].Run.State != store.Cancelled ||
		db.Int("SELECT count(*) FROM XtkSessionInfo") != 10 {
		t.Errorf("%+v", events[len(events)-1].Run)
	}
	run = start(t, m, runs.Request{Tasks: []string{"sessions"}})
	db.Until(
		"SELECT count(*) FROM cleanupd.event WHERE body ->> 'Level' = 'WARNING' AND body ->> 'Message' LIKE 'batches " +
			"have waited for 1s: active sessions: 2; raise --max-active-sessions%'",
	)
	wake()
	checkFinished(t, watch(t, m, run.ID), 10)
}

// WAL that the server cannot remove is reported, and too much of it makes batches wait.
func TestRetainedWAL(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for what, c := range map[string]struct {
		begin, end string
		archive    string // the archive_command, after a restart
		limit      int64
		reason     string
	}{
		"a slot without a reader": {
			begin:  "SELECT pg_create_physical_replication_slot('gone', true)",
			end:    "SELECT pg_drop_replication_slot('gone')",
			limit:  1,
			reason: "the replication slot gone has no reader",
		},
		"a slot that has little": {
			begin:  "SELECT pg_create_physical_replication_slot('gone', true)",
			limit:  1 << 30,
			reason: "the replication slot gone has no reader",
		},
		"no limit": {
			begin:  "SELECT pg_create_physical_replication_slot('gone', true)",
			reason: "the replication slot gone has no reader",
		},
		"an archiver that fails": {
			archive: "false",
			end:     "ALTER SYSTEM SET archive_command = 'true'",
			limit:   1,
			reason:  "the archiver fails at 0000000",
		},
		"an archiver that fails at a history file": {
			begin: `DO $$ BEGIN
					EXECUTE format('COPY (SELECT) TO %L', current_setting('data_directory') || '/pg_wal/00000009.history');
					EXECUTE format('COPY (SELECT) TO %L', current_setting('data_directory') ||
						'/pg_wal/archive_status/00000009.history.ready');
				END $$`,
			archive: "case %f in *.history) false;; esac",
			limit:   1 << 40,
			reason:  "the archiver fails at 00000009.history",
		},
		"an archiver that is not configured": {
			archive: "none",
			limit:   1 << 40,
			reason:  "archive_mode is on, and neither archive_command nor archive_library is set",
		},
	} {
		t.Run(what, func(t *testing.T) {
			suite.Except(t, suite.Long, "a slot without a reader")
			t.Parallel()
			db, server := migrated(t)
			if c.begin != "" {
				db.Superuser(c.begin)
			}
			if c.archive != "" {
				db.Superuser("ALTER SYSTEM SET archive_mode = on")
				db.Superuser("ALTER SYSTEM SET archive_command = '" + strings.TrimPrefix(c.archive, "none") + "'")
				if err := server.Restart(t.Context(), true); err != nil {
					t.Fatal(err)
				}
				db.Reset()
				db.Superuser("SELECT pg_switch_wal()")
				if c.archive != "none" {
					db.Until("SELECT failed_count FROM pg_stat_archiver")
				}
			}
			sessions(db, 10)
			m, work, _ := replica(t, db, "a", func(config *runs.Config) {
				config.Limits = purge.Limits{ActiveSessions: 1_000, RetainedWAL: c.limit}
			})
			run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
			work()
			if c.end != "" {
				throttled(db, "retained WAL: "+c.reason)
				db.Superuser(c.end)
				db.Superuser("SELECT pg_reload_conf()")
			}
			events := watch(t, m, run.ID)
			checkFinished(t, events, 10)
			if !said(events, message.Warning, c.reason) {
				t.Errorf("%q", logs(events))
			}
			// a subscriber or a standby may need the slot
			if strings.Contains(c.reason, "slot") &&
				!said(events, message.Warning, "a standby or a backup reads it") ||
				said(events, message.Warning, "drop") {
				t.Errorf("%q", logs(events))
			}
		})
	}
}
