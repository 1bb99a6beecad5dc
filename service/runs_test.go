package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/badnet"
	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
)

const oldRows = `INSERT INTO XtkReject (iRejectId, tsLog) SELECT i, '2000-01-01' FROM generate_series(1, 20) i;
	INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 30) i`

func deleted(run *cleanupv1.Run) (n int64) {
	for _, r := range run.GetResults() {
		n += r.GetRowsDeleted()
	}
	return n
}

func TestRunCleanup(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(oldRows)
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true})
	if err != nil || !dry.GetDryRun() || deleted(dry) != 50 || s.db.Int("SELECT count(*) FROM XtkAudit") != 30 {
		t.Fatalf("a dry run: %v, %v", dry, err)
	}
	events, run, err := s.run(t, &cleanupv1.RunCleanupRequest{})
	if err != nil || run.GetState() != cleanupv1.RunState_RUN_STATE_SUCCEEDED || deleted(run) != 50 ||
		s.db.Int("SELECT count(*) FROM XtkAudit") != 0 {
		t.Fatalf("the run: %v, %v", run, err)
	}
	if events[0].GetSequence() != 1 || events[0].GetRunStarted().GetRun().GetId() != run.GetId() {
		t.Errorf("the first event is %v", events[0])
	}
	var started, finished []string
	for _, e := range events {
		if e.GetRunId() != run.GetId() || e.GetTime() == nil {
			t.Errorf("event %v", e)
		}
		if b := e.GetTaskStarted(); b != nil {
			started = append(started, b.GetTask())
			if int(b.GetPosition()) != len(started) || int(b.GetTaskCount()) != len(tasks.Pipeline) {
				t.Errorf("task_started %v", b)
			}
		}
		if f := e.GetTaskFinished(); f != nil {
			finished = append(finished, f.GetResult().GetTask())
		}
	}
	var names []string
	for _, task := range tasks.Pipeline {
		names = append(names, task.Name)
	}
	if !slices.Equal(started, names) || !slices.Equal(finished, names) {
		t.Errorf("started %v, finished %v", started, finished)
	}
	again := &cleanupv1.RunCleanupRequest{Tasks: []string{"import-rejects", "audit-trail"}}
	if _, again, err := s.run(t, again); err != nil || deleted(again) != 0 {
		t.Errorf("a second run: %v, %v", again, err)
	}
	if run.GetRequestedBy() != "127.0.0.1" || run.GetReferenceTime() == nil {
		t.Errorf("requested by %q at %v", run.GetRequestedBy(), run.GetReferenceTime())
	}
	_, short, err := s.run(t, &cleanupv1.RunCleanupRequest{MaxDuration: durationpb.New(time.Microsecond)})
	wantCode(t, err, codes.Canceled)
	if short.GetState() != cleanupv1.RunState_RUN_STATE_CANCELLED || short.GetError() != "max_duration reached" {
		t.Errorf("a run of a microsecond: %v", short)
	}
}

