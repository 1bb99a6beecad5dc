package runs_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// 1 if no session of the database, except the one that asks, has a transaction, a snapshot or a lock.
const unused = `SELECT CASE WHEN EXISTS (SELECT FROM pg_stat_activity AS a WHERE datname = current_database()
	AND pid <> pg_backend_pid() AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL
		OR EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid))) THEN 0 ELSE 1 END`

func pause(t *testing.T, m *runs.Manager, id string) *store.Run {
	t.Helper()
	run, err := m.Pause(t.Context(), id, "ann")
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func resume(t *testing.T, m *runs.Manager, id string) *store.Run {
	t.Helper()
	run, err := m.Resume(t.Context(), id, "ben")
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// A paused run remains the active run, and has no transaction, lock or snapshot. Any replica can resume it, also after
// the one that paused it has gone.
func TestPause(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 300)
	release := holdLast(db, 300)
	single := func(c *runs.Config) { c.MaxRows = 1; c.Lease = time.Hour }
	a, workA, stopA := replica(t, db, "a", single)
	b, workB, _ := replica(t, db, "b", single)
	run := start(t, a, runs.Request{Tasks: []string{"sessions", "audit-trail"}})
	workA()
	untilDeleting(t, db, run.ID)
	if got := pause(t, b, run.ID); got.State != store.Paused || got.PausedBy != "ann" || got.PauseTime == nil {
		t.Errorf("paused: %s by %q since %v", got.State, got.PausedBy, got.PauseTime)
	}
	rest := db.Int("SELECT count(*) FROM XtkSessionInfo")
	if rest == 0 {
		t.Fatal("the run had deleted everything before it was paused")
	}
	db.Until(unused) // replicas also look for runs now and then
	if again := pause(t, a, run.ID); again.State != store.Paused {
		t.Errorf("a second pause: %s", again.State)
	}
	if _, err := b.Start(t.Context(), runs.Request{Tasks: []string{"sessions"}}); !isActive(err, run.ID) {
		t.Errorf("a second run: %v", err)
	}
	stopA()
	workB()
	db.Until("SELECT count(*) FROM cleanupd.replica WHERE name = 'b'") // the replica has looked for runs
	if now := db.Int("SELECT count(*) FROM XtkSessionInfo"); now != rest {
		t.Errorf("%d rows were deleted during the pause", rest-now)
	}
	if got := resume(t, b, run.ID); got.State != store.Running || got.PauseTime != nil || got.PausedBy != "" {
		t.Errorf("resumed: %s, paused by %q since %v", got.State, got.PausedBy, got.PauseTime)
	}
	release()
	events := watch(t, b, run.ID)
	checkFinished(t, events, 300)
	for _, text := range []string{"paused by ann", "resumed by ben"} {
		if !said(events, message.Info, text) {
			t.Errorf("%q is not in the log: %q", text, logs(events))
		}
	}
	if _, err := b.Pause(t.Context(), run.ID, "ann"); err == nil {
		t.Error("a run that has ended was paused")
	}
}

func isActive(err error, id string) bool {
	active := (*store.ActiveError)(nil)
	return errors.As(err, &active) && active.RunID == id
}

// A run that is paused before a replica has claimed it waits.
func TestPauseOfAQueuedRun(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", nil)
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	pause(t, m, run.ID)
	work()
	db.Until("SELECT count(*) FROM cleanupd.replica WHERE name = 'a'")
	if got := resume(t, m, run.ID); got.State != store.Queued || got.StartTime != nil {
		t.Errorf("resumed: %s, started at %v", got.State, got.StartTime)
	}
	checkFinished(t, watch(t, m, run.ID), 10)
}

// A long statement is interrupted when its run is paused, and executed again when the run is resumed.
func TestPauseInterruptsALongStatement(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 3)
	release := holdLast(db, 2)
	m, work, _ := replica(t, db, "a", nil)
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	work()
	db.Until("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'")
	if got := pause(t, m, run.ID); got.State != store.Paused {
		t.Errorf("it is %s", got.State)
	}
	db.Until(unused)
	release()
	resume(t, m, run.ID)
	checkFinished(t, watch(t, m, run.ID), 3)
}

// longer makes a run, and its pause, begin two hours earlier.
const longer = "UPDATE cleanupd.run SET pause_time = pause_time - interval '2 hours', " +
	"start_time = start_time - interval '2 hours'"

