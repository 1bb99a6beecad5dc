package runs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/badnet"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// A separate pool, with the defaults of serve for its sessions.
func pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(),
		url+"&target_session_attrs=read-write&lock_timeout=1000&statement_timeout=60000"+
			"&idle_in_transaction_session_timeout=10000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// outlive executes a run in batches of one row through a separate pool, calls happen several times before the run ends,
// and checks the counts. The test's own queries use another pool.
func outlive(t *testing.T, db *pgtest.DB, url string, happen func()) (events []store.Event) {
	t.Helper()
	rows := suite.Size(suite.Long, 150, 1_500)
	sessions(db, rows)
	release := holdLast(db, rows)
	own := pool(t, url)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.Pool, c.MaxRows = own, 1 })
	watcher, _, _ := replica(t, db, "b", nil)
	run := start(t, watcher, runs.Request{Tasks: []string{"sessions", "reactions"}})
	affected := spectate(t, m, run.ID, 0)
	work()
	affected.has(t, 1) // a watcher that comes while the database is away is refused
	var longest time.Duration
	for _, at := range suite.Size(suite.Long, []int{50, 100}, []int{100, 300, 600, 900}) {
		db.Until("SELECT (sum(rows_deleted) >= $1)::int FROM cleanupd.task", at)
		begun := time.Now()
		happen()
		longest = max(longest, time.Since(begun))
	}
	release()
	events = watch(t, watcher, run.ID)
	checkFinished(t, events, int64(rows))
	<-affected.ended
	affected.check(t, places(t, db))
	if affected.lost > 0 {
		t.Errorf("a watcher lost events %d times", affected.lost)
	}
	// Replicas give up reading a log after ten seconds without an answer, such as when a server restarts on a busy
	// machine.
	if affected.failed != nil && longest < 5*time.Second {
		t.Errorf("a watcher failed, though the database was away for %v at most: %v", longest, affected.failed)
	}
	if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left != 0 {
		t.Errorf("%d rows are left", left)
	}
	// If the answer to a COMMIT was lost, only the ledger counts its rows; metrics count rows twice if a crash of the
	// server undid their deletion.
	if n := measured(t, m, "cleanupd_rows_deleted_total", "sessions"); n < float64(rows)/2 || n > float64(2*rows) {
		t.Errorf("%v rows are measured", n)
	}
	told := 0.0
	for _, line := range logs(events) {
		told += float64(strings.Count(line, "without progress: "))
	}
	if n := measured(t, m, "cleanupd_run_failed_attempts_total", ""); n > told || n < told/2 {
		t.Errorf("%v failed attempts are measured, %v were told of", n, told)
	}
	if batches := events[len(events)-1].Run.Result("sessions").Batches; batches != int64(rows) {
		t.Errorf("%d batches of one row each are accounted for, of %d", batches, rows)
	}
	return events
}

// One event must have all parts.
func said(events []store.Event, level message.Severity, parts ...string) bool {
	for _, e := range events {
		all := e.Kind == store.LogLine && e.Level == level
		for _, part := range parts {
			all = all && strings.Contains(e.Message, part)
		}
		if all {
			return true
		}
	}
	return false
}

func TestConnectionsThatAreCut(t *testing.T) {
	t.Parallel()
	for name, happen := range map[string]func(p *badnet.Proxy){
		"cut":                   (*badnet.Proxy).Cut,
		"half closed to server": func(p *badnet.Proxy) { p.HalfClose(true) },
		"half closed to client": func(p *badnet.Proxy) { p.HalfClose(false) },
		"silent":                func(p *badnet.Proxy) { p.Stall(1500 * time.Millisecond) }, // longer than the lease
		"before COMMIT":         func(p *badnet.Proxy) { p.CutAtCommit(badnet.BeforeCommit) },
		"after COMMIT":          func(p *badnet.Proxy) { p.CutAtCommit(badnet.AfterCommit) },
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "cut", "after COMMIT")
			t.Parallel()
			db := database(t)
			p := badnet.New(t, db.URL(), 0)
			events := outlive(t, db, p.URL(db.URL()), func() { happen(p) })
			told := said(events, message.Warning, "continues after the last committed batch",
				"see that the database server runs")
			// The next COMMIT may have been one of the replica's own connections.
			if !told && name != "silent" && !strings.HasSuffix(name, "COMMIT") {
				t.Errorf("nothing was told of it: %+v", logs(events))
			}
		})
	}
}

func logs(events []store.Event) (lines []string) {
	for _, e := range events {
		if e.Kind == store.LogLine {
			lines = append(lines, fmt.Sprint(e.Sequence, " ", e.Level, " ", e.Message))
		}
	}
	return lines
}

