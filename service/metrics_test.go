package service_test

import (
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/badnet"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/notify"
	"github.com/cleanupd/cleanupd/tasks"
)

// As read over HTTP.
type scraped map[string]*dto.MetricFamily

func (s *server) scrapeOnce(t *testing.T) (text string, all scraped) {
	t.Helper()
	got := s.call(t, "GET", "/metrics", "")
	if got.code != 200 {
		t.Fatalf("%d %s", got.code, got.body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(got.body))
	if err != nil {
		t.Fatal(err)
	}
	return got.body, all
}

// scrapeUntil returns the metrics as soon as ok accepts them, and those after a minute in any case.
func (s *server) scrapeUntil(t *testing.T, ok func(all scraped) bool) (text string, all scraped) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if text, all = s.scrapeOnce(t); ok(all) || time.Now().After(end) {
			return text, all
		}
	}
}

// scrape returns the metrics once the database has answered in time, which a busy one may not do at first.
func (s *server) scrape(t *testing.T) (text string, all scraped) {
	t.Helper()
	return s.scrapeUntil(t, func(all scraped) bool { return all.sum("cleanupd_scrape_error") == 0 })
}

// Runs and calls are counted right after their end is reported.
func (s *server) scrapeAfter(t *testing.T, runs, calls float64) (text string, all scraped) {
	t.Helper()
	var gotRuns, gotCalls float64
	counted := func(all scraped) bool {
		gotRuns, gotCalls = all.sum("cleanupd_runs_total"), all.sum("rpc_server_call_duration_seconds")
		return gotRuns == runs && gotCalls == calls
	}
	if s.scrapeUntil(t, counted); gotRuns != runs || gotCalls != calls {
		t.Fatalf("%v runs and %v calls were counted", gotRuns, gotCalls)
	}
	return s.scrape(t) // what counts before a run may have been read before it
}

func (s scraped) sum(name string) (n float64) {
	for _, v := range s.series(name) {
		n += v
	}
	return n
}

// By the values of the labels, in the order of the labels' names: values, and how often a histogram observed something.
func (s scraped) series(name string) map[string]float64 {
	out := map[string]float64{}
	for _, m := range s[name].GetMetric() {
		var values []string
		for _, l := range m.GetLabel() {
			values = append(values, l.GetValue())
		}
		out[strings.Join(values, " ")] = m.GetGauge().
			GetValue() +
			m.GetCounter().
				GetValue() +
			float64(m.GetHistogram().GetSampleCount())
	}
	return out
}

func nonzero(series map[string]float64) map[string]float64 {
	maps.DeleteFunc(series, func(_ string, v float64) bool { return v == 0 })
	return series
}

func (s scraped) check(t *testing.T, name string, want map[string]float64) {
	t.Helper()
	if got := nonzero(s.series(name)); !maps.Equal(got, nonzero(want)) {
		t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

var (
	metricName = regexp.MustCompile(`\b(?:cleanupd|rpc_server|process|go)_[a-z_]+\b`)
	ofPart     = regexp.MustCompile(`_(?:bucket|sum|count)$`)
)

// The metrics of the dashboard and the alerts exist.
func watched(t *testing.T, got scraped) {
	t.Helper()
	for _, file := range []string{"../deploy/grafana/cleanupd.json", "../deploy/prometheus/alerts.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := metricName.FindAllString(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s asks for nothing", file)
		}
		for _, name := range names {
			if got[name] == nil && got[ofPart.ReplaceAllString(name, "")].GetType() != dto.MetricType_HISTOGRAM {
				t.Errorf("%s asks for %s, which there is not", file, name)
			}
		}
	}
}

// Metrics that only a replica with a target of notifications has.
func notifying(t *testing.T, db *pgtest.DB) scraped {
	t.Helper()
	target, err := notify.ParseTarget("https://hooks.example/", notify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(runs.New(runs.Config{
		Pool:   db.Pool,
		Log:    slog.New(slog.DiscardHandler),
		Notify: notify.Config{Targets: []*notify.Target{target}},
	}).Metrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := scraped{}
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "cleanupd_notifications_") {
			found[family.GetName()] = family
		}
	}
	return found
}

