package runs_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// awaitingWindow starts a run of the schedule outside of its windows; the next one opens in two hours.
func awaitingWindow(t *testing.T, db *pgtest.DB, m *runs.Manager) *store.Run {
	t.Helper()
	db.Do(cleanedByHand + " ON CONFLICT DO NOTHING")
	windowed(t, m, at(2, 4))
	db.Do(due)
	db.Until(pausedRuns + "'schedule' AND replica = ''")
	return get(t, m, readSchedule(t, m).LastRunID)
}

func get(t *testing.T, m *runs.Manager, id string) *store.Run {
	t.Helper()
	run, err := m.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func tick(t *testing.T, m *runs.Manager) {
	t.Helper()
	if err := runs.TickPauses(m, t.Context()); err != nil {
		t.Error(err)
	}
}

// While a run of the schedule waits for its window, a run by hand takes its place on any replica. The first one resumes
// after it, when its window is open, and the next scheduled time remains pending for both.
func TestARunByHandBesideAWaitingRun(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 1_000)
	release := holdLast(db, 1_000)
	small := func(c *runs.Config) { c.KeepSchedule, c.MaxRows = true, 100 }
	a, workA, _ := replica(t, db, "a", small)
	b, workB, _ := replica(t, db, "b", small)
	workA()
	workB()
	waiting := awaitingWindow(t, db, a)
	opens := waiting.WindowOpenTime
	if opens == nil || time.Until(*opens) < time.Hour || time.Until(*opens) > 2*time.Hour || waiting.WaitsFor != "" {
		t.Fatalf("it waits until %v, and for the run %q", opens, waiting.WaitsFor)
	}
	byHand := start(t, b, runs.Request{Tasks: []string{"sessions"}, RequestedBy: "ann"})
	untilDeleting(t, db, byHand.ID)
	if got := get(t, a, waiting.ID); got.State != store.Paused || got.WaitsFor != byHand.ID ||
		!got.WindowOpenTime.Equal(*opens) || !got.PauseTime.Equal(*waiting.PauseTime) {
		t.Errorf("beside a run by hand it is %+v", got)
	}
	if _, err := b.Resume(t.Context(), waiting.ID, "ben"); !isActive(err, byHand.ID) {
		t.Errorf("resumed beside a run by hand: %v", err)
	}
	if _, err := a.Start(t.Context(), runs.Request{}); !isActive(err, byHand.ID) {
		t.Errorf("a second run by hand: %v", err)
	}
	for _, state := range []string{"QUEUED", "RUNNING"} {
		if _, err := db.Exec(t.Context(), "UPDATE cleanupd.run SET state = $1 WHERE id = $2", state,
			waiting.ID); err == nil {
			t.Errorf("the database lets both runs be active, the waiting one %s", state)
		}
	}
	db.Do(due)
	db.Until(isPending)

	windowed(t, a, at(-1, 1))
	tick(t, a)
	tick(t, b)
	if got := get(t, b, waiting.ID); got.State != store.Paused || !got.WindowOpenTime.Before(time.Now()) {
		t.Errorf("in a window, beside a run by hand, it is %s until %v", got.State, got.WindowOpenTime)
	}
	windowed(t, a, at(-3, -1)) // the window closes before the run by hand has ended
	db.Until(pausedRuns + "'schedule' AND window_until > clock_timestamp()")
	windowed(t, a, at(-1, 1))
	release()
	checkFinished(t, watch(t, a, byHand.ID), 1_000)
	events := watch(t, b, waiting.ID)
	checkFinished(t, events, 0)
	for _, text := range []string{
		"paused until the schedule's window opens at " + opens.UTC().Format(time.RFC3339),
		"continues in its window after run " + byHand.ID + ", which ann started by hand",
		"resumed by schedule",
	} {
		if !said(events, message.Info, text) {
			t.Errorf("%q is not in the log: %q", text, logs(events))
		}
	}
	first, second := get(t, a, byHand.ID), get(t, a, waiting.ID)
	if second.StartTime.Before(*first.EndTime) || second.WindowOpenTime != nil || second.WaitsFor != "" {
		t.Errorf("the run by hand ended at %s: %+v", first.EndTime, second)
	}
	db.Until("SELECT CASE count(*) WHEN 3 THEN 1 ELSE 0 END FROM cleanupd.run WHERE state = 'SUCCEEDED'")
}