func TestBackendsThatAreTerminated(t *testing.T) {
	t.Parallel()
	db := database(t)
	events := outlive(t, db, db.URL()+"&application_name=victim", func() {
		db.Superuser(
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim' AND datname = " +
				"current_database()",
		)
	})
	if !saidTerminated(events) {
		t.Errorf("nothing was told of it: %q", logs(events))
	}
}

// A terminated session interrupted the run. A statement that is sent to such a session fails before the server's reason
// is read.
func saidTerminated(events []store.Event) bool {
	const resumed = "continues after the last committed batch"
	return said(events, message.Warning, "57P01", resumed) || said(events, message.Warning, "broken pipe", resumed)
}

// The database is on a separate server.
func migrated(t *testing.T) (*pgtest.DB, *localpg.Server) {
	t.Helper()
	db, server := pgtest.Private(t)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := store.Migrate(t.Context(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
	return db, server
}

func TestServerThatRestarts(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, server := migrated(t)
	fast := false
	outlive(t, db, db.URL(), func() {
		fast = !fast
		if err := server.Restart(t.Context(), fast); err != nil {
			t.Fatal(err)
		}
		db.Reset()
	})
}

// The primary is lost during a run. The standby is read-only until it is promoted; then the run continues there. No
// event is lost, since commits of events wait for the standby. Commits of batches do not wait, so the last batches may
// be undone, with their counts, and are repeated.
func TestFailoverToAStandby(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, server := migrated(t)
	standby, err := server.Standby(t.Context())
	c := newCluster(t, db, server, standby, err)
	const rows = 1_500
	sessions(db, rows)
	release := holdLast(db, rows)
	m, work := c.replica(t, "a", func(config *runs.Config) { config.MaxRows = 1 })
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	watcher := spectate(t, m, run.ID, 0)
	work()
	promoted, err := pgxpool.New(t.Context(), standby.URL("postgres", "campaign"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(promoted.Close)
	waiting, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for left := rows; left == rows; time.Sleep(5 * time.Millisecond) {
		if err := promoted.QueryRow(waiting, "SELECT count(*) FROM XtkSessionInfo").Scan(&left); err != nil {
			t.Fatal(err)
		}
	}
	c.failOver()
	release()
	<-watcher.ended
	checkFinished(t, watcher.events, int64(rows))
	watcher.check(t, places(t, c.DB))
	if watcher.lost > 0 {
		t.Errorf("events were lost %d times", watcher.lost)
	}
	if left := c.Int("SELECT count(*) FROM XtkSessionInfo"); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

// A run waits while its database is read-only or refuses connections, and then continues.
func TestDatabaseThatIsNotThereForAWhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ begin, end string }{
		"read-only": {
			"ALTER DATABASE %s SET default_transaction_read_only = on",
			"ALTER DATABASE %s RESET default_transaction_read_only",
		},
		"too many connections": {"ALTER DATABASE %s CONNECTION LIMIT 0", "ALTER DATABASE %s CONNECTION LIMIT -1"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "read-only")
			t.Parallel()
			db := database(t)
			super, err := pgxpool.New(t.Context(), db.As("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(super.Close)
			events := outlive(t, db, db.URL()+"&application_name=victim", func() {
				for _, sql := range []string{
					fmt.Sprintf(c.begin, db.Name),
					"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim' AND " +
						"datname = current_database()",
					"SELECT pg_sleep(0.3)", // for some failed attempts
					fmt.Sprintf(c.end, db.Name),
				} {
					if _, err := super.Exec(t.Context(), sql); err != nil {
						t.Fatal(err)
					}
				}
			})
			if !saidTerminated(events) {
				t.Errorf("nothing was told of it: %q", logs(events))
			}
		})
	}
}

// A worker whose session turns read-only switches to another one.
func TestReadOnlySession(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 100)
	own := failing(db, "25006", 1, 1)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.Pool, c.MaxRows = own, 1 })
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	events := watch(t, m, run.ID)
	checkFinished(t, events, 100)
	if !said(events, message.Warning, "25006", "point --database-url at the primary server") {
		t.Errorf("nothing was told of it: %q", logs(events))
	}
}

