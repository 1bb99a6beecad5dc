package runs_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

func replaceGuards(t *testing.T, m *runs.Manager, limits guard.Limits) error {
	t.Helper()
	_, _, err := m.SetGuards(t.Context(), "", "", func(guard.Limits) guard.Limits { return limits })
	return err
}

// A running replica whose guards judge tasks of ten rows or more.
func guarded(t *testing.T, db *pgtest.DB, change func(*guard.Limits)) *runs.Manager {
	t.Helper()
	m, work, _ := replica(t, db, "a", nil)
	setGuards(t, m, change)
	work()
	return m
}

func setGuards(t *testing.T, m *runs.Manager, change func(*guard.Limits)) {
	t.Helper()
	g := guard.DefaultLimits
	g.MinRows = 10
	if change != nil {
		change(&g)
	}
	if err := replaceGuards(t, m, g); err != nil {
		t.Fatal(err)
	}
}

func ended(t *testing.T, m *runs.Manager, req runs.Request) *store.Run {
	t.Helper()
	events := watch(t, m, start(t, m, req).ID)
	return events[len(events)-1].Run
}

// "": no guard refused the task.
func refusedIn(t *testing.T, run *store.Run, task string) string {
	t.Helper()
	result := run.Result(task)
	if result.Reason == "" {
		if result.State != cleanup.Succeeded {
			t.Fatalf("%s: %s %s", task, result.State, result.Error)
		}
		return ""
	}
	if result.Reason != failure.ReasonGuard || result.State != cleanup.Failed || run.State != store.Failed ||
		run.Reason() != failure.ReasonGuard ||
		result.RowsDeleted+result.RowsUpdated+result.TablesDropped != 0 {
		t.Fatalf("%+v of %s", result, run.State)
	}
	return result.Metadata["guard"] + " " + result.Metadata["number"]
}

// accepting returns a request for a run that follows a plan and accepts all guards of its preview.
func accepting(t *testing.T, m *runs.Manager, tasks ...string) (req runs.Request) {
	t.Helper()
	dry := ended(t, m, runs.Request{Tasks: tasks, DryRun: true})
	req.Plan = dry.ID
	for _, r := range dry.Results {
		for _, p := range r.Preview {
			req.Accepted = append(req.Accepted, p.Guards...)
		}
	}
	return req
}

func audits(db *pgtest.DB, from, to int, age string) {
	db.Do(
		"INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, now() - $3::text::interval FROM "+
			"generate_series($1::int, $2::int) i",
		from,
		to,
		age,
	)
}