// The metrics of a run agree with its ledger; names and units follow Prometheus' conventions.
func TestMetrics(t *testing.T) {
	t.Parallel()
	db := filled(t)
	s := serve(t, db, false)
	if got := s.call(t, "PUT", "/v1/schedule", `{"enabled": true}`); got.code != 200 {
		t.Fatal(got.body)
	}
	var real []*cleanupv1.Run
	for _, req := range []*cleanupv1.RunCleanupRequest{
		{},
		{Tasks: []string{"sessions"}, Undo: durationpb.New(time.Hour)},
		{Tasks: []string{"audit-trail"}, DryRun: true},
	} {
		_, run, err := s.run(t, req)
		if err != nil {
			t.Fatal(err)
		}
		if !req.GetDryRun() {
			real = append(real, run)
		}
		// for the others to find
		db.Do(`INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT max(iAuditId) + 1, '2000-01-01' FROM XtkAudit;
			INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES (gen_random_uuid()::text, '2000-01-01')`)
	}
	run := real[0]
	db.Do(
		`INSERT INTO cleanupd.guard_refusal (task, task_kind, guard, table_name, number, number_limit, options, run_id)
			VALUES ('visitors', 'BUILT_IN', 'share', '"public"."nmsvisitor"', 2, 1, '{}', gen_random_uuid());
		CREATE TABLE cus_ticket (id smallserial); SELECT setval('cus_ticket_id_seq', 32667);
		INSERT INTO cleanupd.sequence_sample VALUES ('public.cus_ticket_id_seq', now() - interval '10 days', 32567)`,
	)
	if err := s.manager.Forecaster.Record(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, got := s.scrapeAfter(t, 3, 4)
	ends := time.Unix(int64(got.series("cleanupd_sequence_end_timestamp_seconds")["public.cus_ticket_id_seq"]), 0)
	if days := time.Until(ends).Hours() / 24; days < 9 || days > 11 {
		t.Errorf("the sequence ends in %f days", days)
	}
	for name, family := range notifying(t, db) {
		got[name] = family
	}
	watched(t, got)
	got.check(t, "cleanupd_guard_refused", map[string]float64{"share public.nmsvisitor visitors": 1})
	ages := got.series("cleanupd_oldest_obsolete_row_age_seconds")
	if _, ok := ages["public.nmsbroadlogrcp"]; !ok {
		t.Errorf("the ages are of %v, not of public.nmsbroadlogrcp", slices.Collect(maps.Keys(ages)))
	}
	deleted, updated, dropped, batches, ended := map[string]float64{}, map[string]float64{}, map[string]float64{},
		map[string]float64{}, map[string]float64{}
	for _, r := range append(run.GetResults(), resultOf(real[1], "sessions")) {
		deleted[r.GetTask()] += float64(r.GetRowsDeleted())
		updated[r.GetTask()] += float64(r.GetRowsUpdated())
		dropped[r.GetTask()] += float64(r.GetTablesDropped())
		batches[r.GetTask()] += float64(r.GetBatches())
		ended["succeeded "+r.GetTask()]++
	}
	if deleted["sessions"] == 0 || updated["deliveries"] == 0 || dropped["work-tables"] == 0 {
		t.Fatalf("nothing was done: %v", run)
	}
	got.check(t, "cleanupd_rows_deleted_total", deleted)
	got.check(t, "cleanupd_rows_updated_total", updated)
	got.check(t, "cleanupd_tables_dropped_total", dropped)
	got.check(t, "cleanupd_batch_duration_seconds", batches)
	got.check(t, "cleanupd_tasks_total", ended)
	got.check(t, "cleanupd_runs_total", map[string]float64{"false succeeded": 2, "true succeeded": 1})
	got.check(t, "cleanupd_run_duration_seconds", map[string]float64{"false": 2, "true": 1})
	got.check(t, "cleanupd_active_runs", nil)
	got.check(t, "cleanupd_scrape_error", nil)
	got.check(t, "rpc_server_call_duration_seconds", map[string]float64{
		"cleanup.v1.CleanupService/RunCleanup OK grpc":  3,
		"cleanup.v1.CleanupService/SetSchedule OK grpc": 1,
	})
	if seconds := got["cleanupd_batch_duration_seconds"].GetMetric()[0].GetHistogram().
		GetSampleSum(); seconds <= 0 ||
		seconds > run.GetEndTime().AsTime().Sub(run.GetStartTime().AsTime()).Seconds() {
		t.Errorf("the batches of a task took %f seconds", seconds)
	}
	success := got.series("cleanupd_last_success_timestamp_seconds")
	if at := float64(run.GetEndTime().AsTime().UnixMicro()) / 1e6; success["all"] != at || success["some"] <= at {
		t.Errorf("the last success: %v, want %f", success, at)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
}

// A lock that is never released: retries, and the task and the run that fail. Then a run that is cancelled.
func TestMetricsOfWhatGoesWrong(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Superuser("ALTER DATABASE " + db.Name + " SET lock_timeout = '100ms'")
	db.Reset()
	s := serve(t, db, false)
	db.Hold("LOCK TABLE NmsDelivery")
	if _, run, _ := s.run(
		t, &cleanupv1.RunCleanupRequest{Tasks: []string{"mirror-pages", "import-rejects"}, ContinueOnError: true},
	); run.GetState() != cleanupv1.RunState_RUN_STATE_FAILED {
		t.Fatalf("the run: %v", run)
	}
	hold(t, db)
	stream, err := s.RunCleanup(t.Context(), &cleanupv1.RunCleanupRequest{Tasks: []string{"import-rejects"}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	db.Until("SELECT count(*) FROM cleanupd.task WHERE state = 'RUNNING'")
	if _, err := s.CancelRun(t.Context(), &cleanupv1.CancelRunRequest{RunId: first.GetEvent().GetRunId()}); err != nil {
		t.Fatal(err)
	}
	_, err = drain(t, stream, nil)
	wantCode(t, err, codes.Canceled)
	_, got := s.scrapeAfter(t, 2, 3)
	got.check(t, "cleanupd_runs_total", map[string]float64{"false failed": 1, "false cancelled": 1})
	got.check(t, "cleanupd_tasks_total",
		map[string]float64{"failed mirror-pages": 1, "succeeded import-rejects": 1, "cancelled import-rejects": 1})
	// the first task is tried three times, the second until it is cancelled
	if retries := got.series("cleanupd_retries_total"); retries["55P03"] < 2 {
		t.Errorf("retries: %v", retries)
	}
	got.check(t, "cleanupd_rows_deleted_total", nil)
	got.check(t, "cleanupd_last_success_timestamp_seconds", nil)
	if calls := got.series(
		"rpc_server_call_duration_seconds",
	); calls["cleanup.v1.CleanupService/RunCleanup CANCELLED grpc"] != 1 {
		t.Errorf("calls: %v", calls)
	}
}

// Rows that the last run of a task retained are counted by their reason; a dry run, and one of other tasks, do not
// matter.
func TestMetricsOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do(
		`INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 20) i;
			CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
		CREATE TRIGGER no BEFORE DELETE ON XtkAudit FOR EACH ROW WHEN (OLD.iAuditId = 5) EXECUTE FUNCTION no()`,
	)
	s := serve(t, db, false)
	for _, req := range []*cleanupv1.RunCleanupRequest{
		{Tasks: []string{"audit-trail"}},
		{Tasks: []string{"sessions"}},
		{Tasks: []string{"audit-trail"}, DryRun: true},
	} {
		if _, run, err := s.run(t, req); err != nil ||
			(req.GetTasks()[0] == "audit-trail" && !req.GetDryRun() &&
				resultOf(run, "audit-trail").GetRowsFailed() != 1) {
			t.Fatalf("%v, %v", run, err)
		}
	}
	_, got := s.scrape(t)
	got.check(t, "cleanupd_rows_retained", map[string]float64{"failed audit-trail": 1})
	got.check(t, "cleanupd_tables_retained", nil)
}

// A database that does not answer is reported, and hides no other metrics.
func TestMetricsWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	db := database(t)
	s := serve(t, db, false)
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01')")
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"audit-trail"}}); err != nil {
		t.Fatal(err)
	}
	db.Cut()
	_, got := s.scrapeOnce(t)
	got.check(t, "cleanupd_scrape_error", map[string]float64{"forecast": 1, "runs": 1, "tables": 1})
	got.check(t, "cleanupd_rows_deleted_total", map[string]float64{"audit-trail": 1})
	if told := got.series("cleanupd_last_success_timestamp_seconds"); len(told) > 0 {
		t.Errorf("a success is told that nobody told: %v", told)
	}
}