func TestChosenTasks(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	events, run, err := s.run(t, &cleanupv1.RunCleanupRequest{
		Tasks:     []string{"audit-trail", "visitors", "sessions"},
		SkipTasks: []string{"sessions"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var begun []string
	for _, e := range events {
		if b := e.GetTaskStarted(); b != nil {
			begun = append(begun, fmt.Sprintf("%s %d/%d", b.GetTask(), b.GetPosition(), b.GetTaskCount()))
		}
	}
	if !slices.Equal(begun, []string{"visitors 1/2", "audit-trail 2/2"}) ||
		len(run.GetResults()) != len(tasks.Pipeline) {
		t.Errorf("begun: %v", begun)
	}
	stored := s.get(t, run.GetId())
	if stored.GetId() != run.GetId() || len(stored.GetResults()) != len(tasks.Pipeline) {
		t.Errorf("GetRun has %v, want %v", stored, run)
	}
	for _, r := range run.GetResults() {
		chosen := r.GetTask() == "visitors" || r.GetTask() == "audit-trail"
		if chosen != (r.GetState() == cleanupv1.TaskState_TASK_STATE_SUCCEEDED) ||
			(!chosen && r.GetState() != cleanupv1.TaskState_TASK_STATE_SKIPPED) {
			t.Errorf("%s is %s", r.GetTask(), r.GetState())
		}
	}
}

func TestInvalidRuns(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	if _, run, err := s.run(
		t,
		&cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}, MaxDuration: durationpb.New(36_500 * 24 * time.Hour)},
	); run.GetState() != cleanupv1.RunState_RUN_STATE_SUCCEEDED {
		t.Errorf("the longest limit: %v, %v", run, err)
	}
	for field, req := range map[string]*cleanupv1.RunCleanupRequest{
		"tasks[1]":      {Tasks: []string{"sessions", "no-such"}},
		"skip_tasks[0]": {SkipTasks: []string{"Sessions"}},
		"skip_tasks":    {Tasks: []string{"sessions"}, SkipTasks: []string{"sessions"}},
		"max_duration":  {MaxDuration: durationpb.New(time.Microsecond - 1)},
	} {
		_, _, err := s.run(t, req)
		_, bad := wantCode(t, err, codes.InvalidArgument)
		if len(bad.GetFieldViolations()) != 1 || bad.GetFieldViolations()[0].GetField() != field {
			t.Errorf("%s: %v", field, bad)
		}
		if strings.Contains(field, "[") && !strings.Contains(err.Error(), "delivery-logs") {
			t.Errorf("the valid names are not told: %v", err)
		}
	}
	_, _, err := s.run(t, &cleanupv1.RunCleanupRequest{MaxDuration: &durationpb.Duration{Seconds: 315_576_000_000}})
	if _, bad := wantCode(t, err, codes.InvalidArgument); bad.GetFieldViolations()[0].GetField() != "max_duration" {
		t.Error(bad)
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.run"); n != 1 {
		t.Errorf("%d runs were stored", n)
	}
}

func TestActiveRun(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	other := serve(t, s.db, true)
	hold(t, s.db)
	stream, err := s.RunCleanup(t.Context(),
		&cleanupv1.RunCleanupRequest{Tasks: []string{"import-rejects"}, Detach: true})
	events, err := drain(t, stream, err)
	if err != nil || len(events) != 1 || events[0].GetRunStarted() == nil {
		t.Fatalf("detached: %v, %v", events, err)
	}
	id := events[0].GetRunId()
	_, _, err = other.run(t, &cleanupv1.RunCleanupRequest{})
	if info, _ := wantCode(t, err, codes.Aborted); info.GetReason() != "RUN_ACTIVE" || info.GetDomain() != "cleanupd" ||
		info.GetMetadata()["run_id"] != id {
		t.Errorf("details: %v", info)
	}
	if got := other.call(t, "POST", "/v1/runs", `{}`); got.code != 409 || !strings.Contains(got.body, id) ||
		!strings.Contains(got.body, "RUN_ACTIVE") {
		t.Errorf("over REST: %d %s", got.code, got.body)
	}
	got, err := other.CancelRun(t.Context(), &cleanupv1.CancelRunRequest{RunId: id})
	if err != nil || got.GetRun().GetId() != id {
		t.Fatal(got, err)
	}
	// Another replica sees every event once and in order, and the run's own end.
	watching, err := other.WatchRun(t.Context(), &cleanupv1.WatchRunRequest{RunId: id})
	events, err = drain(t, watching, err)
	wantCode(t, err, codes.Canceled)
	last := events[len(events)-1].GetRunFinished().GetRun()
	if events[0].GetSequence() != 1 || last.GetState() != cleanupv1.RunState_RUN_STATE_CANCELLED ||
		last.GetError() != "cancelled by request" {
		t.Errorf("the run ended as %v", last)
	}
	// A stream over REST that has begun with status 200 ends with the error.
	rest := other.call(t, "GET", "/v1/runs/"+id+"/events", "")
	if rest.code != 200 || len(rest.lines) != len(events)+1 ||
		at(rest.lines[len(events)], "error", "code") != float64(codes.Canceled) ||
		at(rest.lines[len(events)-1], "result", "event", "runFinished") == nil {
		t.Errorf("over REST: %d %s", rest.code, rest.body)
	}
	if _, _, err := other.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}}); err != nil {
		t.Errorf("a run right after another: %v", err)
	}
	again, err := s.CancelRun(t.Context(), &cleanupv1.CancelRunRequest{RunId: id})
	if err != nil || again.GetRun().GetState() != cleanupv1.RunState_RUN_STATE_CANCELLED {
		t.Errorf("cancelling an ended run: %v, %v", again, err)
	}
}

