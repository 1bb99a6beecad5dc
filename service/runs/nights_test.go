package runs_test

import (
	"flag"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

var nights = flag.Int("nights", suite.Size(suite.Model, 4, 10),
	"how many nights of normal life TestNights has; 400 take some minutes")

// day adds the rows that an application would add on the day with a number, at a thousandth of the size: sends each
// day, and a large one each month except a quiet one, their logs and mirror pages, running workflows, visitors, rejects
// and events. It removes subscribers, lists and deliveries, and adds a table of propositions from some day on.
const day = `
CREATE FUNCTION live(at timestamptz, n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE large boolean := n % 30 = 7 AND n % 360 <> 217; rows int := CASE WHEN large THEN 1000 WHEN n % 360 BETWEEN 200
  AND 231 THEN 0 ELSE 10 END;
BEGIN
  INSERT INTO XtkWorkflowLog (iWorkflowLogId, iWorkflowId, tsLog) SELECT n * 100 + i, 1, at
    FROM generate_series(1, 5) i;
  IF rows > 0 THEN
    INSERT INTO NmsDelivery (iDeliveryId, iState, tsBroadEnd, tsWebValidity, iNeedMirrorPage, iWebResPurged)
      VALUES (n, 95, at, at + interval '60 days', 1, 0);
    INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iRecipientId, iStatus, tsEvent, tsLastModified)
      SELECT n * 10000 + i, n, i, 1, at, at FROM generate_series(1, rows) i;
    INSERT INTO NmsTrackingLogRcp (iTrackingLogId, iDeliveryId, iBroadLogId, tsLog)
      SELECT n * 10000 + i, n, n * 10000 + i, at FROM generate_series(1, rows / 3) i;
    INSERT INTO NmsMirrorPageInfo (iMirrorPageInfoId, iDeliveryId) SELECT n * 10000 + i, n
      FROM generate_series(1, rows) i;
    UPDATE NmsDelivery SET iDeleteStatus = 1, tsDelete = at WHERE iDeliveryId = n - 45;
  END IF;
  INSERT INTO NmsVisitor (iVisitorId, tsLastModified) SELECT n * 100 + i, at FROM generate_series(1, 20) i;
  INSERT INTO XtkReject (iRejectId, tsLog) SELECT n * 100 + i, at FROM generate_series(1, CASE
    WHEN large THEN 90 ELSE 5 END) i;
  INSERT INTO NmsRtEvent (iRtEventId, iStatus, tsCreated, tsLastModified) SELECT n * 100 + i, 2, at, at
    FROM generate_series(1, 50) i;
  INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT n * 100 + i, at FROM generate_series(1, 10) i;
  INSERT INTO NmsSubscription (iServiceId, iRecipientId, iDeleteStatus) SELECT n, i, CASE
    WHEN i <= 10 + (n * 7919) % 11 OR large AND i <= 99 THEN 1 ELSE 0 END FROM generate_series(1, 200) i;
  IF n > 90 THEN
    INSERT INTO NmsPropositionRcp (iPropositionId, iRecipientId, tsLastModified) SELECT n * 100 + i, i, at
      FROM generate_series(1, 60) i;
  END IF;
END $$`

// Normal nights, with two runs a day and failovers between them, trip no guard once the first backlog is accepted. A
// halved delay, a clock a year ahead, and many more rows for a rule without a delay do.
func TestNights(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	// A run begins when the test says, not now.
	db.Do(`CREATE TABLE clock (at timestamptz);
		CREATE FUNCTION set_clock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		  NEW.start_time := (SELECT at
		    FROM clock); NEW.reference_time := COALESCE(NEW.reference_time, NEW.start_time); RETURN NEW; END $$;
		CREATE TRIGGER set_clock BEFORE INSERT ON cleanupd.run FOR EACH ROW EXECUTE FUNCTION set_clock();
		INSERT INTO clock VALUES (now());
		INSERT INTO XtkWorkflow (iWorkflowId, iHistory, iState) VALUES (1, 30, 11);
		INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema, sTrackingLogSchema)
			VALUES (1, 'nms:broadLogRcp', 'nms:trackingLogRcp')`)
	db.Do(day)
	for id, delay := range []string{
		"NmsCleanup_BroadLogPurgeDelay", "NmsCleanup_TrackingLogPurgeDelay", "NmsCleanup_RecycledDeliveryPurgeDelay",
	} {
		db.Do("INSERT INTO XtkOption (iOptionId, sName, iLongValue, iDataType) VALUES ($1, $2, 86400 * 120, 3)", id+1,
			delay)
	}
	const backlog = 200
	first := time.Now().AddDate(0, 0, -*nights-1).Truncate(24 * time.Hour)
	clock := func(at time.Time) { db.Do("UPDATE clock SET at = $1", at) }
	live := func(n int) time.Time {
		at := first.AddDate(0, 0, n)
		db.Do("SELECT live($1, $2)", at, n+backlog)
		return at
	}
	for n := -backlog + 46; n < 0; n++ {
		live(n)
	}
	m, work, stop := replica(t, db, "a", func(c *runs.Config) { c.PlanMaxAge = 10_000 * time.Hour })
	g := guard.DefaultLimits
	g.MinRows = 100
	if err := replaceGuards(t, m, g); err != nil {
		t.Fatal(err)
	}
	work()
	db.Do("ANALYZE")
	clock(first)
	req := accepting(t, m)
	if len(req.Accepted) == 0 {
		t.Error("the backlog needs no word")
	}
	if run := ended(t, m, req); run.State != store.Succeeded {
		t.Fatal(run.Error)
	}
	night := func(n int, at time.Time, failover bool) {
		t.Helper()
		clock(at)
		run := start(t, m, runs.Request{})
		if failover {
			stop()
			m, work, stop = replica(t, db, "b", nil)
			work()
		}
		events := watch(t, m, run.ID)
		if run = events[len(events)-1].Run; run.State != store.Succeeded {
			t.Errorf("night %d: %s", n, run.Error)
		}
	}
	for n := 1; n < *nights && !t.Failed(); n++ {
		at := live(n)
		night(n, at.Add(4*time.Hour), n%20 == 3)
		if n%10 == 3 {
			night(n, at.Add(16*time.Hour), false)
		}
	}
	at := first.AddDate(0, 0, *nights)
	clock(at)
	for name, c := range map[string]struct{ change, undo string }{
		"delivery-logs": {
			"UPDATE XtkOption SET iLongValue = 86400 * 60 WHERE sName = 'NmsCleanup_BroadLogPurgeDelay'",
			"UPDATE XtkOption SET iLongValue = 86400 * 120 WHERE sName = 'NmsCleanup_BroadLogPurgeDelay'",
		},
		"subscriptions": {
			"UPDATE NmsSubscription SET iDeleteStatus = 2",
			"UPDATE NmsSubscription SET iDeleteStatus = 0 WHERE iDeleteStatus = 2",
		},
	} {
		db.Do(c.change)
		if got := refusedIn(t, ended(t, m, runs.Request{Tasks: []string{name}}), name); got == "" {
			t.Errorf("%s: nothing is refused", name)
		}
		db.Do(c.undo)
	}
	clock(at.AddDate(1, 0, 0))
	if run := ended(t, m, runs.Request{}); run.Reason() != failure.ReasonGuard ||
		run.Result("sessions").State != cleanup.NotRun {
		t.Errorf("a clock a year ahead: %s %s", run.State, run.Error)
	}
	g.MaxIdle = 0
	if err := replaceGuards(t, m, g); err != nil {
		t.Fatal(err)
	}
	// the replica's clock is a year ahead by now
	db.Do("UPDATE cleanupd.cutoff SET clock_offset = clock_offset + 365 * 86400000000")
	if got := refusedIn(t, ended(t, m, runs.Request{Tasks: []string{"audit-trail"}}), "audit-trail"); got == "" {
		t.Error("a clock a year ahead, and nothing is refused")
	}
}

// scheduled lets the schedule start a run, and returns it when it has ended.
func scheduled(t *testing.T, db *pgtest.DB, m *runs.Manager, plan string) *store.Run {
	t.Helper()
	setSchedule(t, m, schedule.Schedule{Enabled: true, ContinueOnError: true, NextPlan: plan})
	return fires(t, db, m)
}

// The schedule deletes nothing in a database in which no run by hand has succeeded. Dry runs and failed runs do not
// count.
func TestFirstNight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// What precedes the scheduled run; returns the plan that it follows, if any.
		prepare func(t *testing.T, db *pgtest.DB, m *runs.Manager) (plan string)
		refused bool
	}{
		"nothing before": {
			func(*testing.T, *pgtest.DB, *runs.Manager) string { return "" }, true,
		},
		"after a dry run": {
			func(t *testing.T, _ *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				ended(t, m, runs.Request{DryRun: true})
				return ""
			}, true,
		},
		"after a run that failed": {
			func(t *testing.T, db *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				db.Do("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$; " +
					"CREATE TRIGGER refuse BEFORE DELETE ON XtkSessionInfo EXECUTE FUNCTION refuse()")
				if run := ended(t, m, runs.Request{Tasks: []string{"sessions"}}); run.State != store.Failed {
					t.Fatalf("the run by hand is %s", run.State)
				}
				db.Do("DROP TRIGGER refuse ON XtkSessionInfo")
				return ""
			}, true,
		},
		"after a run by hand": {
			func(t *testing.T, _ *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				ended(t, m, runs.Request{Tasks: []string{"sessions"}})
				return ""
			}, false,
		},
		"after a run by hand that was pruned": {
			func(t *testing.T, db *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				ended(t, m, runs.Request{Tasks: []string{"sessions"}})
				db.Do("DELETE FROM cleanupd.run")
				return ""
			}, false,
		},
		"after a scheduled run of a plan": {
			func(t *testing.T, db *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				plan := ended(t, m, runs.Request{DryRun: true}).ID
				if run := scheduled(t, db, m, plan); run.State != store.Succeeded {
					t.Fatalf("the run of the plan is %s: %s", run.State, run.Error)
				}
				return ""
			}, false,
		},
		"with a plan": {
			func(t *testing.T, _ *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				return ended(t, m, runs.Request{DryRun: true}).ID
			}, false,
		},
		"with the guard switched off": {
			func(t *testing.T, _ *pgtest.DB, m *runs.Manager) string {
				t.Helper()
				setGuards(t, m, func(g *guard.Limits) { g.First = false })
				return ""
			}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "nothing before", "after a run by hand")
			t.Parallel()
			db := database(t)
			sessions(db, 3)
			m, work, _ := replica(t, db, "a", keeps)
			work()
			db.Until(stored)
			run := scheduled(t, db, m, c.prepare(t, db, m))
			if !c.refused {
				if run.State != store.Succeeded {
					t.Errorf("the scheduled run is %s: %s", run.State, run.Error)
				}
				return
			}
			if run.State != store.Failed || run.Reason() != failure.ReasonGuard || run.Results[0].RowsDeleted != 0 {
				t.Errorf("the scheduled run is %s: %s", run.State, run.Error)
			}
			if n := db.Int("SELECT count(*) FROM XtkSessionInfo"); n != 3 {
				t.Errorf("%d sessions are left, want 3", n)
			}
		})
	}
}