// No more than a share of a table may be deleted: not by one task, by several, or by many runs within a day. A table
// that is regularly emptied is exempt.
func TestGuardShare(t *testing.T) {
	t.Parallel()
	db := database(t)
	m := guarded(t, db, nil)
	audits(db, 1, 50, "1 year")
	audits(db, 51, 100, "1 day")
	if got := refusedIn(t, ended(t, m, runs.Request{Tasks: []string{"audit-trail"}}), "audit-trail"); got != "" {
		t.Errorf("half of a table is refused: %s", got)
	}
	db.Do("TRUNCATE XtkAudit; TRUNCATE cleanupd.deletion")
	audits(db, 1, 51, "1 year")
	audits(db, 52, 100, "1 day")
	if got := refusedIn(
		t, ended(t, m, runs.Request{Tasks: []string{"audit-trail"}}), "audit-trail",
	); got != "share 51" ||
		db.Int("SELECT count(*) FROM XtkAudit") != 100 {
		t.Errorf("more than half of a table: %q", got)
	}
	t.Run("few rows", func(t *testing.T) {
		suite.Only(t, suite.Long)
		db := database(t)
		m := guarded(t, db, nil)
		audits(db, 1, 9, "1 year")
		if got := refusedIn(t, ended(t, m, runs.Request{Tasks: []string{"audit-trail"}}), "audit-trail"); got != "" {
			t.Error(got)
		}
	})
	t.Run("regularly emptied", func(t *testing.T) {
		suite.Only(t, suite.Long)
		db := database(t)
		m := guarded(t, db, nil)
		sessions(db, 50)
		if got := refusedIn(t, ended(t, m, runs.Request{Tasks: []string{"sessions"}}), "sessions"); got != "" {
			t.Error(got)
		}
	})
	t.Run("many runs", func(t *testing.T) {
		db := database(t)
		m := guarded(t, db, nil)
		audits(db, 1, 100, "1 day")
		var got string
		for i := 0; i < 10 && got == ""; i++ {
			db.Do("UPDATE XtkAudit SET tsChanged = now() - interval '1 year' WHERE iAuditId BETWEEN $1 AND $2", i*15+1,
				i*15+15)
			got = refusedIn(t, ended(t, m, runs.Request{Tasks: []string{"audit-trail"}}), "audit-trail")
		}
		if left := db.Int("SELECT count(*) FROM XtkAudit"); got != "share 51" || left != 55 {
			t.Errorf("%q, with %d rows left", got, left)
		}
	})
	t.Run("restored rows", func(t *testing.T) {
		db := database(t)
		m := guarded(t, db, nil)
		audits(db, 1, 40, "1 year")
		audits(db, 41, 100, "1 day")
		hour := time.Hour
		for _, want := range []string{"", "", "share 51"} { // only the rows of the first run are restored
			run := ended(t, m, runs.Request{Tasks: []string{"audit-trail"}, Undo: &hour})
			if got := refusedIn(t, run, "audit-trail"); got != want {
				t.Errorf("%q is refused, want %q", got, want)
			}
			if deletions := db.Int("SELECT count(*) FROM cleanupd.deletion"); deletions > 1 {
				db.Do("UPDATE XtkAudit SET tsChanged = '2000-01-01' WHERE iAuditId BETWEEN 41 AND 61")
				continue
			}
			back, err := m.StartRestore(t.Context(), runs.RestoreRequest{Run: run.ID})
			if err != nil {
				t.Fatal(err)
			}
			watch(t, m, back.ID)
		}
	})
	t.Run("statistics of before", func(t *testing.T) {
		suite.Only(t, suite.Long)
		db := database(t)
		m := guarded(t, db, nil)
		db.Do(`ALTER TABLE NmsBroadLogRcp SET (autovacuum_enabled = false);
			INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
			INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) VALUES (1, 1, '2020-01-01'), (2, 0, NULL)`)
		analyzed(
			t,
			db,
			"NmsBroadLogRcp",
			`INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, tsLastModified) SELECT i, CASE
				WHEN i <= 90 THEN 1 ELSE 2 END, now() - CASE WHEN i BETWEEN 91
				AND 520 THEN interval '3 years' ELSE interval '1 day' END
			FROM generate_series(1, 1000) i`,
		)
		run := ended(t, m, runs.Request{Tasks: []string{"deliveries", "delivery-logs"}, ContinueOnError: true})
		if first, second := refusedIn(t, run, "deliveries"), refusedIn(t, run, "delivery-logs"); first != "" ||
			second != "share 501" {
			t.Errorf("%q, %q, with %d rows left", first, second, db.Int("SELECT count(*) FROM NmsBroadLogRcp"))
		}
	})
	t.Run("two tasks", func(t *testing.T) {
		db := database(t)
		m := guarded(t, db, nil)
		db.Do(`INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
			INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) VALUES (1, 1, '2020-01-01'), (2, 0, NULL);
			INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, tsEvent, tsLastModified) SELECT i, CASE
				WHEN i <= 40 THEN 1 ELSE 2 END, now() - CASE WHEN i BETWEEN 41
				AND 60 THEN interval '3 years' ELSE interval '1 day' END, now() - CASE WHEN i BETWEEN 41
				AND 60 THEN interval '3 years' ELSE interval '1 day' END
			FROM generate_series(1, 100) i`)
		run := ended(t, m, runs.Request{Tasks: []string{"deliveries", "delivery-logs"}, ContinueOnError: true})
		if first, second := refusedIn(t, run, "deliveries"), refusedIn(
			t, run, "delivery-logs",
		); first != "" || second != "share 51" ||
			db.Int("SELECT count(*) FROM NmsBroadLogRcp") != 60 {
			t.Errorf("%q, %q: %+v %+v %d", first, second, run.Result("deliveries"), run.Result("delivery-logs"),
				db.Int("SELECT count(*) FROM cleanupd.deletion"))
		}
	})
}

