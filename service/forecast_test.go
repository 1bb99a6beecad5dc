package service_test

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

func forecastOf(t *testing.T, f *cleanupv1.GetForecastResponse, task string) *cleanupv1.TaskForecast {
	t.Helper()
	i := slices.IndexFunc(f.GetTasks(), func(f *cleanupv1.TaskForecast) bool { return f.GetTask() == task })
	if i < 0 {
		t.Fatalf("no forecast of %s: %v", task, f)
	}
	return f.GetTasks()[i]
}

// A forecast has the rows that are obsolete now, and that become so on each of the next days: in logs, in rows of
// deliveries, and by a policy. Its number for a night is what the run of that night deletes.
func TestForecast(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(`DELETE FROM XtkAudit;
		INSERT INTO XtkAudit (iAuditId, tsChanged)
			SELECT i, now() - interval '180 days' + (i - 100) * interval '1 hour' - interval '30 minutes'
			FROM generate_series(1, 500) i;
		CREATE TABLE cus_event (id bigint PRIMARY KEY, at timestamptz NOT NULL);
		INSERT INTO cus_event SELECT i, now() - interval '30 days' + (i - 50) * interval '6 hours' + interval '1 minute'
			FROM generate_series(1, 200) i;
		INSERT INTO NmsDelivery (iDeliveryId, iState, iDeleteStatus, tsDelete)
			VALUES (77001, 0, 1, now() - interval '7 days' + interval '36 hours');
		INSERT INTO NmsDeliveryStat (iDeliveryId, tsDate) SELECT 77001, now() - i * interval '1 day' FROM
			generate_series(1, 9) i`)
	setPolicy(t, s, &cleanupv1.Policy{
		Name: "events", Table: "cus_event", Enabled: true, OlderThan: olderThan("at", 30),
	})
	f, err := s.GetForecast(t.Context(), &cleanupv1.GetForecastRequest{})
	if err != nil {
		t.Fatal(err)
	}
	audit := forecastOf(t, f, "audit-trail")
	if audit.GetDueNow() != 100 || !audit.GetExact() || audit.GetDueNextRun() != 100 ||
		!slices.Equal(audit.GetDuePerDay(), slices.Repeat([]int64{24}, 14)) {
		t.Errorf("%v", audit)
	}
	events := forecastOf(t, f, "policy/events")
	if events.GetDueNow() != 49 || !slices.Equal(events.GetDuePerDay(), slices.Repeat([]int64{4}, 14)) {
		t.Errorf("%v", events)
	}
	if d := forecastOf(t, f, "deliveries"); len(d.GetDuePerDay()) != 14 || d.GetDuePerDay()[1] != 10 {
		t.Errorf("%v", d)
	}
	if d := forecastOf(t, f, "statistics"); d.GetDueNow() != 0 ||
		d.GetBound() != cleanupv1.ForecastBound_FORECAST_BOUND_NOT_SCHEDULED {
		t.Errorf("%v", d)
	}
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"audit-trail"}})
	if err != nil || resultOf(run, "audit-trail").GetRowsDeleted() != 100 {
		t.Errorf("%v %v", run, err)
	}
	got := s.call(t, http.MethodGet, "/v1/forecast", "")
	if got.code != 200 || strings.Contains(got.body, `"dueNow":"100"`) {
		t.Errorf("after the run: %d %s", got.code, got.body)
	}
}

