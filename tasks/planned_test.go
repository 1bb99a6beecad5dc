package tasks_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func makePlan(t *testing.T, db *pgtest.DB, names ...string) map[string]cleanup.SavedTask {
	t.Helper()
	return mustRun(t, db, dry, names...).planned
}

// runPlan runs a saved plan, and returns the error with which it was refused, or nil.
func runPlan(
	t *testing.T, db *pgtest.DB, planned map[string]cleanup.SavedTask, change func(*cleanup.Config), names ...string,
) (*journal, *failure.Refusal) {
	t.Helper()
	j, err := run(t, db, func(c *cleanup.Config) {
		c.SavedPlan = planned
		if change != nil {
			change(c)
		}
	}, names...)
	var denied *failure.Refusal
	if err != nil && !errors.As(err, &denied) {
		t.Fatal(err)
	}
	return j, denied
}

func checkRefused(t *testing.T, denied *failure.Refusal, reason string) {
	t.Helper()
	if denied == nil {
		t.Errorf("the run was not refused, want the reason %s", reason)
	} else if denied.Reason != reason {
		t.Errorf("the run was refused with %v, want the reason %s", denied, reason)
	}
}

// The run of a saved plan deletes no list, delivery or table that is missing in the plan, although it is obsolete by
// now.
func TestPlanNamesWhatGoes(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`
INSERT INTO XtkOption (iOptionId, sName, iLongValue) VALUES (1, 'XtkCleanup_NoStats', 1);
INSERT INTO NmsGroup (iGroupId, iType, iDeleteStatus) VALUES (1, 1, 1), (2, 1, 0), (3, 1, 1);
INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iState)
  VALUES (1, 1, '2025-01-01', 0), (2, 0, '2025-01-01', 55);
CREATE TABLE grp1 (i int);
CREATE TABLE wkDlv_9 (i int)`)
	planned := makePlan(t, db)
	db.Do(`
UPDATE NmsGroup SET iDeleteStatus = 1 WHERE iGroupId = 2;
UPDATE NmsDelivery SET iDeleteStatus = 1 WHERE iDeliveryId = 2;
CREATE TABLE grp3 (i int);
CREATE TABLE grp99 (i int);
CREATE TABLE wkDlv_8 (i int)`)
	if j, denied := runPlan(t, db, planned, nil); denied != nil {
		t.Fatal(denied, j.logs)
	}
	// The table of list 3 is not in the plan.
	checkRows(t, db, "SELECT iGroupId::text FROM NmsGroup ORDER BY 1", "2", "3")
	checkRows(t, db, "SELECT iDeliveryId::text FROM NmsDelivery ORDER BY 1", "2")
	checkRows(t, db, "SELECT relname::text FROM pg_class WHERE relname ~ '^(grp|wkdlv)' ORDER BY 1", "grp3", "grp99",
		"wkdlv_8")
}

// If options, mappings, flags or holds have changed, a saved plan is refused before anything is deleted. The error
// names the change, without the ids of holds.
func TestStalePlan(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES (1, '2020-01-01')")
	for _, c := range []struct {
		sql    string
		change func(*cleanup.Config)
	}{
		{sql: "INSERT INTO XtkOption (iOptionId, sName, iLongValue, iDataType) VALUES (1, " +
			"'NmsCleanup_VisitorPurgeDelay', 86400, 3)"},
		{sql: "INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (77, " +
			"'cus:other')"},
		{sql: "SELECT", change: func(c *cleanup.Config) { c.MidSourcing.Keep = []string{"other"} }},
	} {
		planned := makePlan(t, db, "sessions")
		db.Do(c.sql)
		j, denied := runPlan(t, db, planned, c.change, "sessions")
		j.checkState(t, "sessions", cleanup.Failed)
		checkRefused(t, denied, failure.ReasonPlanStale)
		if denied != nil && denied.Metadata["changed"] == "" {
			t.Errorf("the error does not name the change: %v", denied)
		}
		checkCount(t, db, 1, "SELECT count(*) FROM XtkSessionInfo")
	}
	j := newJournal(db)
	j.holds = func() rules.Holds { return rules.Holds{Names: []string{"its id"}, Deliveries: []int64{1}} }
	planned, denied := makePlan(t, db, "sessions"), (*failure.Refusal)(nil)
	err := runWith(t, j, func(c *cleanup.Config) { c.SavedPlan = planned }, "sessions")
	if !errors.As(err, &denied) || denied.Reason != failure.ReasonPlanStale || strings.Contains(err.Error(), "its id") {
		t.Errorf("with a new hold the run ended with %v, want the reason %s without the hold's id", err,
			failure.ReasonPlanStale)
	}
}