// A paused run can be cancelled, and ends after the longest pause, and at its time limit unless pauses stop its clock.
func TestEndOfAPausedRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		request runs.Request
		cancel  bool
		want    string // the error of the run; "" if it is still paused
	}{
		"cancelled":         {cancel: true, want: store.StopCancelled},
		"the longest pause": {want: "paused for longer than --max-pause (1h30m0s)"},
		"the time limit":    {request: runs.Request{MaxDuration: time.Hour}, want: store.StopMaxDuration},
		"the clock is stopped": {
			request: runs.Request{MaxDuration: 110 * time.Minute, PauseStopsClock: true},
			want:    "paused for longer than --max-pause (1h30m0s)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			sessions(db, 1_000)
			m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxRows, c.MaxPause = 1, 90*time.Minute })
			test.request.Tasks = []string{"sessions"}
			run := start(t, m, test.request)
			work()
			untilDeleting(t, db, run.ID)
			pause(t, m, run.ID)
			if test.cancel {
				if _, err := m.Cancel(t.Context(), run.ID); err != nil {
					t.Fatal(err)
				}
			} else {
				db.Do(longer)
			}
			events := watch(t, m, run.ID)
			last := events[len(events)-1].Run
			if last.State != store.Cancelled || last.Error != test.want {
				t.Errorf("%s: %s, want %s", last.State, last.Error, test.want)
			}
			if last.PauseTime != nil || last.PausedBy != "" {
				t.Errorf("it has ended, and is paused by %q since %v", last.PausedBy, last.PauseTime)
			}
			deleted := 1_000 - db.Int("SELECT count(*) FROM XtkSessionInfo")
			if counted := last.Result("sessions").RowsDeleted; counted != deleted {
				t.Errorf("%d rows were counted, %d deleted", counted, deleted)
			}
		})
	}
}

// A task that a pause interrupts records the length of the pause, whether its run is resumed or ends, so that forecasts
// use the time in which the task worked.
func TestPausesOfTasks(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]time.Duration{"continued": 0, "ended": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			sessions(db, 1_000)
			m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 10 })
			run := start(t, m, runs.Request{Tasks: []string{"sessions", "audit-trail"}, MaxDuration: limit})
			work()
			untilDeleting(t, db, run.ID)
			pause(t, m, run.ID)
			db.Until(unused)
			db.Do("UPDATE cleanupd.task SET start_time = start_time - interval '4 hours' WHERE state = 'RUNNING'")
			db.Do(strings.ReplaceAll(longer, "2 hours", "4 hours"))
			if limit == 0 {
				resume(t, m, run.ID)
			}
			watch(t, m, run.ID)
			const worked = "SELECT count(*) FROM cleanupd.task WHERE name = 'sessions' AND paused_for > interval '4 hours' " +
				"AND end_time - start_time - paused_for BETWEEN interval '0' AND interval '1 hour'"
			if db.Int(worked) != 1 {
				t.Errorf("the pauses of tasks are %q",
					db.Strings("SELECT name || ' ' || paused_for FROM cleanupd.task"))
			}
			if n := db.Int(
				"SELECT count(*) FROM cleanupd.task WHERE name <> 'sessions' AND paused_for <> '0'",
			); n != 0 {
				t.Errorf("%d other tasks have pauses", n)
			}
		})
	}
}

// A caller may pause a run that the schedule has paused for longer than the longest pause of callers: only the time
// since then counts for that, and both pauses stop the clock.
func TestPauseAfterThatOfTheSchedule(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxPause = 90 * time.Minute })
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}, MaxDuration: time.Hour, PauseStopsClock: true})
	db.Do(`UPDATE cleanupd.run SET state = 'PAUSED', paused_by = 'schedule', pause_time = now() - interval '2 hours',
		start_time = now() - interval '2 hours'`)
	if got := pause(t, m, run.ID); got.PausedBy != "ann" || time.Since(*got.PauseTime) > time.Hour {
		t.Errorf("paused by %s since %s", got.PausedBy, got.PauseTime)
	}
	if err := runs.TickPauses(m, t.Context()); err != nil {
		t.Error(err)
	}
	if n := db.Int(pausedRuns + "'ann'"); n != 1 {
		t.Error("it has ended")
	}
	work()
	resume(t, m, run.ID)
	checkFinished(t, watch(t, m, run.ID), 10)
}

// abandoned pauses a run whose replica was killed. Its lease lasts for another hour, and its last batch is open.
func abandoned(t *testing.T, db *pgtest.DB, m *runs.Manager, run *store.Run) {
	t.Helper()
	pause(t, m, run.ID)
	db.Do("UPDATE cleanupd.run SET start_time = now(), replica = 'gone', lease_until = now() + interval '1 hour'")
	db.Hold("SELECT pg_advisory_xact_lock($1)", runs.AdvisoryLock(run.UUID()))
}

// silence makes the lease of the replica expire.
const silence = "UPDATE cleanupd.run SET lease_until = now()"