// Scrapes do not wait for a silent database.
func TestMetricsOfASilentDatabase(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	proxy := badnet.New(t, db.URL(), 0)
	through, err := pgxpool.New(t.Context(), proxy.URL(db.URL()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(through.Close)
	db.Pool = through
	s := serve(t, db, true)
	proxy.Stall(6 * time.Second)
	_, got := s.scrapeOnce(t)
	got.check(t, "cleanupd_scrape_error", map[string]float64{"forecast": 1, "runs": 1, "tables": 1})
}

// A replica that executes nothing itself reports queued runs and the schedule.
func TestMetricsOfTheDatabase(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	if got := s.call(t, "PUT", "/v1/schedule", `{"once": "2999-01-01T00:00:00Z", "enabled": true}`); got.code != 200 {
		t.Fatal(got.body)
	}
	for _, dry := range []bool{false, true} {
		if _, err := s.RunCleanup(t.Context(), &cleanupv1.RunCleanupRequest{DryRun: dry}); err != nil {
			t.Fatal(err)
		}
	}
	s.db.Until("SELECT (count(*) = 2)::int FROM cleanupd.run")
	s.db.Do(`INSERT INTO cleanupd.forecast VALUES ('slow', 'FALLING_BEHIND', 'LOCKS', now()),
		('quick', 'IN_BALANCE', '', now()), ('left-out', '', '', now())`)
	_, got := s.scrapeAfter(t, 0, 1)
	got.check(t, "cleanupd_task_falling_behind", map[string]float64{"slow": 1, "quick": 0})
	got.check(t, "cleanupd_active_runs", map[string]float64{"false queued": 1, "true queued": 1})
	got.check(t, "cleanupd_schedule_enabled", map[string]float64{"": 1})
	got.check(t, "cleanupd_schedule_next_run_timestamp_seconds",
		map[string]float64{"": float64(time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC).Unix())})
	got.check(t, "rpc_server_call_duration_seconds",
		map[string]float64{"cleanup.v1.CleanupService/SetSchedule OK grpc": 1})
}

// The pace of the active run is one of three series, and a paused run is an active one, with who paused it since when.
// Dry runs have no pace.
func TestMetricsOfPauses(t *testing.T) {
	t.Parallel()
	db := database(t)
	_, got := serve(t, db, true).scrape(t)
	if paces := got.series("cleanupd_run_pace"); !maps.Equal(
		paces, map[string]float64{"gentle": 0, "balanced": 0, "fast": 0},
	) {
		t.Errorf("without a run: %v", paces)
	}
	for by, want := range map[string]map[string]float64{
		"":          {"false queued": 1, "true paused": 1},
		"127.0.0.1": {"false paused": 1, "true paused": 1},
		"schedule":  {"false paused": 1, "true paused": 1},
	} {
		db.Do("DELETE FROM cleanupd.run")
		s := serve(t, db, true) // which has read no metrics before
		dry := s.waiting(t, &cleanupv1.RunCleanupRequest{DryRun: true, Pace: cleanupv1.Pace_PACE_GENTLE})
		run := s.waiting(t, &cleanupv1.RunCleanupRequest{Pace: cleanupv1.Pace_PACE_FAST})
		paused := []string{dry.GetId()}
		if by != "" {
			paused = append(paused, run.GetId())
		}
		for _, id := range paused {
			if _, err := s.PauseRun(t.Context(), &cleanupv1.PauseRunRequest{RunId: id}); err != nil {
				t.Fatal(err)
			}
		}
		s.db.Do("UPDATE cleanupd.run SET pause_time = to_timestamp(1000), paused_by = $1 WHERE id = $2", by,
			run.GetId())
		if by == "" {
			s.db.Do("UPDATE cleanupd.run SET pause_time = NULL WHERE id = $1", run.GetId())
		}
		_, got := s.scrape(t)
		got.check(t, "cleanupd_active_runs", want)
		if paces, all := got.series("cleanupd_run_pace"), map[string]float64{
			"gentle":   0,
			"balanced": 0,
			"fast":     1,
		}; !maps.Equal(paces, all) {
			t.Errorf("paces %v, want %v", paces, all)
		}
		since := map[string]float64{"caller": 0, "schedule": 0}
		switch by {
		case "":
		case "schedule":
			since[by] = 1000
		default:
			since["caller"] = 1000
		}
		if shown := got.series("cleanupd_run_paused_since_timestamp_seconds"); !maps.Equal(shown, since) {
			t.Errorf("by %q: paused since %v, want %v", by, shown, since)
		}
	}
	db.Do("DELETE FROM cleanupd.run")
	s := serve(t, db, true)
	s.waiting(t, &cleanupv1.RunCleanupRequest{Pace: cleanupv1.Pace_PACE_GENTLE})
	s.db.Do(`UPDATE cleanupd.run SET slot = 3, state = 'PAUSED', pause_time = to_timestamp(1000), paused_by = 'schedule'`)
	s.waiting(t, &cleanupv1.RunCleanupRequest{Pace: cleanupv1.Pace_PACE_FAST})
	_, got = s.scrape(t)
	got.check(t, "cleanupd_active_runs", map[string]float64{"false queued": 1, "false paused": 1})
	if paces := got.series("cleanupd_run_pace"); paces["fast"] != 1 || paces["gentle"] != 0 {
		t.Errorf("beside a run that waits: paces %v", paces)
	}
	if since := got.series("cleanupd_run_paused_since_timestamp_seconds"); since["schedule"] != 1000 {
		t.Errorf("beside a run by hand: paused since %v", since)
	}
}

// The counters of Campaign's tasks start at 0 in its databases, and do not exist in others.
func TestMetricsOfTasksThatExist(t *testing.T) {
	t.Parallel()
	counted := func(all scraped) int { return len(all["cleanupd_rows_deleted_total"].GetMetric()) }
	other := serve(t, bare(t), false)
	s := serve(t, database(t), false)
	_, all := s.scrapeUntil(t, func(all scraped) bool { return counted(all) == len(tasks.Pipeline) })
	if got := counted(all); got != len(tasks.Pipeline) {
		t.Errorf("%d tasks in a database of Campaign", got)
	}
	_, all = other.scrape(t)
	if got := counted(all); got != 0 {
		t.Errorf("%d tasks in another database", got)
	}
}

// Made-up methods of callers do not become series.
func TestMetricsOfUnknownMethods(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	for _, method := range []string{"/made.Up/One", "/cleanup.v1.CleanupService/MadeUp"} {
		if err := s.conn.Invoke(
			t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{},
		); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
	_, got := s.scrape(t)
	got.check(t, "rpc_server_call_duration_seconds", nil)
}