// Retained rows do not count for the guard of the share: rows of deliveries that are retained because those on their
// mid-sourcing servers are, and of deliveries with a row on hold.
func TestGuardShareOfWhatStays(t *testing.T) {
	t.Parallel()
	const mappings = "INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, " +
		"'nms:broadLogRcp');"
	for name, c := range map[string]struct {
		fill string
		hold store.Hold
	}{
		"kept": {fill: `INSERT INTO NmsExtAccount (iExtAccountId, sName, iActive) VALUES (5, 'far', 1);
			INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iDeliveryMode, iMidRemoteId,
				iDeliveryProviderId) VALUES (1, 1, '2020-01-01', 4, 77, 5), (2, 0, NULL, 0, 0, 0);
			INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) SELECT i, CASE WHEN i <= 60 THEN 1 ELSE 2 END
				FROM generate_series(1, 100) i`},
		"held": {
			fill: `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) SELECT i, CASE
				WHEN i <= 60 THEN 1 ELSE 0 END, '2020-01-01' FROM generate_series(1, 100) i;
			INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iRecipientId) SELECT i, i, 9
				FROM generate_series(1, 60) i`,
			hold: store.Hold{Kind: store.HoldRecipients, IDs: []int64{9}, Reason: "a test"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "held")
			t.Parallel()
			db := database(t)
			m, work, _ := replica(t, db, "a", func(c *runs.Config) { c.MidSourcing.Keep = []string{"far"} })
			setGuards(t, m, nil)
			work()
			db.Do(mappings + c.fill)
			if c.hold.Kind != "" {
				if _, err := m.CreateHold(t.Context(), c.hold); err != nil {
					t.Fatal(err)
				}
			}
			if run := ended(t, m, runs.Request{Tasks: []string{"deliveries"}}); run.State != store.Succeeded ||
				run.Result("deliveries").RowsDeleted != 0 {
				t.Errorf("%s %s: %+v", run.State, run.Error, run.Result("deliveries"))
			}
		})
	}
}

// With fresh statistics. The statistics of a session are complete when it has ended.
func analyzed(t *testing.T, db *pgtest.DB, table, fill string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	pid := conn.PgConn().PID()
	_, err = conn.Exec(t.Context(), fill)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	db.Until("SELECT (count(*) = 0)::int FROM pg_stat_activity WHERE pid = $1", int64(pid))
	db.Do("ANALYZE " + table)
}

