package runs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// poisoned inserts n obsolete rows; deleting every 50th fails.
func poisoned(db *pgtest.DB, n int) {
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, $1::int) i", n)
	db.Do(
		`CREATE FUNCTION refuse() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN IF OLD.iAuditId % 50 = 0 THEN RAISE ''not this one''; END IF; RETURN OLD; END';
		CREATE TRIGGER refuse BEFORE DELETE ON XtkAudit FOR EACH ROW EXECUTE FUNCTION refuse()`,
	)
}

// Rows that fail are counted exactly once by a run, even if another replica takes it over, and again by the next run.
func TestFailedRowsOfATakeover(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	n := suite.Size[int64](suite.Long, 2_000, 6_000)
	db := database(t)
	poisoned(db, int(n))
	a, workA, stopA := replica(t, db, "a", func(c *runs.Config) { c.MaxRows = 1; c.Lease = time.Hour })
	b, workB, _ := replica(t, db, "b", nil)
	run := start(t, a, runs.Request{Tasks: []string{"audit-trail"}})
	workA()
	db.Until("SELECT rows_failed FROM cleanupd.task WHERE name = 'audit-trail'")
	for range 10 { // the counted rows are below the cursor
		if wrong := db.Int(`SELECT count(*) FROM cleanupd.task WHERE name = 'audit-trail' AND rows_failed <>
			(SELECT count(*) FROM XtkAudit WHERE iAuditId % 50 = 0
				AND ctid < format('(%s,0)', COALESCE(cursor->>'place', '0'))::tid)`); wrong != 0 {
			t.Fatal("the count is not that of the cursor")
		}
	}
	// as if it had not been renewed
	db.Do("UPDATE cleanupd.run SET lease_until = clock_timestamp() - interval '1 hour'")
	workB()
	events := watch(t, b, run.ID)
	stopA()
	checkFinished(t, events, n-n/50)
	result := events[len(events)-1].Run.Result("audit-trail")
	if result.RowsFailed != n/50 || result.RowsRetained != n/50 || result.TablesRetained != 0 ||
		result.Detail != fmt.Sprintf("%d obsolete rows failed with an error", n/50) {
		t.Errorf("%d rows failed, %d are retained: %s", result.RowsFailed, result.RowsRetained, result.Detail)
	}
	if d := result.Details; len(d) != 1 || d[0].Code != message.ResultFailed.Code ||
		d[0].Params["rows"] != fmt.Sprint(n/50) {
		t.Errorf("got details %v", d)
	}
	for _, k := range []*message.Kind{message.ResultFailed, message.RowsFailed} {
		if got := measured(t, b, "cleanupd_run_messages_total", k.Code); got != 1 {
			t.Errorf("%v messages %s were counted, want 1", got, k.Code)
		}
	}
	if db.Int("SELECT epoch FROM cleanupd.run") < 2 ||
		db.Int("SELECT count(*) FROM XtkAudit WHERE iAuditId % 50 <> 0") != 0 {
		t.Error("no other replica took the run over, or obsolete rows are left")
	}
	again := watch(t, b, start(t, b, runs.Request{Tasks: []string{"audit-trail"}}).ID)
	if last := again[len(again)-1].Run.Result("audit-trail"); last.State != cleanup.Failed ||
		last.RowsFailed != n/50 {
		t.Errorf("the next run: %+v", last)
	}
}