// A run that is unfinished when its window closes does the rest after a run by hand, with its own clock.
func TestAnInterruptedRunYields(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	db.Do(cleanedByHand)
	sessions(db, 2_000)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.KeepSchedule, c.MaxRows = true, 1 })
	windowed(t, m, at(-1, 1))
	db.Do(due)
	work()
	db.Until("SELECT count(*) FROM cleanupd.run WHERE state = 'RUNNING'")
	id := readSchedule(t, m).LastRunID
	untilDeleting(t, db, id)
	windowed(t, m, at(2, 4))
	db.Until(pausedRuns + "'schedule' AND replica = ''")
	interrupted := get(t, m, id)
	rest := db.Int("SELECT count(*) FROM XtkSessionInfo")
	byHand := start(t, m, runs.Request{Tasks: []string{"statistics"}})
	checkFinished(t, watch(t, m, byHand.ID), 0)
	if got := get(t, m, id); got.State != store.Paused || got.WaitsFor != "" || rest == 0 ||
		db.Int("SELECT count(*) FROM XtkSessionInfo") != rest {
		t.Errorf("after the run by hand it is %+v", got)
	}
	windowed(t, m, at(-1, 1))
	checkFinished(t, watch(t, m, id), 2_000)
	if got := get(t, m, id); !got.ReferenceTime.Equal(*interrupted.ReferenceTime) {
		t.Errorf("its clock went from %s to %s", interrupted.ReferenceTime, got.ReferenceTime)
	}
}

// A run keeps its place as long as a replica has it. A silent replica can commit nothing after it has lost the run.
func TestARunOfASilentReplicaYields(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, stop := replica(t, db, "a", keeps)
	work()
	waiting := awaitingWindow(t, db, m)
	stop()
	b, _, _ := replica(t, db, "b", nil)
	db.Do("UPDATE cleanupd.run SET start_time = now(), replica = 'gone', lease_until = now() + interval '1 hour', " +
		"server_start = pg_postmaster_start_time()")
	if _, err := b.Start(t.Context(), runs.Request{}); !isActive(err, waiting.ID) {
		t.Errorf("while a replica has it: %v", err)
	}
	gone := store.Epoch{RunID: waiting.UUID(), Number: db.Int("SELECT epoch FROM cleanupd.run")}
	db.Do(silence)
	tick(t, b)
	start(t, b, runs.Request{})
	if err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		return store.LockEpoch(t.Context(), tx, gone)
	}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the silent replica: %v", err)
	}
}

// Only the schedule's own pause makes a run yield.
func TestAPauseOfACallerKeepsTheSlot(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "a", keeps)
	work()
	waiting := awaitingWindow(t, db, m)
	pause(t, m, waiting.ID)
	if _, err := m.Start(t.Context(), runs.Request{}); !isActive(err, waiting.ID) {
		t.Errorf("beside a run that ann has paused: %v", err)
	}
}

// Either run can be cancelled. A run that has its place again may be resumed before its window opens.
func TestCancelBesideAWaitingRun(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, stop := replica(t, db, "a", keeps)
	work()
	waiting := awaitingWindow(t, db, m)
	stop()
	b, work, _ := replica(t, db, "b", nil)
	byHand := start(t, b, runs.Request{})
	if run, err := b.Cancel(t.Context(), byHand.ID); err != nil || run.State != store.Cancelled {
		t.Fatalf("%+v, %v", run, err)
	}
	if got := get(t, b, waiting.ID); got.State != store.Paused || got.WaitsFor != "" {
		t.Errorf("after the run by hand it is %+v", got)
	}
	byHand = start(t, b, runs.Request{Tasks: []string{"sessions"}})
	if run, err := b.Cancel(t.Context(), waiting.ID); err != nil || run.State != store.Cancelled ||
		run.WindowOpenTime != nil || run.WaitsFor != "" {
		t.Errorf("%+v, %v", run, err)
	}
	work()
	checkFinished(t, watch(t, b, byHand.ID), 0)
	keeper, work, _ := replica(t, db, "c", keeps)
	work()
	waiting = awaitingWindow(t, db, keeper)
	watch(t, b, start(t, b, runs.Request{Tasks: []string{"sessions"}}).ID)
	resume(t, b, waiting.ID)
	checkFinished(t, watch(t, b, waiting.ID), 0)
}