// A guard that tripped trips again, even for fewer rows, until a plan that accepts it has run, or the guard or an
// option of the task is changed. More than the accepted number is refused as well.
func TestGuardsRefuseAgain(t *testing.T) {
	t.Parallel()
	db := database(t)
	m := guarded(t, db, nil)
	audits(db, 1, 80, "1 year")
	audits(db, 81, 100, "1 day")
	task := []string{"audit-trail"}
	try := func() string { return refusedIn(t, ended(t, m, runs.Request{Tasks: task}), "audit-trail") }
	dry := ended(t, m, runs.Request{Tasks: task, DryRun: true})
	if p := dry.Result("audit-trail").Preview; dry.State != store.Succeeded || len(p) != 1 || len(p[0].Guards) != 1 ||
		p[0].Guards[0] != (guard.Trip{Guard: guard.Share, Table: p[0].Table, Number: 80, Limit: 50, Total: 100}) {
		t.Fatalf("the preview: %+v", p)
	}
	if _, refusals, err := m.Guards(t.Context()); err != nil || len(refusals) > 0 {
		t.Fatalf("a dry run refuses for good: %+v, %v", refusals, err)
	}
	if got := try(); got != "share 51" {
		t.Fatal(got)
	}
	db.Do("DELETE FROM XtkAudit WHERE iAuditId <= 75")
	if got := try(); got != "share 51" {
		t.Errorf("it does not stay refused: %q", got)
	}
	if n := measured(t, m, "cleanupd_guard_refused", "share"); n != 1 {
		t.Errorf("the metric is %v", n)
	}
	if got := refusedIn(
		t, ended(t, m, runs.Request{Plan: ended(t, m, runs.Request{Tasks: task, DryRun: true}).ID}), "audit-trail",
	); got != "share 51" {
		t.Errorf("a plan passed the guard unaccepted: %q", got)
	}
	req := accepting(t, m, task...)
	if len(req.Accepted) != 1 || req.Accepted[0].Number != 5 {
		t.Fatalf("%+v", req.Accepted)
	}
	less := req
	less.Accepted = []guard.Trip{req.Accepted[0]}
	less.Accepted[0].Number = 4
	if got := refusedIn(t, ended(t, m, less), "audit-trail"); got != "" { // 5 rows are too few to judge by now
		t.Errorf("%q", got)
	}
	if _, refusals, err := m.Guards(t.Context()); err != nil || len(refusals) > 0 {
		t.Errorf("what was accepted is still refused: %+v, %v", refusals, err)
	}
	audits(db, 1, 80, "1 year")
	if got := try(); got == "" {
		t.Fatal("it did not trip again")
	}
	less = accepting(t, m, task...)
	less.Accepted[0].Number--
	if got := refusedIn(t, ended(t, m, less), "audit-trail"); got != "share 80" {
		t.Errorf("one more than was accepted: %q", got)
	}
	if got := refusedIn(t, ended(t, m, accepting(t, m, task...)), "audit-trail"); got != "" ||
		db.Int("SELECT count(*) FROM XtkAudit") != 20 {
		t.Errorf("what was accepted: %q", got)
	}
	for _, release := range []func(){
		func() { setGuards(t, m, func(g *guard.Limits) { g.MaxSharePercent = 0 }) },
		func() { setGuards(t, m, func(g *guard.Limits) { g.MinRows = 1_000 }) },
		func() {
			db.Do("INSERT INTO XtkOption (iOptionId, sName, iLongValue, iDataType) VALUES (1, " +
				"'XtkCleanup_AuditTrailPurgeDelay', 86400 * 400, 3)")
		},
	} {
		setGuards(t, m, nil)
		db.Do("TRUNCATE cleanupd.deletion; TRUNCATE XtkAudit")
		audits(db, 1, 80, "1 year")
		if got := try(); got != "share 41" {
			t.Fatal(got)
		}
		release()
		if got := try(); got != "" {
			t.Errorf("still refused: %q", got)
		}
	}
}

// A backlog has to be accepted only once: accepted rows do not count in later runs of the day, and no guard trips for a
// task without rows to delete.
func TestWhatWasAcceptedOnce(t *testing.T) {
	t.Parallel()
	db := database(t)
	m := guarded(t, db, nil)
	audits(db, 1, 160, "1 year")
	audits(db, 161, 200, "1 day")
	task := []string{"audit-trail"}
	if got := refusedIn(t, ended(t, m, accepting(t, m, task...)), "audit-trail"); got != "" {
		t.Fatal(got)
	}
	age := func(from, to int) string {
		db.Do("UPDATE XtkAudit SET tsChanged = now() - interval '1 year' WHERE iAuditId BETWEEN $1 AND $2", from, to)
		return refusedIn(t, ended(t, m, runs.Request{Tasks: task}), "audit-trail")
	}
	if got := age(0, 0); got != "" {
		t.Errorf("nothing to do: %q", got)
	}
	if got := age(161, 175); got != "" {
		t.Errorf("15 of 40: %q", got)
	}
	if got := age(176, 185); got != "share 21" {
		t.Errorf("25 of 40: %q", got)
	}
	setGuards(t, m, func(g *guard.Limits) { g.MaxSharePercent = 10 })
	db.Do("DELETE FROM XtkAudit WHERE iAuditId BETWEEN 176 AND 185")
	if got := age(0, 0); got != "" {
		t.Errorf("nothing to do, after more than may go: %q", got)
	}
}