func TestAClientThatLeavesDoesNotStopTheRun(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	release := hold(t, s.db)
	ctx, leave := context.WithCancel(t.Context())
	stream, err := s.RunCleanup(ctx, &cleanupv1.RunCleanupRequest{Tasks: []string{"import-rejects"}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	leave()
	release()
	watching, err := s.WatchRun(t.Context(),
		&cleanupv1.WatchRunRequest{RunId: first.GetEvent().GetRunId(), AfterSequence: 1})
	events, err := drain(t, watching, err)
	if err != nil || events[0].GetSequence() != 2 || events[len(events)-1].GetRunFinished() == nil {
		t.Errorf("the run did not go on: %v", err)
	}
	end := events[len(events)-1].GetSequence()
	watching, err = s.WatchRun(t.Context(),
		&cleanupv1.WatchRunRequest{RunId: first.GetEvent().GetRunId(), AfterSequence: end})
	if events, err := drain(t, watching, err); err != nil || len(events) != 0 {
		t.Errorf("after the last event there are %d more (%v)", len(events), err)
	}
}

func TestThirdDryRun(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true) // nobody claims them
	for range 2 {
		if _, err := s.RunCleanup(t.Context(), &cleanupv1.RunCleanupRequest{DryRun: true}); err != nil {
			t.Fatal(err)
		}
	}
	s.db.Until("SELECT (count(*) > 1)::int FROM cleanupd.run")
	_, _, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true})
	wantCode(t, err, codes.ResourceExhausted)
}

// A task that fails ends the run, or not, and says why. A right that is missing ends it before the first task.
func TestFailedTask(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(
		oldRows + `; CREATE FUNCTION no() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''this row is dear to me''; END';
		CREATE TRIGGER no BEFORE DELETE ON XtkReject FOR EACH ROW EXECUTE FUNCTION no()`,
	)
	tasks := []string{"import-rejects", "audit-trail"}
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: tasks})
	info, _ := wantCode(t, err, codes.Internal)
	if info.GetMetadata()["task"] != "import-rejects" || info.GetMetadata()["run_id"] != run.GetId() ||
		!strings.Contains(err.Error(), "dear to me") {
		t.Errorf("%v, details %v", err, info)
	}
	states := func(run *cleanupv1.Run) map[string]cleanupv1.TaskState {
		out := map[string]cleanupv1.TaskState{}
		for _, r := range run.GetResults() {
			out[r.GetTask()] = r.GetState()
		}
		return out
	}
	if got := states(run); run.GetState() != cleanupv1.RunState_RUN_STATE_FAILED ||
		got["import-rejects"] != cleanupv1.TaskState_TASK_STATE_FAILED ||
		got["audit-trail"] != cleanupv1.TaskState_TASK_STATE_NOT_RUN ||
		s.db.Int("SELECT count(*) FROM XtkAudit") != 30 {
		t.Errorf("states: %v", got)
	}
	_, run, err = s.run(t, &cleanupv1.RunCleanupRequest{Tasks: tasks, ContinueOnError: true})
	wantCode(t, err, codes.Internal)
	if got := states(run); run.GetState() != cleanupv1.RunState_RUN_STATE_FAILED ||
		got["audit-trail"] != cleanupv1.TaskState_TASK_STATE_SUCCEEDED ||
		s.db.Int("SELECT count(*) FROM XtkAudit") != 0 {
		t.Errorf("states when going on: %v", got)
	}
	s.db.Do("DROP TRIGGER no ON XtkReject; REVOKE DELETE ON NmsVisitor FROM CURRENT_USER")
	_, run, err = s.run(t, &cleanupv1.RunCleanupRequest{})
	if run.GetState() != cleanupv1.RunState_RUN_STATE_FAILED ||
		!strings.Contains(err.Error(), `GRANT DELETE ON "public"."nmsvisitor"`) ||
		s.db.Int("SELECT count(*) FROM XtkReject") != 20 {
		t.Errorf("without a right: %v, %v", run.GetState(), err)
	}
}

func TestNoCampaignDatabase(t *testing.T) {
	t.Parallel()
	s := serve(t, bare(t), false)
	if _, run, err := s.run(t, &cleanupv1.RunCleanupRequest{}); run != nil ||
		!strings.Contains(err.Error(), "NmsDelivery") {
		t.Errorf("the run: %v %v", run, err)
	} else {
		wantCode(t, err, codes.FailedPrecondition)
	}
	_, err := s.GetOptions(t.Context(), &cleanupv1.GetOptionsRequest{})
	wantCode(t, err, codes.FailedPrecondition)
}