// The last batch of a paused run ends when its replica no longer renews its lease.
func TestPauseOfASilentReplica(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", nil)
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	abandoned(t, db, m, run)
	db.Do(silence)
	work()
	db.Until(unused)
	db.Until("SELECT count(*) FROM cleanupd.run WHERE state = 'PAUSED' AND replica = ''")
	resume(t, m, run.ID)
	checkFinished(t, watch(t, m, run.ID), 10)
}

// A paused run that is cancelled while a replica has it ends as soon as the replica has left it, or no longer renews
// its lease.
func TestCancelWhileAReplicaIsPaused(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", nil)
	run := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	abandoned(t, db, m, run)
	if got, err := m.Cancel(t.Context(), run.ID); err != nil || got.State != store.Paused {
		t.Errorf("%+v, %v", got, err)
	}
	if err := runs.TickPauses(m, t.Context()); err != nil {
		t.Error(err)
	}
	if n := db.Int(pausedRuns + "'ann'"); n != 1 {
		t.Error("it has ended while a replica had it")
	}
	db.Do(silence)
	work()
	events := watch(t, m, run.ID)
	if last := events[len(events)-1].Run; last.State != store.Cancelled || last.Error != store.StopCancelled {
		t.Errorf("%s: %s", last.State, last.Error)
	}
	db.Until(unused) // its last batch has ended, too
}

// A paused dry run ends after the longest pause also in a database that belongs to another instance.
func TestPausedDryRunOfAnotherInstance(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", named("test"))
	real := start(t, m, runs.Request{Tasks: []string{"sessions"}})
	dry := start(t, m, runs.Request{Tasks: []string{"sessions"}, DryRun: true})
	pause(t, m, real.ID)
	pause(t, m, dry.ID)
	db.Do("UPDATE cleanupd.instance SET name = 'production'")
	db.Do("UPDATE cleanupd.run SET pause_time = pause_time - interval '1 year'")
	work()
	events := watch(t, m, dry.ID)
	if last := events[len(events)-1].Run; last.State != store.Cancelled ||
		!strings.Contains(last.Error, "--max-pause") {
		t.Errorf("%s: %s", last.State, last.Error)
	}
	if n := db.Int(pausedRuns + "'ann' AND NOT dry_run"); n != 1 {
		t.Error("the run of another instance has ended")
	}
}

// A run that was paused before it began has its whole time left, and does not follow a plan that is stale when it
// begins.
func TestPauseBeforeTheBeginning(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	a, workA, stopA := replica(t, db, "a", nil)
	workA()
	plan := dryRun(t, a, "sessions")
	stopA()
	m, work, _ := replica(t, db, "b", nil)
	run := start(t, m, runs.Request{Plan: plan, MaxDuration: time.Hour, PauseStopsClock: true})
	pause(t, m, run.ID)
	db.Do("UPDATE cleanupd.run SET pause_time = pause_time - interval '1 day' WHERE NOT dry_run")
	resume(t, m, run.ID)
	db.Do("UPDATE cleanupd.run SET reference_time = reference_time - interval '1 year' WHERE dry_run")
	work()
	events := watch(t, m, run.ID)
	if last := events[len(events)-1].Run; last.State != store.Failed || last.Reason() != string(failure.ReasonPlanStale) {
		t.Errorf("%s: %s", last.State, last.Error)
	}
	if n := db.Int("SELECT count(*) FROM cleanupd.run WHERE NOT dry_run AND paused_for = '0'"); n != 1 {
		t.Error("the pause before the beginning prolongs the run")
	}
}

// Time limits go on counting during pauses, unless these stop the clock.
func TestPauseStopsClock(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for stops, want := range map[bool]store.State{true: store.Succeeded, false: store.Cancelled} {
		t.Run(fmt.Sprint(stops), func(t *testing.T) {
			t.Parallel()
			db := database(t)
			sessions(db, 500)
			m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 1 })
			run := start(t, m, runs.Request{
				Tasks: []string{"sessions"}, MaxDuration: time.Hour, PauseStopsClock: stops,
			})
			work()
			untilDeleting(t, db, run.ID)
			pause(t, m, run.ID)
			db.Do(longer)
			if stops {
				resume(t, m, run.ID)
			}
			events := watch(t, m, run.ID)
			if last := events[len(events)-1].Run; last.State != want {
				t.Errorf("%s: %s", last.State, last.Error)
			}
		})
	}
}