// A plan that accepts a guard releases it when it has run, even if the task failed.
func TestAPlanThatFailsEndsRefusals(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	m := guarded(t, db, nil)
	audits(db, 1, 1500, "1 year")
	task := []string{"audit-trail"}
	if got := refusedIn(t, ended(t, m, runs.Request{Tasks: task}), "audit-trail"); got != "share 751" {
		t.Fatal(got)
	}
	db.Do(`CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
		CREATE TRIGGER no BEFORE DELETE ON XtkAudit FOR EACH ROW EXECUTE FUNCTION no()`)
	if run := ended(t, m, accepting(t, m, task...)); run.State != store.Failed || run.Reason() != "" {
		t.Fatalf("%s %s", run.State, run.Error)
	}
	if _, refusals, err := m.Guards(t.Context()); err != nil || len(refusals) > 0 {
		t.Errorf("%+v, %v", refusals, err)
	}
}

// A dry run shows a guard that has refused before, with a number that can be accepted, even if no rows are left to
// delete.
func TestARefusalIsShown(t *testing.T) {
	t.Parallel()
	db := database(t)
	m := guarded(t, db, nil)
	db.Do(
		"INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) SELECT i, CASE WHEN i <= 60 THEN 1 ELSE 0 " +
			"END, '2020-01-01' FROM generate_series(1, 100) i",
	)
	if got := refusedIn(t, ended(t, m, runs.Request{Tasks: []string{"deliveries"}}), "deliveries"); got != "share 51" {
		t.Fatal(got)
	}
	db.Do("UPDATE NmsDelivery SET iDeleteStatus = 0")
	if got := refusedIn(t, ended(t, m, runs.Request{Tasks: []string{"deliveries"}}), "deliveries"); got != "share 51" {
		t.Fatal(got)
	}
	req := accepting(t, m, "deliveries")
	if len(req.Accepted) != 1 || req.Accepted[0].Number != 0 {
		t.Fatalf("%+v", req.Accepted)
	}
	if run := ended(t, m, req); run.State != store.Succeeded {
		t.Error(run.Error)
	}
	if _, refusals, err := m.Guards(t.Context()); err != nil || len(refusals) > 0 {
		t.Errorf("%+v, %v", refusals, err)
	}
}

// A cutoff that moves with time trips no guard. One that moved faster does if there are rows in between, and so does a
// clock that jumped.
func TestGuardCutoff(t *testing.T) {
	t.Parallel()
	db := database(t)
	m := guarded(t, db, func(g *guard.Limits) { g.MaxSharePercent = 0 })
	task := []string{"audit-trail"}
	try := func() string { return refusedIn(t, ended(t, m, runs.Request{Tasks: task}), "audit-trail") }
	audits(db, 1, 5, "1 year")
	audits(db, 11, 25, "130 days")
	audits(db, 31, 100, "1 day")
	if got := try(); got != "" {
		t.Fatal(got)
	}
	db.Do(
		"UPDATE cleanupd.cutoff SET cutoff = cutoff - interval '100 days', reference_time = reference_time - " +
			"interval '100 days'",
	)
	audits(db, 1, 5, "181 days")
	audits(db, 101, 150, "200 days")
	if got := try(); got != "" {
		t.Errorf("time that passed is refused: %s", got)
	}
	db.Do(
		"INSERT INTO XtkOption (iOptionId, sName, iLongValue, iDataType) VALUES (1, " +
			"'XtkCleanup_AuditTrailPurgeDelay', 86400 * 135, 3)",
	)
	if got := try(); got != "" {
		t.Errorf("a shorter delay without rows between: %s", got)
	}
	db.Do("UPDATE XtkOption SET iLongValue = 86400 * 90")
	dry := ended(t, m, runs.Request{Tasks: task, DryRun: true})
	if p := dry.Result(
		"audit-trail",
	).Preview; len(p) != 1 || len(p[0].Guards) != 1 || p[0].Guards[0].Guard != guard.Cutoff ||
		p[0].Guards[0].Number != 15 {
		t.Errorf("the preview: %+v", p)
	}
	if got := try(); got != "cutoff 10" {
		t.Errorf("a shorter delay: %q", got)
	}
	db.Do("UPDATE XtkOption SET iLongValue = 86400 * 135")
	if got := try(); got != "" {
		t.Errorf("the longer delay again: %q", got)
	}
	db.Do("UPDATE XtkOption SET iLongValue = 86400 * 90")
	if got := refusedIn(t, ended(t, m, accepting(t, m, task...)), "audit-trail"); got != "" {
		t.Errorf("accepted: %q", got)
	}
	audits(db, 11, 25, "89 days")
	if got := try(); got != "" {
		t.Errorf("after it was accepted: %q", got)
	}
	// The database's clock was set 60 days ahead, and is ahead of the replica's.
	db.Do(
		"UPDATE cleanupd.cutoff SET cutoff = cutoff - interval '60 days', reference_time = reference_time - interval " +
			"'60 days', clock_offset = clock_offset + 60 * 86400000000",
	)
	db.Do("UPDATE XtkAudit SET tsChanged = now() - interval '100 days' WHERE iAuditId BETWEEN 11 AND 25")
	if got := try(); got != "cutoff 10" {
		t.Errorf("a clock that jumped: %q", got)
	}
}