// However many requests come at once, to start runs by hand or to resume the run that waits, one of them succeeds.
func TestOneRunBesideAWaitingRun(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, stop := replica(t, db, "a", keeps)
	work()
	waiting := awaitingWindow(t, db, m)
	stop()
	for range 10 {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				var err error
				if i == 0 {
					_, err = m.Resume(t.Context(), waiting.ID, "ann")
				} else {
					_, err = m.Start(t.Context(), runs.Request{Tasks: []string{"sessions"}})
				}
				if active := (*store.ActiveError)(nil); err != nil && !errors.As(err, &active) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := db.Int("SELECT count(*) FROM cleanupd.run WHERE state = 'QUEUED'"); n != 1 {
			t.Fatalf("%d runs are to be done", n)
		}
		db.Do("DELETE FROM cleanupd.run WHERE id <> $1", waiting.ID)
		db.Do("UPDATE cleanupd.run SET slot = 0, state = 'PAUSED', paused_by = 'schedule', pause_time = now()")
	}
}

// A request for a run that is not stored leaves the waiting run its place.
func TestARepeatedRequestTakesNoSlot(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, stop := replica(t, db, "a", keeps)
	work()
	waiting := awaitingWindow(t, db, m)
	stop()
	id := uuid.New()
	start(t, m, runs.Request{DryRun: true, ID: id})
	var run *store.Run
	if err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) (err error) {
		run, err = store.InsertRun(t.Context(), tx, store.NewRun{Slots: store.DeletingSlots, RequestID: id})
		return err
	}); err != nil || run != nil {
		t.Fatalf("%+v, %v", run, err)
	}
	active, err := store.ActiveRuns(t.Context(), db.Pool, store.DeletingSlots)
	if err != nil || len(active) != 1 || active[0].ID != waiting.ID {
		t.Errorf("%+v, %v", active, err)
	}
}

// A plan becomes stale if a run by hand ends while the run that follows the plan waits, even if that had begun; and
// also if another run has worked since and waits for its window.
func TestPlansOfWaitingRuns(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for name, begun := range map[string]bool{"before it begins": false, "in the middle": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			sessions(db, 2_000)
			m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.KeepSchedule, c.MaxRows = true, 1 })
			work()
			earlier := dryRun(t, m, "sessions")
			plan := dryRun(t, m, "sessions")
			s := schedule.Schedule{Enabled: true, TimeZone: "UTC", Windows: []schedule.Window{at(2, 4)}, NextPlan: plan}
			if begun {
				s.Windows[0] = at(-1, 1)
			}
			setSchedule(t, m, s)
			db.Do(due)
			if begun {
				db.Until("SELECT count(*) FROM cleanupd.run WHERE state = 'RUNNING'")
				untilDeleting(t, db, readSchedule(t, m).LastRunID)
				windowed(t, m, at(2, 4))
			}
			db.Until(pausedRuns + "'schedule' AND replica = ''")
			id := readSchedule(t, m).LastRunID
			refusal := (*failure.Refusal)(nil)
			run, err := m.Start(t.Context(), runs.Request{Plan: earlier})
			if stale := errors.As(err, &refusal) && refusal.Reason == failure.ReasonPlanStale; stale != begun {
				t.Errorf("a run by an earlier plan: %v", err)
			}
			if begun {
				run = start(t, m, runs.Request{Tasks: []string{"audit-trail"}})
			}
			watch(t, m, run.ID)
			windowed(t, m, at(-1, 1))
			events := watch(t, m, id)
			if last := events[len(events)-1].Run; last.State != store.Failed || last.Reason() != failure.ReasonPlanStale {
				t.Errorf("%s: %s", last.State, last.Error)
			}
		})
	}
}

// Rows that a waiting run has deleted count for the share of a table that a run by hand may delete.
func TestShareBesideAWaitingRun(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do(cleanedByHand)
	audits(db, 1, 40, "1 year")
	audits(db, 41, 100, "1 day")
	db.Do(`CREATE TABLE released (); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN WHILE NOT EXISTS (SELECT FROM released) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN OLD; END';
		CREATE TRIGGER wait BEFORE DELETE ON XtkAudit FOR EACH ROW WHEN (OLD.iAuditId > 20) EXECUTE FUNCTION wait()`)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.KeepSchedule, c.MaxRows = true, 1 })
	setGuards(t, m, nil)
	windowed(t, m, at(-1, 1))
	db.Do(due)
	work()
	db.Until("SELECT count(*) FROM cleanupd.task WHERE name = 'audit-trail' AND rows_deleted = 20")
	windowed(t, m, at(2, 4))
	db.Until(pausedRuns + "'schedule' AND replica = ''")
	audits(db, 101, 125, "1 year")
	if got := refusedIn(t, ended(t, m, runs.Request{Tasks: []string{"audit-trail"}}), "audit-trail"); got != "share 63" {
		t.Errorf("the run by hand was refused for %q", got)
	}
}