// While no run is scheduled, a task with rows to delete is not in balance, even after a run by hand. A change of the
// schedule or of a policy is in the next forecast. A task that a scheduled run will refuse because of undo is not in
// balance, although it could run before.
func TestForecastFollowsScheduleAndPolicies(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE SCHEMA f; CREATE TABLE f.event (id bigint PRIMARY KEY, at timestamptz NOT NULL);
		CREATE TABLE f.reader (event bigint REFERENCES f.event ON DELETE SET NULL);
		INSERT INTO f.event VALUES (1, '2000-01-01')`)
	p := &cleanupv1.Policy{Name: "events", Table: "f.event", Enabled: true, OlderThan: olderThan("at", 30)}
	setPolicy(t, s, p)
	approve(t, s, "policy/events")
	s.db.Do("INSERT INTO f.event VALUES (2, '2000-01-01')")
	check := func(what string, trend cleanupv1.Trend, bound cleanupv1.ForecastBound) {
		t.Helper()
		f, err := s.GetForecast(t.Context(), &cleanupv1.GetForecastRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if got := forecastOf(t, f, "policy/events"); got.GetTrend() != trend || got.GetBound() != bound {
			t.Errorf("%s: %v", what, got)
		}
	}
	check("after a run by hand", cleanupv1.Trend_TREND_UNSPECIFIED,
		cleanupv1.ForecastBound_FORECAST_BOUND_NOT_SCHEDULED)
	if _, err := s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{
		Schedule: &cleanupv1.Schedule{Cron: "0 3 * * *", Enabled: true},
	}); err != nil {
		t.Fatal(err)
	}
	check("scheduled", cleanupv1.Trend_TREND_IN_BALANCE, cleanupv1.ForecastBound_FORECAST_BOUND_UNSPECIFIED)
	p.Undo = durationpb.New(time.Hour)
	setPolicy(t, s, p)
	check("with undo", cleanupv1.Trend_TREND_FALLING_BEHIND, cleanupv1.ForecastBound_FORECAST_BOUND_FAILING)
}

// Tasks that guards will refuse in the next scheduled run are not in balance: all tasks before the first run by hand,
// and later the policies whose rule has never run.
func TestForecastOfWhatGuardsRefuse(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(`CREATE TABLE cus_event (id bigint PRIMARY KEY, at timestamptz NOT NULL);
		INSERT INTO cus_event VALUES (1, '2000-01-01');
		INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01')`)
	setPolicy(t, s, &cleanupv1.Policy{
		Name: "events", Table: "cus_event", Enabled: true, OlderThan: olderThan("at", 30),
	})
	if _, err := s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{
		Schedule: &cleanupv1.Schedule{Cron: "0 3 * * *", Enabled: true},
	}); err != nil {
		t.Fatal(err)
	}
	check := func(when string, want ...string) {
		t.Helper()
		f, err := s.GetForecast(t.Context(), &cleanupv1.GetForecastRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var refused []string
		for _, task := range []string{"audit-trail", "policy/events"} {
			if forecastOf(t, f, task).GetBound() == cleanupv1.ForecastBound_FORECAST_BOUND_FAILING {
				refused = append(refused, task)
			}
		}
		if !slices.Equal(refused, want) {
			t.Errorf("%s, refused are %q, want %q: %v", when, refused, want, f.GetTasks())
		}
	}
	check("before the first run", "audit-trail", "policy/events")
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}}); err != nil {
		t.Fatal(err)
	}
	check("after it", "policy/events")
}

// A task that runs do not reach names the one that fails before it. If none does, the whole run was refused; a policy
// that fails keeps no task from running.
func TestForecastOfTasksThatAreNotReached(t *testing.T) {
	t.Parallel()
	const failing = cleanupv1.ForecastBound_FORECAST_BOUND_FAILING
	s := campaign(t)
	s.db.Do(`INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01');
		INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('a', '2000-01-01');
		CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
		CREATE TRIGGER no BEFORE DELETE ON XtkAudit FOR EACH STATEMENT EXECUTE FUNCTION no()`)
	_, run, _ := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"audit-trail", "sessions"}})
	if resultOf(run, "sessions").GetState() != cleanupv1.TaskState_TASK_STATE_NOT_RUN {
		t.Fatal(run)
	}
	for _, c := range []struct {
		what, change string // what became of the run
		bound        cleanupv1.ForecastBound
		failingTask  string
	}{
		{"not reached", "SELECT", cleanupv1.ForecastBound_FORECAST_BOUND_NOT_REACHED, "audit-trail"},
		{"after a policy", "UPDATE cleanupd.task SET kind = 'POLICY' WHERE state = 'FAILED'", failing, ""},
		{
			"refused", "UPDATE cleanupd.task SET kind = 'BUILT_IN', state = 'NOT_RUN' WHERE state = 'FAILED'", failing, "",
		},
	} {
		s.db.Do(c.change)
		other := serve(t, s.db, true) // which has made no forecast before
		f, err := other.GetForecast(t.Context(), &cleanupv1.GetForecastRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if got := forecastOf(t, f, "audit-trail"); got.GetBound() != failing || got.GetFailingTask() != "" {
			t.Errorf("%s: the task that fails: %v", c.what, got)
		}
		got := forecastOf(t, f, "sessions")
		if got.GetTrend() != cleanupv1.Trend_TREND_FALLING_BEHIND || got.GetBound() != c.bound ||
			got.GetFailingTask() != c.failingTask {
			t.Errorf("%s: the task behind it: %v, want %s %q", c.what, got, c.bound, c.failingTask)
		}
	}
}