// Every n-th deletion of a session fails with a SQLSTATE, for a number of times. The pool is for the worker: a trigger
// cannot raise an error that means that the database is unusable, so the statement fails.
func failing(db *pgtest.DB, state string, n, times int) *pgxpool.Pool {
	if sqlstate.Lost(&pgconn.PgError{Code: state}) {
		_, own := db.Inject(func(sql string) string {
			if times == 0 || !strings.Contains(sql, "DELETE FROM") || !strings.Contains(sql, "xtksessioninfo") {
				return ""
			}
			times--
			return state
		})
		return own
	}
	db.Do(
		fmt.Sprintf(
			`CREATE SEQUENCE tried; CREATE SEQUENCE failed; CREATE FUNCTION fail() RETURNS trigger
				LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('tried') %% %d = 0
			AND nextval('failed') <= %d THEN RAISE 'it does not go' USING ERRCODE = '%s'; END IF; RETURN OLD; END $$;
		CREATE TRIGGER fail BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION fail()`,
			n,
			times,
			state,
		),
	)
	return db.Pool
}

// After a transient error, a batch is retried, which is reported. The counts are exact.
func TestErrorsThatPass(t *testing.T) {
	t.Parallel()
	for state, told := range map[string]string{
		"40001": "at most 8 attempts", "40P01": "at most 8 attempts", "55P03": "at most 3 attempts",
		"53100": "make room there", "53200": "out of memory", "57014": "batch hit the statement timeout",
	} {
		t.Run(state, func(t *testing.T) {
			suite.Except(t, suite.Long, "40001", "53100", "57014")
			t.Parallel()
			db := database(t)
			sessions(db, 100)
			own := failing(db, state, 30, 3)
			m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.Pool, c.MaxRows = own, 10 })
			run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
			work()
			events := watch(t, m, run.ID)
			checkFinished(t, events, 100)
			if !said(events, message.Warning, told) {
				t.Errorf("nothing was told of it: %q", logs(events))
			}
			if purge.MaxAttempts[state] > 0 && measured(t, m, "cleanupd_retries_total", state) != 3 {
				t.Errorf("%v tries are measured", measured(t, m, "cleanupd_retries_total", state))
			}
		})
	}
}

// A persistent error fails the task, and says what to do. The next tasks run only with continue_on_error.
func TestErrorsThatDoNotPass(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for state, c := range map[string]struct {
		advice string
		cause  store.Cause
	}{
		"40P01": {"run the cleanup at a quieter hour", store.CauseInternal},
		"57014": {"look for a slow trigger", store.CauseInternal},
		"53200": {"given up after 11 failed attempts without progress", store.CauseUnavailable},
		"P0001": {"a trigger or function of the application refuses", store.CauseInternal},
		"23503": {"rows of another table refer to these", store.CauseInternal},
	} {
		for _, goOn := range []bool{false, true} {
			t.Run(fmt.Sprint(state, " ", goOn), func(t *testing.T) {
				suite.Except(t, suite.Long, "40P01 false", "53200 true", "P0001 false")
				t.Parallel()
				db := database(t)
				sessions(db, 100)
				own := failing(db, state, 1, 1_000_000)
				db.Do(
					"INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01'); INSERT INTO " +
						"NmsRemaHypothesis (iRemaHypothesisId) VALUES (1)",
				)
				m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.Pool = own })
				run := start(t, m,
					runs.Request{Tasks: []string{"audit-trail", "sessions", "reactions"}, ContinueOnError: goOn})
				work()
				events := watch(t, m, run.ID)
				last := events[len(events)-1].Run
				problem := last.Result("sessions").Error
				if last.State != store.Failed || last.Cause != c.cause ||
					last.Result("sessions").State != cleanup.Failed ||
					!strings.Contains(problem, c.advice) ||
					!strings.Contains(problem, state) ||
					!strings.Contains(last.Error, problem) ||
					last.Result("audit-trail").RowsDeleted != 1 {
					t.Errorf("the run: %+v", last)
				}
				after := map[bool]cleanup.State{false: cleanup.NotRun, true: cleanup.Succeeded}[goOn]
				if got := last.Result("reactions"); got.State != after {
					t.Errorf("the task after it: %+v", got)
				}
				if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left != 100 ||
					last.Result("sessions").RowsDeleted != 0 {
					t.Errorf("%d rows are left; %+v", left, last.Result("sessions"))
				}
			})
		}
	}
}

// A query that waits for a lock that is never released is retried, and then fails the task.
func TestTableThatStaysLocked(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Hold("LOCK TABLE NmsDelivery")
	own := pool(t, db.URL())
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.Pool = own })
	run := start(t, m, runs.Request{Tasks: []string{"mirror-pages"}})
	work()
	events := watch(t, m, run.ID)
	if got := events[len(events)-1].Run; got.State != store.Failed ||
		!strings.Contains(got.Error, "look for it in pg_locks") ||
		!said(events, message.Warning, "55P03", "at most 3 attempts") {
		t.Errorf("%+v; %q", got, logs(events))
	}
}