// Each task compares the plan again, even if it starts right after another task.
func TestPlanGetsStaleBetweenTasks(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		"INSERT INTO NmsVisitor (iVisitorId, tsLastModified) VALUES (1, '2020-01-01'); INSERT INTO XtkSessionInfo " +
			"(sKey, tsExpiration) VALUES (1, '2020-01-01')",
	)
	j := newJournal(db)
	j.beforeCommit = func(b *pgx.Batch, _ purge.Delta) {
		if j.task == "visitors" {
			b.Queue(
				"INSERT INTO XtkOption (iOptionId, sName, iLongValue, iDataType) VALUES (1, " +
					"'NmsCleanup_VisitorPurgeDelay', 86400, 3)",
			)
		}
	}
	planned := makePlan(t, db, "visitors", "sessions")
	err := runWith(t, j, func(c *cleanup.Config) { c.SavedPlan = planned }, "visitors", "sessions")
	var denied *failure.Refusal
	j.checkState(t, "visitors", cleanup.Succeeded)
	checkCount(t, db, 1, "SELECT count(*) FROM XtkSessionInfo")
	if !errors.As(err, &denied) {
		t.Errorf("the run ended with %v, want a refusal", err)
	}
	checkRefused(t, denied, failure.ReasonPlanStale)
}

// A saved plan is refused if the URL of a mid-sourcing server now names another database.
func TestStalePlanOfAnotherMidSourcingServer(t *testing.T) {
	t.Parallel()
	db, far, other := pgtest.Campaign(t), pgtest.Campaign(t), pgtest.Campaign(t)
	leadsTo := func(there *pgtest.DB) func(*cleanup.Config) {
		return func(c *cleanup.Config) { c.MidSourcing.Databases = map[string]*pgxpool.Pool{"far": there.Pool} }
	}
	planned := mustRun(t, db, func(c *cleanup.Config) { dry(c); leadsTo(far)(c) }, "sessions").planned
	_, denied := runPlan(t, db, planned, leadsTo(other), "sessions")
	checkRefused(t, denied, failure.ReasonPlanStale)
	if denied != nil && !strings.Contains(denied.Metadata["changed"], other.Name) {
		t.Errorf("the change is %q, want %q in it", denied.Metadata["changed"], other.Name)
	}
	if _, denied := runPlan(t, db, planned, leadsTo(far), "sessions"); denied != nil {
		t.Errorf("the plan was refused with the same database: %v", denied)
	}
}

// A task stops before the batch that would exceed its planned rows by more than a hundredth and a thousand rows.
func TestExceededPlan(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	insert := "INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM " +
		"generate_series($1::int, $2::int) i"
	db.Do(insert, 1, 10_000)
	planned := makePlan(t, db, "sessions")
	db.Do(insert, 10_001, 11_100)
	few := func(c *cleanup.Config) { c.Settings.MaxRows = 700 }
	if _, denied := runPlan(t, db, planned, few, "sessions"); denied != nil {
		t.Errorf("refused with 1100 more rows than planned: %v", denied)
	}
	db.Do(insert, 1, 10_000)
	planned = makePlan(t, db, "sessions")
	db.Do(insert, 10_001, 11_101)
	_, denied := runPlan(t, db, planned, func(c *cleanup.Config) { c.Settings.MaxRows = 700 }, "sessions")
	checkRefused(t, denied, failure.ReasonPlanExceeded)
	if denied != nil && denied.Metadata["planned"] != "10000" {
		t.Errorf("the planned rows are %q, want 10000", denied.Metadata["planned"])
	}
	// A batch may have 8 statements of 700 rows.
	if left := db.Int("SELECT count(*) FROM XtkSessionInfo"); left < 101 || left > 101+8*700 {
		t.Errorf("%d rows remain, want 101 to %d", left, 101+8*700)
	}
	planned = makePlan(t, db, "expired-deliveries")
	db.Do(
		"INSERT INTO NmsDeliveryPart (iDeliveryPartId, tsValidity) SELECT i, '2020-01-01' FROM generate_series(1, " +
			"1001) i",
	)
	_, denied = runPlan(t, db, planned, nil, "expired-deliveries")
	checkCount(t, db, 1001, "SELECT count(*) FROM NmsDeliveryPart")
	if denied == nil {
		t.Error("a task with no planned rows was not refused")
	}
}