// Tasks whose rules have no delay may not delete ten times as many rows as usual. Runs that a guard refused, or for
// which it was accepted, do not count as usual.
func TestGuardGrowth(t *testing.T) {
	t.Parallel()
	db := database(t)
	m := guarded(t, db, func(g *guard.Limits) { g.MaxSharePercent = 0 })
	task := []string{"subscriptions"}
	try := func(rows int) string {
		db.Do("DELETE FROM NmsSubscription")
		db.Do(
			"INSERT INTO NmsSubscription (iServiceId, iRecipientId, iDeleteStatus) SELECT 1, i, CASE WHEN i <= "+
				"$1::int THEN 1 ELSE 0 END FROM generate_series(1, 1000) i",
			rows,
		)
		return refusedIn(t, ended(t, m, runs.Request{Tasks: task}), "subscriptions")
	}
	if got := try(500); got != "" {
		t.Errorf("there is nothing to compare with: %q", got)
	}
	db.Do("TRUNCATE cleanupd.deletion")
	for _, rows := range []int{3, 30, 2} {
		if got := try(rows); got != "" {
			t.Fatalf("%d rows: %q", rows, got)
		}
	}
	if got := try(300); got != "" {
		t.Errorf("ten times the most: %q", got)
	}
	db.Do("DELETE FROM cleanupd.deletion WHERE rows_deleted = 300")
	if got := try(301); got != "growth 301" || db.Int("SELECT count(*) FROM NmsSubscription") != 1000 {
		t.Errorf("more than that: %q", got)
	}
	if got := refusedIn(t, ended(t, m, accepting(t, m, task...)), "subscriptions"); got != "" {
		t.Errorf("accepted: %q", got)
	}
	if got := try(301); got != "growth 301" {
		t.Errorf("what was accepted counts as usual: %q", got)
	}
	setGuards(t, m, func(g *guard.Limits) { g.MaxSharePercent, g.MaxGrowth = 0, 1 })
	db.Do("DELETE FROM cleanupd.deletion WHERE rows_deleted > 30")
	if got := try(60); got != "growth 31" {
		t.Errorf("twice as many: %q", got)
	}
}

