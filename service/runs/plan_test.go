package runs_test

import (
	"errors"
	"testing"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

func dryRun(t *testing.T, m *runs.Manager, tasks ...string) string {
	t.Helper()
	run := start(t, m, runs.Request{DryRun: true, Tasks: tasks})
	watch(t, m, run.ID)
	return run.ID
}

// fires makes the schedule due, and waits until its run has ended.
func fires(t *testing.T, db *pgtest.DB, m *runs.Manager) *store.Run {
	t.Helper()
	db.Do("UPDATE cleanupd.schedule SET next_run_time = now() - interval '1 minute'")
	db.Until(
		"SELECT count(*) FROM cleanupd.run WHERE requested_by = 'schedule' AND id IN (SELECT last_run_id FROM " +
			"cleanupd.schedule WHERE next_run_time > now())",
	)
	id := readSchedule(t, m).LastRunID
	watch(t, m, id)
	run, err := m.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// The next run of the schedule follows the saved plan; the one after it follows none. A run with a stale plan fails,
// and deletes nothing.
func TestNextPlan(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.KeepSchedule = true })
	work()
	plan := dryRun(t, m, "sessions")
	if _, err := replaceSchedule(
		t, m, schedule.Schedule{Enabled: true, NextPlan: "01a20609-283b-755d-90ec-99cde01f104d"},
	); err == nil {
		t.Error("a plan that is not there")
	}
	s, err := replaceSchedule(t, m, schedule.Schedule{Enabled: true, NextPlan: plan})
	if err != nil || s.NextPlan != plan {
		t.Fatalf("%+v, %v", s, err)
	}
	run := fires(t, db, m)
	if run.State != store.Succeeded || run.Plan != plan || run.Result("sessions").RowsDeleted != 10 ||
		run.Result("visitors").StartTime != nil {
		t.Errorf("%+v", run)
	}
	if s := readSchedule(t, m); s.NextPlan != "" {
		t.Errorf("the plan is done again: %+v", s)
	}
	if run := fires(t, db, m); run.State != store.Succeeded || run.Plan != "" ||
		run.Result("visitors").StartTime == nil {
		t.Errorf("the run after it: %+v", run)
	}
	sessions(db, 10)
	plan = dryRun(t, m, "sessions")
	if _, err := replaceSchedule(t, m, schedule.Schedule{Enabled: true, NextPlan: plan}); err != nil {
		t.Fatal(err)
	}
	watch(t, m, start(t, m, runs.Request{Tasks: []string{"visitors"}}).ID)
	if run := fires(t, db, m); run.State != store.Failed || run.Reason() != "PLAN_STALE" ||
		db.Int("SELECT count(*) FROM XtkSessionInfo") != 10 {
		t.Errorf("a plan that a run followed: %+v", run)
	}
}

// A plan stays valid if a guard refuses its run before it changes anything, but not after a run that changed something.
func TestPlanAfterRefusal(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 10)
	db.Do("INSERT INTO NmsVisitor (iVisitorId, tsLastModified) SELECT i, '2000-01-01' FROM generate_series(1, 20) i")
	m := guarded(t, db, nil)
	accepted := accepting(t, m, "visitors", "sessions")
	if len(accepted.Accepted) == 0 {
		t.Fatal("no guard would refuse the plan")
	}
	alone := runs.Request{Plan: accepted.Plan}
	if run := ended(t, m, alone); run.Reason() != failure.ReasonGuard {
		t.Fatalf("the run of the plan is %s: %s", run.State, run.Error)
	}
	if run := ended(t, m, alone); run.Reason() != failure.ReasonGuard {
		t.Errorf("the same again is %s: %s", run.State, run.Error)
	}
	if run := ended(t, m, accepted); run.State != store.Succeeded || run.Result("visitors").RowsDeleted != 20 {
		t.Errorf("the run that accepts the guard is %s: %s", run.State, run.Error)
	}
	sessions(db, 10)
	db.Do("INSERT INTO NmsVisitor (iVisitorId, tsLastModified) SELECT i, '2000-01-01' FROM generate_series(1, 99) i")
	accepted = accepting(t, m, "visitors", "sessions")
	if run := ended(t, m, runs.Request{Plan: accepted.Plan, ContinueOnError: true}); run.Reason() != failure.ReasonGuard ||
		run.Result("sessions").RowsDeleted != 10 {
		t.Fatalf("the run of the plan is %s: %+v", run.State, run.Result("sessions"))
	}
	var refusal *failure.Refusal
	if _, err := m.Start(t.Context(), accepted); !errors.As(err, &refusal) || refusal.Reason != failure.ReasonPlanStale {
		t.Errorf("after a run that deleted sessions: %v", err)
	}
}