// Sequences end at the limit of their columns' types. The date is estimated from how fast they have grown.
func TestForecastOfSequences(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE TABLE shop.small (id smallserial, other int DEFAULT nextval('shop.order_line_id_seq'));
		SELECT setval('shop.small_id_seq', 30000);
		CREATE SEQUENCE shop.unused; CREATE SEQUENCE shop.again MAXVALUE 9 CYCLE; SELECT nextval('shop.again');
		INSERT INTO cleanupd.sequence_sample VALUES
			('shop.small_id_seq', now() - interval '40 days', 1), ('shop.small_id_seq', now() - interval '10 days', 29000)`)
	f, err := s.GetForecast(t.Context(), &cleanupv1.GetForecastRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.GetSequences()) != 2 || f.GetSequences()[0].GetSequence() != "shop.small_id_seq" {
		t.Fatalf("%v", f.GetSequences())
	}
	small, orders := f.GetSequences()[0], f.GetSequences()[1]
	days := small.GetLimitTime().AsTime().Sub(f.GetForecastTime().AsTime()).Hours() / 24
	perDay := small.GetValuesPerDay()
	if small.GetLimit() != 32767 || small.GetLastValue() != 30000 || perDay < 99 || perDay > 101 ||
		days < 27 ||
		days > 28 ||
		!slices.Equal(small.GetColumns(), []string{"shop.small.id"}) {
		t.Errorf("%f days: %v", days, small)
	}
	if orders.GetLimit() != 2147483647 || orders.ValuesPerDay != nil || orders.GetLimitTime() != nil ||
		!slices.Equal(orders.GetColumns(), []string{"shop.order_line.id", "shop.small.other"}) {
		t.Errorf("%v", orders)
	}
	const recent = "SELECT count(*) FROM cleanupd.sequence_sample WHERE sample_time > now() - interval '1 minute'"
	if n := s.db.Int(recent); n != 0 {
		t.Errorf("a call stored %d samples", n)
	}
	s.db.Do("UPDATE cleanupd.table_sampler SET last_time = now() - interval '1 hour'")
	for range 2 {
		if err := s.manager.Forecaster.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.db.Int(recent); n != 2 {
		t.Errorf("%d samples were stored", n)
	}
}

// A sequence that is unusual, or that the role may not read, does not affect the forecast of others.
func TestForecastOfUnusualSequences(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE SEQUENCE shop.below MINVALUE -9223372036854775808; SELECT nextval('shop.below');
		CREATE SEQUENCE shop.to_zero MINVALUE -10 MAXVALUE 0; SELECT nextval('shop.to_zero');
		CREATE SEQUENCE shop.last MINVALUE -11 START -10 MAXVALUE -10; SELECT nextval('shop.last');
		CREATE DOMAIN shop.small AS int; CREATE DOMAIN shop.smaller AS shop.small;
		CREATE TABLE shop.typed (id shop.smaller PRIMARY KEY); CREATE SEQUENCE shop.of_domain OWNED BY shop.typed.id;
		SELECT setval('shop.of_domain', 2147483000);
		INSERT INTO cleanupd.sequence_sample VALUES ('shop.below', now() - interval '10 days', -9223372036854775808)`)
	s.db.Superuser(
		`CREATE SCHEMA closed; CREATE SEQUENCE closed.q;
		SELECT nextval('closed.q'); GRANT SELECT ON SEQUENCE closed.q TO neolane; CREATE SEQUENCE closed."Out of sight"`,
	)
	hidden := []string{`closed."Out of sight"`}
	for i := range 20 {
		name := fmt.Sprintf("shop.hidden_%02d", i)
		s.db.Superuser("CREATE SEQUENCE " + name)
		hidden = append(hidden, name)
	}
	f, err := s.GetForecast(t.Context(), &cleanupv1.GetForecastRequest{})
	if err != nil {
		t.Fatal(err)
	}
	limits := map[string]int64{}
	for _, q := range f.GetSequences() {
		limits[q.GetSequence()] = q.GetLimit()
	}
	want := map[string]int64{
		"closed.q": math.MaxInt64, "shop.below": math.MaxInt64, "shop.last": -10, "shop.of_domain": math.MaxInt32,
		"shop.to_zero": 0, "shop.order_line_id_seq": math.MaxInt64,
	}
	if !maps.Equal(limits, want) {
		t.Errorf("%v, want %v", limits, want)
	}
	for _, part := range []string{"(21)", "GRANT SELECT ON SEQUENCE " + strings.Join(hidden, ", ") + " TO neolane"} {
		if !strings.Contains(f.GetSequencesProblem(), part) {
			t.Errorf("%q, want %q in it", f.GetSequencesProblem(), part)
		}
	}
	s.db.Do("UPDATE cleanupd.table_sampler SET last_time = now() - interval '1 hour'")
	if err := s.manager.Forecaster.Tick(t.Context()); err != nil {
		t.Error(err)
	}
}

