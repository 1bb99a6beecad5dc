package runs_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

func named(name string) func(*runs.Config) {
	return func(c *runs.Config) { c.Instance, c.KeepSchedule = name, true }
}

func isForeign(err error) bool {
	var refused *failure.Refusal
	return errors.As(err, &refused) && refused.Reason == store.OtherInstance && refused.Metadata["differs"] != ""
}

// In a database that belongs to another instance, or that is a copy, no run is started or claimed, and nothing is set,
// but dry runs are executed. Once it is adopted, it is cleaned.
func TestAnotherInstance(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string]string{
		"another name":         "UPDATE cleanupd.instance SET name = 'production'",
		"a restored copy":      "UPDATE cleanupd.instance SET system_identifier = '42'",
		"a copy on one server": "UPDATE cleanupd.instance SET database_oid = 42",
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "a restored copy")
			t.Parallel()
			db := database(t)
			sessions(db, 10)
			first, _, _ := replica(t, db, "first", named("test"))
			waits := start(t, first, runs.Request{Tasks: []string{"sessions"}}) // no replica executes it
			db.Do(changes)
			db.Do(
				"INSERT INTO cleanupd.schedule (cron, time_zone, enabled, next_run_time) VALUES ('0 4 * * *', 'UTC', " +
					"true, now() - interval '1 minute')",
			)
			var claims atomic.Int64
			own := traced(t, db.URL(), onClaim(func() { claims.Add(1) }))
			m, work, _ := replica(t, db, "second", func(c *runs.Config) { named("test")(c); c.Pool = own })
			work()
			if _, err := m.Start(t.Context(), runs.Request{}); !isForeign(err) {
				t.Errorf("a run is started: %v", err)
			}
			if _, err := replaceSchedule(t, m, schedule.Schedule{Enabled: true}); !isForeign(err) {
				t.Errorf("the schedule is set: %v", err)
			}
			dry := start(t, m, runs.Request{DryRun: true, Tasks: []string{"sessions"}})
			if events := watch(t, m, dry.ID); events[len(events)-1].Run.State != store.Succeeded {
				t.Error("a dry run does not succeed")
			}
			for seen := claims.Load(); claims.Load() < seen+2; time.Sleep(5 * time.Millisecond) {
			}
			if run, err := m.Get(t.Context(), waits.ID); err != nil || run.State != store.Queued {
				t.Errorf("the run that waits: %+v, %v", run, err)
			}
			if n := db.Int("SELECT count(*) FROM XtkSessionInfo"); n != 10 {
				t.Errorf("%d rows are left", n)
			}
			if n := db.Int("SELECT count(*) FROM cleanupd.run WHERE NOT dry_run"); n != 1 {
				t.Errorf("there are %d runs", n)
			}
			if err := m.Adopt(t.Context()); err != nil {
				t.Fatal(err)
			}
			run, err := m.Get(t.Context(), waits.ID)
			if err != nil || run.State != store.Cancelled || !strings.Contains(run.Error, "adopted") {
				t.Errorf("the run that waited: %+v, %v", run, err)
			}
			if s := readSchedule(t, m); s.Enabled {
				t.Error("the schedule is enabled")
			}
			run = start(t, m, runs.Request{Tasks: []string{"sessions"}})
			if events := watch(t, m, run.ID); events[len(events)-1].Run.State != store.Succeeded ||
				db.Int("SELECT count(*) FROM XtkSessionInfo") != 0 {
				t.Error("an adopted database is not cleaned")
			}
		})
	}
}

// A scheduled run that waited for another one when the database was copied does not begin when a run ends on the copy.
func TestAScheduledRunThatWaitedOnACopy(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do("INSERT INTO cleanupd.instance (name, system_identifier, database_oid) VALUES ('test', '42', 42)")
	db.Do(
		"INSERT INTO cleanupd.schedule (cron, time_zone, enabled, next_run_time, pending) VALUES ('0 4 * * *', " +
			"'UTC', true, now() + interval '1 hour', true)",
	)
	m, work, _ := replica(t, db, "a", named("test"))
	work()
	watch(t, m, start(t, m, runs.Request{DryRun: true, Tasks: []string{"sessions"}}).ID)
	if n := db.Int("SELECT count(*) FROM cleanupd.run WHERE NOT dry_run"); n != 0 {
		t.Errorf("%d runs were started", n)
	}
}

// A run that was claimed in the original database is not resumed in a copy that takes its place.
func TestACopyInPlace(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", named("test"))
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	db.Do(
		"UPDATE cleanupd.run SET state = 'RUNNING', start_time = now(), reference_time = now(), lease_until = now() " +
			"- interval '1 s', replica = 'gone', epoch = 1",
	)
	db.Do("UPDATE cleanupd.instance SET system_identifier = '42'")
	work()
	// the dry run is claimed, and the older run is passed over
	watch(t, m, start(t, m, runs.Request{DryRun: true, Tasks: []string{"sessions"}}).ID)
	if got, err := m.Get(t.Context(), run.ID); err != nil || got.State != store.Running ||
		db.Int("SELECT count(*) FROM XtkSessionInfo") != 10 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A metric says whether the application's own cleanup workflow is started.
func TestTheApplicationsOwnCleanup(t *testing.T) {
	t.Parallel()
	for state, want := range map[int]float64{11: 1, 20: 0} {
		db := database(t)
		db.Do("INSERT INTO XtkWorkflow (iWorkflowId, sInternalName, iState) VALUES (7, 'cleanup', $1)", state)
		m, _, _ := replica(t, db, "a", nil)
		if n := measured(t, m, "cleanupd_application_cleanup_started", ""); n != want {
			t.Errorf("in state %d %v is measured", state, n)
		}
	}
}

// A run that is requested while another instance adopts the database ends as CANCELLED, like the active runs.
func TestAdoptDuringARequest(t *testing.T) {
	t.Parallel()
	db := database(t)
	first, _, _ := replica(t, db, "first", named("first"))
	second, _, _ := replica(t, db, "second", named("second"))
	if err := first.Own(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	db.Do(
		`CREATE FUNCTION wait() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END';
		CREATE TRIGGER wait BEFORE INSERT ON cleanupd.run FOR EACH ROW EXECUTE FUNCTION wait()`,
	)
	lock := db.Hold("SELECT pg_advisory_xact_lock(1)")
	started, adopted := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := first.Start(t.Context(), runs.Request{Tasks: []string{"sessions"}})
		started <- err
	}()
	waiting := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	db.Until("SELECT (n = 1)::int FROM (" + waiting + ") AS w (n)")
	go func() { adopted <- second.Adopt(t.Context()) }()
	db.Until("SELECT (n = 2 OR EXISTS (SELECT FROM cleanupd.instance WHERE name = 'second'))::int FROM (" + waiting +
		") AS w (n)")
	_ = lock.Rollback(t.Context())
	if err := errors.Join(<-started, <-adopted); err != nil {
		t.Fatal(err)
	}
	if states := db.Strings("SELECT state FROM cleanupd.run"); len(states) != 1 ||
		states[0] != string(store.Cancelled) {
		t.Errorf("the run is %q", states)
	}
	if _, err := first.Start(t.Context(), runs.Request{Tasks: []string{"sessions"}}); !isForeign(err) {
		t.Errorf("another run: %v", err)
	}
}
