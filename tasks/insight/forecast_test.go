package insight_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func newForecaster(t *testing.T, db *pgtest.DB) *insight.Forecaster {
	t.Helper()
	c := cleanup.Config{Pool: db.Pool, Pipeline: tasks.Pipeline}
	f, err := insight.NewForecaster(t.Context(), c, rules.Holds{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// history fills a year: nights that grow, a holiday with three times as many rows, and a month in which hardly anything
// was written. perDay is how many rows the first day has.
func history(db *pgtest.DB, perDay int) {
	db.Do(fmt.Sprintf(`
		CREATE TABLE night AS SELECT d, (%d * (1 + d / 365.0) * CASE WHEN d BETWEEN 180 AND 187 THEN 3
			WHEN d BETWEEN 240 AND 270 THEN 0.1 ELSE 1 END)::int AS rows FROM generate_series(0, 400) d;
		CREATE FUNCTION pg_temp.times(delay interval) RETURNS SETOF timestamptz LANGUAGE sql AS $$
			SELECT now() - delay - interval '185 days' + d * interval '1 day' + i * interval '1 day' / rows
			FROM night, generate_series(0, rows - 1) i WHERE d BETWEEN 185 AND 199 $$;
		INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema, sTrackingLogSchema)
			VALUES (1, 'nms:broadLogRcp', 'nms:trackingLogRcp');
		DELETE FROM XtkAudit; DELETE FROM NmsBroadLogRcp; DELETE FROM NmsTrackingLogRcp; DELETE FROM NmsRtEvent;
		INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT row_number() OVER (), t FROM pg_temp.times('180 days') t;
		INSERT INTO NmsBroadLogRcp (iBroadLogId, tsLastModified)
			SELECT row_number() OVER (), t FROM pg_temp.times('180 days') t;
		INSERT INTO NmsTrackingLogRcp (iTrackingLogId, tsLog)
			SELECT row_number() OVER (), t FROM pg_temp.times('365 days') t;
		INSERT INTO NmsRtEvent (iRtEventId, iStatus, tsCreated, tsLastModified)
			SELECT row_number() OVER (), 0, t, t FROM pg_temp.times('30 days') t;
		ANALYZE`, perDay))
}

// The forecast of each night is what a run of that night would find, within a fifth.
func TestNightsOfAYear(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	perDay := suite.Size(suite.Long, 500, 12_000)
	history(db, perDay)
	f := newForecaster(t, db)
	for _, task := range tasks.Pipeline {
		due, err := f.Task(t.Context(), task)
		if err != nil {
			t.Fatalf("%s: %v", task.Name, err)
		}
		if !due.Known {
			t.Errorf("%s: %s", task.Name, due.Why)
		}
		table, column := "", ""
		delay := 0
		switch task.Name {
		case "audit-trail":
			table, column, delay = "XtkAudit", "tsChanged", 180
		case "delivery-logs":
			table, column, delay = "NmsBroadLogRcp", "tsLastModified", 180
		case "tracking-logs":
			table, column, delay = "NmsTrackingLogRcp", "tsLog", 365
		case "expired-events":
			table, column, delay = "NmsRtEvent", "tsCreated", 30
		default:
			continue
		}
		within := due.Now
		for day := range insight.ForecastDays {
			within += due.PerDay[day]
			at := f.Now().Add(time.Duration(day+1) * 24 * time.Hour)
			actual := db.Int(
				fmt.Sprintf("SELECT count(*) FROM %s WHERE %s < $1::timestamptz - interval '%d days'", table, column,
					delay),
				at)
			if math.Abs(float64(within-actual)) > 0.2*float64(actual) || actual == 0 {
				t.Errorf("%s, day %d: %d rows, forecast %d", task.Name, day, actual, within)
			}
		}
	}
}

// A forecast says which tasks were left out for lack of time, and which rights a run lacks.
func TestCountingEnds(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	f := newForecaster(t, db)
	of := func() insight.Due {
		t.Helper()
		i := slices.IndexFunc(tasks.Pipeline, func(t rules.Task) bool { return t.Name == "audit-trail" })
		due, err := f.Task(t.Context(), tasks.Pipeline[i])
		if err != nil {
			t.Fatal(err)
		}
		return due
	}
	if due := of(); !due.Known || due.Why != "" {
		t.Errorf("%+v", due)
	}
	db.Do("REVOKE DELETE ON XtkAudit FROM neolane")
	f = newForecaster(t, db)
	if due := of(); !due.Known || !strings.Contains(due.Why, `GRANT DELETE ON "public"."xtkaudit" TO "neolane"`) {
		t.Errorf("%+v", due)
	}
	f.Until = time.Now()
	if due := of(); due.Known || !strings.Contains(due.Why, "not counted") {
		t.Errorf("%+v", due)
	}
}

// Rows that foreign keys of other tables keep are not due.
func TestKeptRowsAreNotDue(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE customer (id int PRIMARY KEY, seen timestamptz);
		INSERT INTO customer SELECT i, '2020-01-01' FROM generate_series(1, 10) i;
		CREATE TABLE purchase (customer int REFERENCES customer); INSERT INTO purchase VALUES (3), (4), (4), (7)`)
	p := policy.Policy{
		Name: "customers", Table: "customer", Enabled: true, OlderThan: &policy.OlderThan{Column: "seen", Days: new(30)},
	}
	c := cleanup.Config{Pool: db.Pool, Pipeline: []rules.Task{p.Task()}, NoCampaign: true}
	f, err := insight.NewForecaster(t.Context(), c, rules.Holds{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if due, err := f.Task(t.Context(), p.Task()); err != nil || due.Now != 7 || !due.Exact {
		t.Errorf("%+v, %v; want 7 rows, since purchases keep the others", due, err)
	}
}

// The number of the next run is counted at its time, and is part of its day's.
func TestNextRunIsCounted(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE event (at timestamptz);
		INSERT INTO event SELECT now() - interval '30 days' + i * interval '1 hour' FROM generate_series(-9, 100) i`)
	p := policy.Policy{
		Name: "events", Table: "event", Enabled: true, OlderThan: &policy.OlderThan{Column: "at", Days: new(30)},
	}
	c := cleanup.Config{Pool: db.Pool, Pipeline: []rules.Task{p.Task()}, NoCampaign: true}
	for hours, want := range map[int]int64{-1: 10, 0: 10, 7: 16, 24: 33, 30: 39, 24 * 20: 110} {
		next := time.Now().Add(time.Duration(hours)*time.Hour - time.Minute)
		f, err := insight.NewForecaster(t.Context(), c, rules.Holds{}, next)
		if err != nil {
			t.Fatal(err)
		}
		due, err := f.Task(t.Context(), p.Task())
		if err != nil || due.NextRun != want || due.Now != 10 || due.PerDay[0] != 24 || due.PerDay[1] != 24 {
			t.Errorf("in %d hours: %+v, %v; want %d", hours, due, err, want)
		}
	}
}
