package runs_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// All sessions are expired.
func sessions(db *pgtest.DB, n int) {
	db.Do("INSERT INTO XtkSessionInfo SELECT i::text, 'x', '2000-01-01' FROM generate_series(1, $1::int) i", n)
}

// The run has deleted something, but has not ended.
func untilDeleting(t *testing.T, db *pgtest.DB, id string) {
	t.Helper()
	db.Until("SELECT COALESCE(sum(rows_deleted), 0)::bigint FROM cleanupd.task WHERE run_id = $1::text::uuid", id)
}

// A replica that stops hands its run over after the current batch; another continues, and the counts are exact.
func TestAStoppingReplicaHandsItsRunOver(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 3_000)
	single := func(c *runs.Config) { c.MaxRows = 1; c.Lease = time.Hour } // stopping releases the lease
	a, workA, stopA := replica(t, db, "a", single)
	b, workB, _ := replica(t, db, "b", func(c *runs.Config) { c.Lease = time.Hour })
	run := start(t, a, runs.Request{Tasks: []string{"sessions", "audit-trail"}})
	workA()
	untilDeleting(t, db, run.ID)
	stopA()
	if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left == 0 {
		t.Fatal("the first replica was through before it was stopped")
	}
	workB()
	events := watch(t, b, run.ID)
	checkFinished(t, events, 3_000)
	began := 0
	for _, e := range events {
		if e.Kind == store.TaskStarted && e.Task == "sessions" {
			began++
		}
	}
	if began != 1 {
		t.Errorf("task_started of sessions came %d times", began)
	}
}

func checkFinished(t *testing.T, events []store.Event, deleted int64) {
	t.Helper()
	last := events[len(events)-1]
	if last.Kind != store.RunFinished || last.Run.State != store.Succeeded {
		t.Fatalf("the last event is %s, the run %+v", last.Kind, last.Run)
	}
	var total int64
	for _, r := range last.Run.Results {
		total += r.RowsDeleted
	}
	if total != deleted {
		t.Errorf("%d rows are accounted for, want %d", total, deleted)
	}
}

// A replica that has lost its run is fenced at its next batch: it deletes and counts nothing more.
func TestASilentReplicaIsFenced(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 5_000)
	a, workA, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 1; c.Lease = time.Hour })
	b, workB, _ := replica(t, db, "b", nil)
	run := start(t, a, runs.Request{Tasks: []string{"sessions"}})
	workA()
	untilDeleting(t, db, run.ID)
	// as if it had not been renewed
	db.Do("UPDATE cleanupd.run SET lease_until = clock_timestamp() - interval '1 hour'")
	workB()
	events := watch(t, b, run.ID)
	checkFinished(t, events, 5_000)
	if !said(events, message.Warning, "replica a stopped renewing its lease", "replica b continues") {
		t.Errorf("nobody took it over: %q", logs(events))
	}
}

// A replica takes three seconds for a thousand rows.
func slowly(config *runs.Config) {
	config.MaxRows, config.Limits = 1, purge.Limits{RowsPerSecond: 300}
}

// A worker whose connections lead to another server, without one having been lost during a statement, does not continue
// from its work on the old server. It resumes the run from the stored state.
func TestAWorkerOnAnotherServer(t *testing.T) {
	t.Parallel()
	rows := suite.Size(suite.Long, 100, 1_000)
	db := database(t)
	sessions(db, rows)
	release := holdLast(db, rows)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) {
		slowly(c)
		c.Lease = 5 * time.Second // a busy server must not lose it for another reason
	})
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	untilDeleting(t, db, run.ID)
	db.Do("UPDATE cleanupd.run SET server_start = server_start - interval '1 second'")
	release()
	events := watch(t, m, run.ID)
	checkFinished(t, events, int64(rows))
	if !said(
		events, message.Warning, "the database server was restarted or replaced",
		"replica a continues after the last committed batch",
	) {
		t.Errorf("nothing was told of it: %q", logs(events))
	}
	if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