func TestUnknownRuns(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	for _, id := range []string{"", "x", "00000000-0000-0000-0000-000000000000", "'; DROP TABLE x"} {
		_, err := s.GetRun(t.Context(), &cleanupv1.GetRunRequest{RunId: id})
		wantCode(t, err, codes.NotFound)
		_, err = s.CancelRun(t.Context(), &cleanupv1.CancelRunRequest{RunId: id})
		wantCode(t, err, codes.NotFound)
		stream, err := s.WatchRun(t.Context(), &cleanupv1.WatchRunRequest{RunId: id})
		_, err = drain(t, stream, err)
		wantCode(t, err, codes.NotFound)
	}
	stream, err := s.WatchRun(t.Context(), &cleanupv1.WatchRunRequest{RunId: "x", AfterSequence: -1})
	_, err = drain(t, stream, err)
	wantCode(t, err, codes.InvalidArgument)
}

// A list has at most 100 runs, and no tables unless it is asked for them.
func TestViewsOfRuns(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	s.db.Do(
		`INSERT INTO cleanupd.run (id, slot, state, dry_run, continue_on_error, requested_by, end_time)
			SELECT gen_random_uuid(), 0, 'SUCCEEDED', false, false, 'x', now() FROM generate_series(1, 101);
		INSERT INTO cleanupd.task (run_id, position, name, kind, chosen, state) SELECT id, 1, 'rejects', 'BUILT_IN',
			true, 'SUCCEEDED'
			FROM cleanupd.run;
		INSERT INTO cleanupd.space (run_id, task, relation, rows_deleted, table_bytes_before, index_bytes_before,
				table_bytes_after, index_bytes_after) SELECT run_id, name, 'nmsbroadlogmsg', 1, 2, 2, 1, 1 FROM cleanupd.task`,
	)
	for query, want := range map[string][2]int{
		"":                                  {50, 0},
		"?page_size=1000":                   {100, 0},
		"?view=RUN_VIEW_BASIC":              {50, 0},
		"?view=RUN_VIEW_UNSPECIFIED":        {50, 0},
		"?page_size=101&view=RUN_VIEW_FULL": {100, 100},
	} {
		got := s.call(t, "GET", "/v1/runs"+query, "")
		if listed, spaces := strings.Count(got.body, `"requestedBy"`), strings.Count(
			got.body, `"nmsbroadlogmsg"`,
		); got.code != 200 || listed != want[0] ||
			spaces != want[1] {
			t.Errorf("%s: %d: %d runs, %d tables", query, got.code, listed, spaces)
		}
	}
	for _, view := range []string{"FULL", "7"} {
		if got := s.call(t, "GET", "/v1/runs?view="+view, ""); got.code != 400 {
			t.Errorf("%s: %d", view, got.code)
		}
	}
	one := s.call(t, "GET", "/v1/runs/"+s.db.Strings("SELECT id::text FROM cleanupd.run")[0], "")
	if !strings.Contains(one.body, `"nmsbroadlogmsg"`) {
		t.Error(one.body)
	}
}

// However often somebody asks whether a server is ready, it asks the database once a second.
func TestReadyzAsksRarely(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	begun, before := time.Now(), s.db.Stat().AcquireCount()
	for range 200 {
		if got := s.call(t, "GET", "/readyz", ""); got.code != 200 {
			t.Fatal(got.code)
		}
	}
	if asked := s.db.Stat().AcquireCount() - before; asked < 1 || asked > 1+int64(time.Since(begun)/time.Second) {
		t.Errorf("it asked %d times in %s", asked, time.Since(begun))
	}
}