// The database grows by the remaining rows, and without the cleanup also by the rows that it has deleted.
func TestForecastOfTheSize(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`INSERT INTO cleanupd.table_sampling VALUES (now() - interval '10 days'), (now() - interval '1 hour');
		INSERT INTO cleanupd.sampled_table (name, first_time) VALUES ('shop.order_line', now() - interval '10 days');
		INSERT INTO cleanupd.table_sample (table_id, time, rows, bytes, index_bytes, inserted, deleted) VALUES
			(1, now() - interval '10 days', 1000, 100000, 0, 5000, 0),
			(1, now() - interval '1 hour', 1000, 80000, 20000, 3000, 2000);
		INSERT INTO cleanupd.deletion (run_id, table_name, start_time, rows_deleted, rows_updated, is_typical)
			VALUES (gen_random_uuid(), '"shop"."order_line"', now() - interval '2 days', 1500, 0, true)`)
	f, err := s.GetForecast(t.Context(), &cleanupv1.GetForecastRequest{})
	if err != nil {
		t.Fatal(err)
	}
	d := f.GetDatabase()
	// 1,000 rows of 100 bytes remained in ten days, and 2,500 would have without the cleanup
	with, without := d.GetBytesIn_30Days()-d.GetBytes(), d.GetBytesIn_90DaysWithoutCleanup()-d.GetBytes()
	if with < 299_000 || with > 301_000 || without < 2_240_000 || without > 2_260_000 {
		t.Errorf("%d %d %v", with, without, d)
	}
}

// A policy whose table is gone, or whose column is, or whose schema the role may no longer use, has a problem in the
// forecast and no trend. Others are forecast, and so is the size of the database.
func TestForecastOfPoliciesThatCannotRun(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Superuser("CREATE SCHEMA closed; GRANT ALL ON SCHEMA closed TO PUBLIC")
	for name, schema := range map[string]string{"renamed": "shop", "changed": "shop", "fine": "shop", "closed": "closed"} {
		table := schema + "." + name
		s.db.Do("CREATE TABLE " + table + " (id int PRIMARY KEY, at timestamptz)")
		setPolicy(t, s, &cleanupv1.Policy{Name: name, Table: table, Enabled: true, OlderThan: olderThan("at", 30)})
	}
	s.db.Superuser("REVOKE USAGE ON SCHEMA closed FROM PUBLIC")
	s.db.Do(`INSERT INTO cleanupd.table_sampling VALUES (now() - interval '10 days');
		INSERT INTO cleanupd.deletion (run_id, table_name, start_time, rows_deleted, rows_updated, is_typical)
			VALUES (gen_random_uuid(), '"closed"."closed"', now() - interval '2 days', 1500, 0, true)`)
	s.db.Do(`ALTER TABLE shop.renamed RENAME TO other;
		ALTER TABLE shop.changed RENAME at TO created; INSERT INTO shop.fine VALUES (1, '2000-01-01')`)
	f, err := s.GetForecast(t.Context(), &cleanupv1.GetForecastRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"renamed": `no table "shop.renamed"`, "changed": `no column "at"`,
		"closed": "GRANT USAGE ON SCHEMA",
	} {
		got := forecastOf(t, f, "policy/"+name)
		if !strings.Contains(got.GetProblem(), want) || got.DueNow != nil ||
			got.GetTrend() != cleanupv1.Trend_TREND_UNSPECIFIED {
			t.Errorf("%v, want the problem %q", got, want)
		}
	}
	if fine := forecastOf(t, f, "policy/fine"); fine.GetDueNow() != 1 || fine.GetProblem() != "" {
		t.Errorf("%v", fine)
	}
	if f.GetDatabase().GetBytes() == 0 {
		t.Error("the forecast has no size of the database")
	}
}