// Every watcher on every replica sees every event once and in order, live or late.
func TestWatchers(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, suite.Size(suite.Long, 100, 500))
	a, work, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 1 })
	b, _, _ := replica(t, db, "b", nil)
	run := start(t, a, runs.Request{Tasks: []string{"deliveries", "visitors", "sessions", "reactions"}})
	work()
	db.Until("SELECT count(*) FROM cleanupd.event WHERE sequence = 2") // so that some watchers begin later
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		seen  [][]int64
		kinds []store.Kind
	)
	for i := range 20 {
		wg.Go(func() {
			var sequences []int64
			m := []*runs.Manager{a, b}[i%2]
			if _, err := m.Watch(t.Context(), run.ID, store.Place{Sequence: int64(i % 3)}, func(e store.Event) error {
				sequences = append(sequences, e.Sequence)
				return nil
			}); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, sequences[3-i%3:])
		})
	}
	wg.Wait()
	for _, e := range watch(t, b, run.ID) {
		kinds = append(kinds, e.Kind)
	}
	for _, s := range seen {
		if len(s) != len(kinds)-3 || s[0] != 4 || !slices.IsSorted(s) {
			t.Errorf("a watcher saw %d events from %d on, of %d", len(s), s[0], len(kinds))
		}
	}
	if kinds[0] != store.RunStarted || kinds[1] != store.TaskStarted {
		t.Errorf("the run begins with %v", kinds[:2])
	}
}

// The run already has more events than the ring holds.
func startLong(t *testing.T, db *pgtest.DB, m *runs.Manager) *store.Run {
	t.Helper()
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	db.Do(
		`INSERT INTO cleanupd.event (run_id, sequence, body) SELECT id, i, '{"Kind": "log"}'
			FROM cleanupd.run, generate_series(1, 3000) i`,
	)
	db.Do("UPDATE cleanupd.run SET last_sequence = 3000")
	return run
}