// A change of the pace takes effect on the replica that executes the run, and a later replica has it, too.
func TestSetPace(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 1_000)
	single := func(c *runs.Config) { c.MaxRows, c.DefaultPace = 1, pace.Fast }
	a, workA, stopA := replica(t, db, "a", single)
	b, workB, _ := replica(t, db, "b", single)
	run := start(t, a, runs.Request{Tasks: []string{"sessions"}})
	if run.Pace != pace.Fast {
		t.Errorf("the pace is %s, want that of the service", run.Pace)
	}
	workA()
	untilDeleting(t, db, run.ID)
	if got, err := b.SetPace(t.Context(), run.ID, pace.Balanced, "ann"); err != nil || got.Pace != pace.Balanced {
		t.Errorf("%v, %v", got, err)
	}
	hasPace := func(p pace.Pace) {
		db.Until(
			"SELECT count(*) FROM cleanupd.event WHERE body->>'Kind' = 'task_progress' AND body->'Progress'->>'Pace' = $1",
			p)
	}
	hasPace(pace.Balanced)
	if _, err := b.SetPace(t.Context(), run.ID, pace.Gentle, "ann"); err != nil {
		t.Error(err)
	}
	stopA()
	workB()
	hasPace(pace.Gentle)
	events := watch(t, b, run.ID)
	checkFinished(t, events, 1_000)
	if !said(events, message.Info, "ann changed the pace to GENTLE") {
		t.Errorf("the change is not in the log: %q", logs(events))
	}
}

// at returns a window between two hours relative to now, in UTC.
func at(from, to int) schedule.Window {
	hour := func(n int) string { return time.Now().UTC().Add(time.Duration(n) * time.Hour).Format("15:04") }
	return schedule.Window{Start: hour(from), End: hour(to), Pace: pace.Fast}
}

func windowed(t *testing.T, m *runs.Manager, windows ...schedule.Window) {
	t.Helper()
	setSchedule(t, m, schedule.Schedule{
		Enabled: true, TimeZone: "UTC", ContinueOnError: true, Windows: windows, Pace: pace.Gentle,
	})
}

const pausedRuns = "SELECT count(*) FROM cleanupd.run WHERE state = 'PAUSED' AND paused_by = "

// A run of the schedule works only while a window is open, with the pace of that window. Its windows can be changed and
// overridden while it is active.
func TestWindows(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do(cleanedByHand)
	sessions(db, 1_000)
	release := holdLast(db, 1_000)
	m, work, _ := replica(t, db, "a", keeps)
	windowed(t, m, at(2, 4))
	db.Do(due)
	work()
	db.Until(pausedRuns + "'schedule'")
	if n := db.Int("SELECT count(*) FROM cleanupd.run WHERE start_time IS NOT NULL"); n > 0 {
		t.Error("the run began outside of its windows")
	}
	windowed(t, m, at(-1, 1))
	fast := "SELECT count(*) FROM cleanupd.run WHERE state = 'RUNNING' AND pace = 'FAST'"
	db.Until(fast)
	windowed(t, m, at(-3, -1))
	db.Until(pausedRuns + "'schedule'")
	id := db.Strings("SELECT id::text FROM cleanupd.run")[0]
	if got := resume(t, m, id); got.State != store.Running {
		t.Errorf("resumed outside of the windows: %s", got.State)
	}
	setSchedule(t, m, schedule.Schedule{
		Enabled: true, TimeZone: "UTC", Windows: []schedule.Window{at(-3, -1)}, Pace: pace.Gentle,
	})
	if n := db.Int("SELECT count(*) FROM cleanupd.run WHERE window_until > now()"); n != 1 {
		t.Error("a schedule with the same windows pauses the run again")
	}
	pause(t, m, id)
	windowed(t, m, at(-1, 1))
	db.Until("SELECT count(*) FROM cleanupd.run WHERE window_until > now()")
	if n := db.Int(pausedRuns + "'ann'"); n != 1 {
		t.Error("a window ended the pause of an operator")
	}
	windowed(t, m)
	db.Until("SELECT count(*) FROM cleanupd.run WHERE window_until IS NULL AND pace = 'GENTLE'")
	resume(t, m, id)
	release()
	checkFinished(t, watch(t, m, id), 1_000)
}

// Only in a gentle run does VACUUM use the cost delay of autovacuum.
func TestVacuumOfAGentleRun(t *testing.T) {
	t.Parallel()
	for p, want := range map[pace.Pace]string{
		pace.Gentle: "SET vacuum_cost_delay = 2", pace.Balanced: "RESET vacuum_cost_delay",
	} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			db := database(t)
			var mu sync.Mutex
			seen := map[string]bool{}
			_, pool := db.Inject(func(sql string) string {
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(sql, "vacuum_cost_delay") {
					seen[sql] = true
				}
				return ""
			})
			m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.Pool = pool })
			run := start(t, m, runs.Request{Tasks: []string{"statistics"}, Pace: p})
			work()
			checkFinished(t, watch(t, m, run.ID), 0)
			mu.Lock()
			defer mu.Unlock()
			if !maps.Equal(seen, map[string]bool{want: true}) {
				t.Errorf("%v were executed, want %q", seen, want)
			}
		})
	}
}