// The tasks come in pages if they are asked for so, and a token that was never given is refused.
func TestListTasks(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	all, err := s.ListTasks(t.Context(), &cleanupv1.ListTasksRequest{})
	if err != nil || len(all.GetTasks()) != len(tasks.Pipeline) {
		t.Fatal(all, err)
	}
	for i, task := range all.GetTasks() {
		if task.GetName() != tasks.Pipeline[i].Name || task.GetTitle() == "" || task.GetDescription() == "" {
			t.Errorf("task %d: %v", i, task)
		}
	}
	var got []string
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		page, err := s.ListTasks(t.Context(), &cleanupv1.ListTasksRequest{PageSize: 10, PageToken: token})
		if err != nil || len(page.GetTasks()) > 10 || pages > len(tasks.Pipeline)/10 {
			t.Fatalf("page %d: %v, %v", pages, page, err)
		}
		for _, task := range page.GetTasks() {
			got = append(got, task.GetName())
		}
		token = page.GetNextPageToken()
	}
	var want []string
	for _, task := range tasks.Pipeline {
		want = append(want, task.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if got := s.call(t, "GET", "/v1/tasks?pageSize=1", ""); got.code != 200 ||
		strings.Count(got.body, `"title"`) != 1 || strings.Contains(got.body, `"nextPageToken":""`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	for query, field := range map[string]string{
		"page_size=-1": "page_size",
		"page_token=x": "page_token",
		"page_token=" + pagetoken.Format("no such task"): "page_token",
	} {
		if got := s.call(t, "GET", "/v1/tasks?"+query, ""); got.code != 400 || !strings.Contains(got.body, field) {
			t.Errorf("%s: %d %s", query, got.code, got.body)
		}
	}
}

// A replica whose database cannot be written is not ready, however it is asked, and says why. Streams that watch its
// health report it.
func TestHealthWhileNothingCanBeWritten(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, _ := pgtest.Private(t)
	s := serve(t, db, true)
	stream, err := healthv1.NewHealthClient(s.conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		standby string
		code    int
		body    string
		status  healthv1.HealthCheckResponse_ServingStatus
	}{
		{"", 200, "ok", healthv1.HealthCheckResponse_SERVING},
		{
			"nobody", 503, "the commit waits for a synchronous standby (SyncRep)",
			healthv1.HealthCheckResponse_NOT_SERVING,
		},
		{"", 200, "ok", healthv1.HealthCheckResponse_SERVING},
	} {
		db.Superuser("ALTER SYSTEM SET synchronous_standby_names = '" + c.standby + "'")
		db.Superuser("SELECT pg_reload_conf()")
		if got, err := stream.Recv(); err != nil || got.GetStatus() != c.status {
			t.Fatalf("the health is %s, want %s: %v", got.GetStatus(), c.status, err)
		}
		if got := s.call(t, "GET", "/readyz", ""); got.code != c.code || !strings.Contains(got.body, c.body) {
			t.Errorf("/readyz: %d %s", got.code, got.body)
		}
		for _, name := range []string{"", "cleanup.v1.CleanupService"} {
			if got, err := healthv1.NewHealthClient(s.conn).
				Check(t.Context(), &healthv1.HealthCheckRequest{Service: name}); err != nil ||
				got.GetStatus() != c.status {
				t.Errorf("%q is %s, want %s: %v", name, got.GetStatus(), c.status, err)
			}
		}
	}
}

func healthy(ctx context.Context, conn *grpc.ClientConn) error {
	for _, name := range []string{"", "cleanup.v1.CleanupService"} {
		health, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: name})
		if err != nil {
			return err
		}
		if health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			return fmt.Errorf("%q is %s", name, health.GetStatus())
		}
	}
	return nil
}

func reflects(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return err
	}
	err = stream.Send(
		&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF says that the stream has ended; Recv returns why
		return err
	}
	answer, err := stream.Recv()
	if err == nil && !strings.Contains(answer.String(), "cleanup.v1.CleanupService") {
		return fmt.Errorf("reflection answers %v", answer)
	}
	return err
}

func TestLostDatabase(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	s.db.Cut()
	_, err := s.GetRun(t.Context(), &cleanupv1.GetRunRequest{RunId: "00000000-0000-0000-0000-000000000000"})
	wantCode(t, err, codes.Unavailable)
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{})
	wantCode(t, err, codes.Unavailable)
	_, err = s.SetOptions(t.Context(), &cleanupv1.SetOptionsRequest{})
	wantCode(t, err, codes.Unavailable)
	if got := s.call(t, "GET", "/v1/options", ""); got.code != 503 {
		t.Errorf("GET /v1/options: %d %s", got.code, got.body)
	}
	if got := s.call(t, "POST", "/v1/runs", "{}"); got.code != 503 || at(got.lines[0], "error", "code") != float64(14) {
		t.Errorf("POST /v1/runs: %d %s", got.code, got.body)
	}
}

// A database that accepts connections but is silent is as lost as one that is away.
func TestSilentDatabase(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	proxy, behind := badnet.New(t, db.URL(), 0), *db
	if behind.Pool, err = pgxpool.New(t.Context(), proxy.URL(db.URL())+"&connect_timeout=1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(behind.Close)
	s := serve(t, &behind, true)
	id := s.queued(t)
	db.Do(`INSERT INTO cleanupd.event (run_id, sequence, body) VALUES ($1::uuid, 1, '{"Kind": "log"}')`, id)
	db.Do("UPDATE cleanupd.run SET last_sequence = 1")
	watching, err := s.WatchRun(t.Context(), &cleanupv1.WatchRunRequest{RunId: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watching.Recv(); err != nil {
		t.Fatal(err)
	}
	proxy.Target("postgres://" + silent.Addr().String())
	_, err = s.GetRun(t.Context(), &cleanupv1.GetRunRequest{RunId: id})
	wantCode(t, err, codes.Unavailable)
	_, err = watching.Recv()
	wantCode(t, err, codes.Unavailable)
}