// A slow watcher falls behind the ring and reads pages.
func TestAWatcherThatFellBehind(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	run := startLong(t, db, m)
	reached := make(chan struct{})
	done := make(chan []store.Event, 1)
	go func() {
		var events []store.Event
		_, err := m.Watch(t.Context(), run.ID, store.Place{}, func(e store.Event) error {
			if e.Sequence == 1 {
				<-reached // until the ring is far ahead
			}
			events = append(events, e)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		done <- events
	}()
	work()
	fast := watch(t, m, run.ID)
	close(reached)
	if slow := <-done; len(slow) != len(fast) || slow[len(slow)-1].Kind != store.RunFinished {
		t.Errorf("the slow watcher saw %d events, the fast one %d", len(slow), len(fast))
	}
}

// Of many concurrent starts exactly one succeeds; right after the run's end the next can start.
func TestOneActiveRun(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		started []string
	)
	for range 8 {
		wg.Go(func() {
			run, err := m.Start(t.Context(), runs.Request{Tasks: []string{"sessions"}})
			var active *store.ActiveError
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				started = append(started, run.ID)
			case !errors.As(err, &active):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(started) != 1 {
		t.Fatalf("%d runs were started", len(started))
	}
	work()
	for range 3 {
		if _, err := m.Watch(t.Context(), started[0], store.Place{}, func(e store.Event) error {
			if e.Kind == store.RunFinished { // a watcher that sees it can start another one at once
				started[0] = start(t, m, runs.Request{Tasks: []string{"sessions"}}).ID
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDryRunsBesideARun(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", nil)
	start(t, m, runs.Request{Tasks: []string{"sessions"}})
	first := start(t, m, runs.Request{DryRun: true})
	start(t, m, runs.Request{DryRun: true})
	if _, err := m.Start(t.Context(), runs.Request{DryRun: true}); !errors.Is(err, runs.ErrTooManyDryRuns) {
		t.Errorf("a third dry run: %v", err)
	}
	if _, err := m.Cancel(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	start(t, m, runs.Request{DryRun: true})
	work()
	events := watch(t, m, first.ID)
	if len(events) != 1 || events[0].Run.State != store.Cancelled ||
		events[0].Run.Result("sessions").State != cleanup.NotRun {
		t.Errorf("a run that was cancelled before it began has the events %+v", events)
	}
}

// All viewers together may have one dry run active, which leaves one for other callers. Others may have two.
func TestDryRunsOfViewers(t *testing.T) {
	t.Parallel()
	m, _, _ := replica(t, database(t), "a", nil)
	viewers, others := runs.Request{DryRun: true, ByViewer: true}, runs.Request{DryRun: true}
	var ids []string
	for i, c := range []struct {
		request runs.Request
		refused bool
	}{{viewers, false}, {viewers, true}, {others, false}, {others, true}} {
		run, err := m.Start(t.Context(), c.request)
		if errors.Is(err, runs.ErrTooManyDryRuns) != c.refused || (err != nil && !c.refused) {
			t.Fatalf("dry run %d: %v", i, err)
		}
		if err == nil {
			ids = append(ids, run.ID)
		}
	}
	for _, id := range ids {
		if _, err := m.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	start(t, m, others)
	start(t, m, viewers)
	if _, err := m.Start(t.Context(), others); !errors.Is(err, runs.ErrTooManyDryRuns) {
		t.Errorf("a third dry run: %v", err)
	}
}

// A cancellation ends a run whose replica is gone.
func TestCancelOfAnAbandonedRun(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, _, _ := replica(t, db, "a", nil)
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	db.Do("UPDATE cleanupd.run SET state = 'RUNNING', start_time = now(), lease_until = now() - interval '1 s'")
	db.Do("UPDATE cleanupd.task SET state = 'RUNNING' WHERE name = 'sessions'")
	got, err := m.Cancel(t.Context(), run.ID)
	if err != nil || got.State != store.Cancelled || got.Result("sessions").State != cleanup.Cancelled {
		t.Fatalf("%+v, %v", got, err)
	}
	events := watch(t, m, run.ID)
	if len(events) != 2 || events[0].Kind != store.TaskFinished {
		t.Errorf("events: %+v", events)
	}
}

func TestCancelStopsAfterTheBatch(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 20_000)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 1 })
	run := start(t, m, runs.Request{Tasks: []string{"sessions", "reactions"}})
	work()
	untilDeleting(t, db, run.ID)
	if _, err := m.Cancel(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	events := watch(t, m, run.ID)
	got := events[len(events)-1].Run
	gone := 20_000 - db.Int("SELECT count(*) FROM XtkSessionInfo")
	if got.State != store.Cancelled || got.Result("sessions").State != cleanup.Cancelled ||
		got.Result("reactions").State != cleanup.NotRun ||
		got.Result("sessions").RowsDeleted != gone ||
		got.Result("sessions").Batches != gone {
		t.Errorf("%d rows went; the run: %+v", gone, got)
	}
}

// A run that takes long to end is not claimed meanwhile, since the replicas would undo each other's work.
func TestARunThatIsEnding(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 20_000)
	a, workA, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 1 })
	_, workB, _ := replica(t, db, "b", nil)
	run := start(t, a, runs.Request{Tasks: []string{"sessions", "reactions"}})
	workA()
	untilDeleting(t, db, run.ID)
	holder := db.Hold("SELECT FROM cleanupd.task WHERE name = 'reactions' FOR UPDATE")
	if _, err := a.Cancel(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	workB()
	db.Until("SELECT count(*) FROM cleanupd.run WHERE lease_until < clock_timestamp() - interval '4 seconds'")
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	events := watch(t, a, run.ID)
	if last := events[len(events)-1].Run; last.State != store.Cancelled ||
		db.Int("SELECT count(DISTINCT generation) FROM cleanupd.event") != 1 {
		t.Errorf("it was taken more than once: %+v; %q", last, logs(events))
	}
}

// A run has at least one progress event a second, and never more than four, however long batches take.
func TestProgressIsThinned(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 200)
	db.Do(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.015); RETURN OLD; END';
		CREATE TRIGGER slow BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION slow()`)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 1 })
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	var told []time.Time
	for _, e := range watch(t, m, run.ID) {
		if e.Kind == store.TaskProgress {
			told = append(told, e.Time)
		}
	}
	if len(told) < 3 {
		t.Fatalf("%d progress events in three seconds", len(told))
	}
	// A busy server may store an event later than it happened, so that single intervals say nothing.
	if took := told[len(told)-1].Sub(told[0]); len(told) > int(4*took.Seconds())+2 {
		t.Errorf("%d progress events within %s", len(told), took)
	}
}

func TestMigrateIsNeverDoneTwice(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			conn, err := db.Acquire(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Release()
			if err := store.Migrate(context.Background(), conn.Conn()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	files, err := filepath.Glob("store/migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	if v := db.Int("SELECT version FROM cleanupd.schema_version"); v != int64(len(files)) {
		t.Errorf("the schema is at version %d of %d", v, len(files))
	}
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	db.Do("UPDATE cleanupd.schema_version SET version = 99, oldest = 1")
	if err := store.Migrate(t.Context(), conn.Conn()); err != nil {
		t.Errorf("a newer schema that lacks nothing: %v", err)
	}
	db.Do("UPDATE cleanupd.schema_version SET oldest = 98")
	if err := store.Migrate(t.Context(), conn.Conn()); err == nil ||
		!strings.Contains(err.Error(), "which takes a program for version 98 or later") {
		t.Errorf("a newer schema that lacks something: %v", err)
	}
}

// A run with a task that only a newer version knows is left to a replica of that version.
func TestARunOfANewerVersion(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", nil)
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	db.Do("UPDATE cleanupd.task SET name = 'archive', chosen = true WHERE name = 'statistics' AND run_id::text = $1",
		run.ID)
	later := start(t, m, runs.Request{Tasks: []string{"sessions"}, DryRun: true})
	work()
	watch(t, m, later.ID) // runs are taken in the order of their creation
	if got, err := m.Get(t.Context(), run.ID); err != nil || got.State != store.Queued {
		t.Errorf("the run: %+v, %v", got, err)
	}
	db.Do("UPDATE cleanupd.task SET name = 'statistics' WHERE name = 'archive'")
	if events := watch(t, m, run.ID); events[len(events)-1].Run.State != store.Succeeded {
		t.Errorf("the run: %+v", events[len(events)-1].Run)
	}
}

// If a replica dies between a task's failure and the run's end, nothing is left to execute: the next replica ends the
// run.
func TestAFailedRunIsEndedByTheNextReplica(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", nil)
	run := start(t, m, runs.Request{Tasks: []string{"visitors", "sessions"}})
	db.Do("UPDATE cleanupd.run SET state = 'RUNNING', start_time = now(), reference_time = now(), lease_until = now()")
	db.Do("UPDATE cleanupd.task SET state = 'FAILED', error = 'no' WHERE name = 'visitors'")
	work()
	events := watch(t, m, run.ID)
	got := events[len(events)-1].Run
	if got.State != store.Failed || got.Error != "task visitors failed: no" ||
		got.Result("sessions").State != cleanup.NotRun ||
		db.Int("SELECT count(*) FROM XtkSessionInfo") != 10 {
		t.Errorf("the run: %+v", got)
	}
}

// Two workers share a large table, even if the run is taken over midway. The counts are exact.
func TestWorkersOnALargeTable(t *testing.T) {
	t.Parallel()
	db := database(t)
	const rows = 20_000 // two per block: 80 MiB
	db.Do("ALTER TABLE XtkSessionInfo ADD filler text; ALTER TABLE XtkSessionInfo ALTER filler SET STORAGE PLAIN")
	db.Do(
		"INSERT INTO XtkSessionInfo SELECT i::text, 'x', '2000-01-01', repeat('y', 3900) FROM generate_series(1, "+
			"$1::int) i",
		rows,
	)
	a, workA, stopA := replica(t, db, "a", func(c *runs.Config) { c.MaxRows, c.Workers = 20, 2 })
	b, workB, _ := replica(t, db, "b", func(c *runs.Config) { c.Workers = 2 })
	run := start(t, a, runs.Request{Tasks: []string{"sessions"}})
	workA()
	untilDeleting(t, db, run.ID)
	stopA()
	if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left == 0 {
		t.Fatal("the first replica was through before it was stopped")
	}
	workB()
	events := watch(t, b, run.ID)
	checkFinished(t, events, rows)
	if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}