// A task drops work tables up to a number and a size. The tables of lists count as well.
func TestGuardDrops(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task, make string
		change     func(g *guard.Limits)
		want       string // with four tables; with three, none
	}{
		"tables": {
			"workflow-instances",
			"CREATE TABLE wkDlv_%d (i int)",
			func(g *guard.Limits) { g.MaxTables = 3 },
			"tables 4",
		},
		"tables of lists": {
			"lists-to-delete",
			"CREATE TABLE grp%[1]d (i int); INSERT INTO NmsGroup (iGroupId, iType, iDeleteStatus) VALUES (%[1]d, 1, 1)",
			func(g *guard.Limits) { g.MaxTables = 3 },
			"tables 4",
		},
		"bytes": {
			"workflow-instances",
			"CREATE TABLE wkDlv_%d (i int); INSERT INTO wkDlv_%d SELECT 1 FROM generate_series(1, 40000)",
			func(g *guard.Limits) { g.MaxDropPercent = 30 },
			"bytes 5",
		},
		"partitions": {
			"workflow-instances",
			"CREATE TABLE wkDlv_%d (i int) PARTITION BY RANGE (i); CREATE " +
				"TABLE part_%[1]d PARTITION OF wkDlv_%d DEFAULT; INSERT INTO wkDlv_%d SELECT 1 FROM generate_series(1, " +
				"40000)",
			func(g *guard.Limits) { g.MaxDropPercent = 30 },
			"bytes 5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "tables of lists", "bytes")
			t.Parallel()
			db := database(t)
			db.Do(
				"INSERT INTO NmsDelivery (iDeliveryId, iState) VALUES (99, 95); INSERT INTO XtkWorkflow " +
					"(iWorkflowId) VALUES (99)",
			)
			m := guarded(t, db, c.change)
			create := func(from, to int) {
				for id := from; id <= to; id++ {
					db.Do(strings.ReplaceAll(
						strings.ReplaceAll(c.make, "%[1]d", strconv.Itoa(id)), "%d", strconv.Itoa(id),
					))
				}
			}
			create(1, 3)
			if got := refusedIn(t, ended(t, m, runs.Request{Tasks: []string{c.task}}), c.task); got != "" {
				t.Errorf("three: %q", got)
			}
			create(1, 4)
			if got := refusedIn(t, ended(t, m, runs.Request{Tasks: []string{c.task}}), c.task); !strings.HasPrefix(
				got, c.want,
			) {
				t.Errorf("four: %q", got)
			}
			if got := refusedIn(t, ended(t, m, accepting(t, m, c.task)), c.task); got != "" ||
				db.Int("SELECT count(*) FROM pg_class WHERE relname ~ '^(wkdlv_|grp)[0-9]'") != 0 {
				t.Errorf("accepted: %q", got)
			}
		})
	}
}

// A table that is named like the table of a list which has none is not dropped, and does not count.
func TestGuardDropsOfLists(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do(
		"CREATE TABLE grp1 (i int); CREATE TABLE grp2 (i int); INSERT INTO NmsGroup (iGroupId, iType, iDeleteStatus) " +
			"VALUES (1, 1, 1), (2, 0, 1)",
	)
	m := guarded(t, db, func(g *guard.Limits) { g.MaxTables = 1 })
	run := ended(t, m, runs.Request{Tasks: []string{"lists-to-delete"}})
	if got := refusedIn(t, run, "lists-to-delete"); got != "" || run.Result("lists-to-delete").TablesDropped != 1 {
		t.Errorf("%q: %+v", got, run.Result("lists-to-delete"))
	}
}