// A run that keeps retrying stops after the current attempt, even if it is a dry run.
func TestCancelOfARunThatTriesAgain(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for _, isDry := range []bool{true, false} {
		db := database(t)
		sessions(db, 10)
		db.Hold("LOCK TABLE XtkSessionInfo")
		own := pool(t, db.URL())
		m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.Pool = own })
		run := start(t, m, runs.Request{Tasks: []string{"sessions"}, DryRun: isDry})
		work()
		db.Until("SELECT count(*) FROM cleanupd.event WHERE body->>'Message' LIKE '%at most 3 attempts%'")
		if _, err := m.Cancel(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
		events := watch(t, m, run.ID)
		if got := events[len(events)-1].Run; got.State != store.Cancelled ||
			said(events, message.Warning, "still failing after retries") {
			t.Errorf("dry run: %t: %+v; %q", isDry, got, logs(events))
		}
	}
}

// tenFailedAttempts makes the run look as if ten replicas had died of it.
func tenFailedAttempts(db *pgtest.DB) {
	db.Do(
		"UPDATE cleanupd.run SET state = 'RUNNING', start_time = now(), reference_time = now(), replica = 'x', " +
			"lease_until = now(), failed_attempts = 10, progress_hash = (SELECT md5(string_agg(concat_ws(' ', state, " +
			"rows_deleted, rows_updated, tables_dropped, partitions_removed, rows_restored, cursor), ',' ORDER BY position)) " +
			"FROM cleanupd.task)",
	)
}

// Replicas that are killed again and again without progress do not keep a run active forever.
func TestARunThatKillsItsReplicas(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", nil)
	run := start(t, m, runs.Request{Tasks: []string{"sessions", "expired-events"}, ContinueOnError: true})
	tenFailedAttempts(db)
	work()
	events := watch(t, m, run.ID)
	got := events[len(events)-1].Run
	if problem := got.Result("sessions").Error; got.State != store.Failed || !strings.Contains(
		problem, "given up after 11 failed attempts",
	) || !strings.Contains(problem, "replica x stopped renewing its lease") ||
		(got.Result("expired-events").State != cleanup.Skipped &&
			got.Result("expired-events").State != cleanup.Succeeded) ||
		db.Int("SELECT count(*) FROM XtkSessionInfo") != 10 {
		t.Errorf("%+v", got)
	}
}

// A run that continues after a task was given up, and is then cancelled, ends as cancelled.
func TestARunThatIsGivenUpAndCancelled(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do(
		`INSERT INTO NmsRemaHypothesis (iRemaHypothesisId) VALUES (7); INSERT INTO NmsRemaMatchRcp (iHypothesisId)
			SELECT generate_series(1001, 2000);
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RETURN OLD; END';
		CREATE TRIGGER slow BEFORE DELETE ON NmsRemaMatchRcp FOR EACH ROW EXECUTE FUNCTION slow()`,
	)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 1 })
	run := start(t, m, runs.Request{Tasks: []string{"sessions", "reactions"}, ContinueOnError: true})
	tenFailedAttempts(db)
	work()
	db.Until("SELECT count(*) FROM cleanupd.task WHERE state = 'FAILED'")
	if _, err := m.Cancel(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	events := watch(t, m, run.ID)
	if got := events[len(events)-1].Run; got.State != store.Cancelled || got.Cause != store.CauseCancelled ||
		got.Result("sessions").State != cleanup.Failed {
		t.Errorf("%s, %s", got.State, got.Cause)
	}
}

// A dry run that fails at the same point again and again ends, though it counts rows in each attempt.
func TestDryRunWithoutProgress(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 100)
	m, work, _ := replica(t, db, "a", nil)
	db.Do(
		`CREATE FUNCTION never() RETURNS trigger
			LANGUAGE plpgsql AS $$ BEGIN RAISE 'no memory' USING ERRCODE = '53200'; END $$;
		CREATE TRIGGER never BEFORE UPDATE ON cleanupd.task FOR EACH ROW WHEN (NEW.name = 'sessions'
			AND NEW.state = 'SUCCEEDED') EXECUTE FUNCTION never()`,
	)
	run := start(t, m, runs.Request{Tasks: []string{"audit-trail", "sessions"}, DryRun: true})
	work()
	events := watch(t, m, run.ID)
	if got := events[len(events)-1].Run; got.State != store.Failed ||
		!strings.Contains(got.Result("sessions").Error, "given up after 11 failed attempts without progress") ||
		got.Result("audit-trail").State != cleanup.Succeeded {
		t.Errorf("%+v", got)
	}
}