// A run is refused, before its first task, when the clocks differ, or the database's is earlier than the last run's;
// and when the application has done nothing for long, as in a restored copy. A dry run is warned.
func TestGuardsOfTheStart(t *testing.T) {
	t.Parallel()
	db := database(t)
	sessions(db, 5)
	m := guarded(t, db, nil)
	try := func(guard string, trips bool) {
		t.Helper()
		run := ended(t, m, runs.Request{Tasks: []string{"sessions"}})
		refused := run.State == store.Failed && run.Reason() == failure.ReasonGuard &&
			strings.Contains(run.Error, "guard "+guard) &&
			run.Result("sessions").State == cleanup.NotRun
		if refused != trips || (!trips && run.State != store.Succeeded) {
			t.Errorf("%s: %s %s", guard, run.State, run.Error)
		}
		events := watch(t, m, start(t, m, runs.Request{Tasks: []string{"sessions"}, DryRun: true}).ID)
		if dry := events[len(events)-1].Run; dry.State != store.Succeeded ||
			said(events, "WARNING", "guard "+guard) != trips {
			t.Errorf("%s: the dry run %s: %q", guard, dry.State, logs(events))
		}
	}
	try("idle", false) // no activity of the application is known
	db.Do(
		"INSERT INTO XtkWorkflowLog (iWorkflowLogId, tsLog) VALUES (1, now() - interval '44 days'), (2, now() + " +
			"interval '1 day'), (3, NULL)",
	)
	try("idle", false)
	db.Do("UPDATE XtkWorkflowLog SET tsLog = now() - interval '46 days' WHERE iWorkflowLogId = 1")
	try("idle", true)
	db.Do("INSERT INTO NmsBatchEvent (iBatchEventId, tsCreated) VALUES (1, now() - interval '10 days')")
	try("idle", false)
	db.Do(
		"TRUNCATE NmsBatchEvent; INSERT INTO NmsEventHisto (biEventHistoId, tsCreated) VALUES (1, now() - interval " +
			"'10 days')",
	)
	try("idle", false)
	db.Do("TRUNCATE NmsEventHisto")
	try("idle", true)
	setGuards(t, m, func(g *guard.Limits) { g.MaxIdle = 0 })
	try("idle", false)
	db.Do(
		"UPDATE cleanupd.run SET start_time = start_time + interval '1 hour' WHERE NOT dry_run AND state = 'SUCCEEDED'")
	try("clock", true)
	setGuards(t, m, func(g *guard.Limits) { g.MaxIdle, g.MaxClockDifference = 0, 0 })
	try("clock", false)
}

// Invalid settings are named, and nothing is stored.
func TestGuardsAreChecked(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, _, _ := replica(t, db, "a", nil)
	for field, change := range map[string]func(g *guard.Limits){
		"min_rows":             func(g *guard.Limits) { g.MinRows = -1 },
		"max_share_percent":    func(g *guard.Limits) { g.MaxSharePercent = 101 },
		"max_growth":           func(g *guard.Limits) { g.MaxGrowth = 0.5 },
		"max_tables":           func(g *guard.Limits) { g.MaxTables = -1 },
		"max_drop_percent":     func(g *guard.Limits) { g.MaxDropPercent = -1 },
		"max_clock_difference": func(g *guard.Limits) { g.MaxClockDifference = -time.Second },
		"max_idle":             func(g *guard.Limits) { g.MaxIdle = -1 },
	} {
		g := guard.DefaultLimits
		change(&g)
		var invalid failure.Violations
		if err := replaceGuards(t, m, g); !errors.As(err, &invalid) || len(invalid) != 1 ||
			invalid[0].Field != "guards."+field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if g, _, err := m.Guards(t.Context()); err != nil || g != guard.DefaultLimits {
		t.Errorf("%+v, %v", g, err)
	}
}

// The limit on process instances applies only to purges: changing it does not release refusals of policies and built-in
// tasks.
func TestRefusalsOfOtherTasksStay(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	conn, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := store.Migrate(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	db.Do(`INSERT INTO cleanupd.guard_refusal (task, task_kind, guard, table_name, number, number_limit, options, run_id)
		SELECT task, kind, 'share', 't', 2, 1, '{}', gen_random_uuid() FROM (VALUES ('sessions', 'BUILT_IN'),
			('policy/old', 'POLICY'), ('policy/forms', 'POLICY'), ('forms/loans', 'EXTERNAL')) AS t (task, kind)`)
	limits := guard.DefaultLimits
	limits.MinProcessInstances++
	if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		return store.SetGuardLimits(t.Context(), tx, guard.DefaultLimits, limits)
	}); err != nil {
		t.Fatal(err)
	}
	refused := db.Strings("SELECT task FROM cleanupd.guard_refusal ORDER BY 1")
	if want := []string{"policy/forms", "policy/old", "sessions"}; !slices.Equal(refused, want) {
		t.Errorf("%v, not %v", refused, want)
	}
}
