package service_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/transport"
)

// A run of import-rejects lasts until release is called.
func endless(s *server) (release func()) {
	s.db.Do(oldRows + `; CREATE TABLE released (); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN WHILE NOT EXISTS (SELECT FROM released) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN OLD; END';
		CREATE TRIGGER wait BEFORE DELETE ON XtkReject FOR EACH ROW EXECUTE FUNCTION wait()`)
	return func() { s.db.Do("INSERT INTO released DEFAULT VALUES") }
}

func (s *server) detached(t *testing.T, req *cleanupv1.RunCleanupRequest) *cleanupv1.Run {
	t.Helper()
	req.Detach = true
	events, _, err := s.run(t, req)
	if err != nil {
		t.Fatal(err)
	}
	return s.get(t, events[0].GetRunId())
}

// The server must claim no run.
func (s *server) waiting(t *testing.T, req *cleanupv1.RunCleanupRequest) *cleanupv1.Run {
	t.Helper()
	req.RequestId = uuid.NewString()
	if _, err := s.RunCleanup(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	s.db.Until("SELECT count(*) FROM cleanupd.run WHERE request_id = $1", req.GetRequestId())
	return s.get(t, s.db.Strings("SELECT id::text FROM cleanupd.run WHERE request_id = $1", req.GetRequestId())[0])
}

func (s *server) get(t *testing.T, id string) *cleanupv1.Run {
	t.Helper()
	got, err := s.GetRun(t.Context(), &cleanupv1.GetRunRequest{RunId: id})
	if err != nil {
		t.Fatal(err)
	}
	return got.GetRun()
}

// The call must succeed; returns the run in its answer.
func (s *server) overREST(t *testing.T, path, body string) map[string]any {
	t.Helper()
	got := s.call(t, http.MethodPost, path, body)
	if got.code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, got.code, got.body)
	}
	run, _ := at(got.lines[0], "run").(map[string]any)
	return run
}

// A run is paced, paused and resumed over gRPC and over REST while a replica executes it. Each answer is the run as
// GetRun has it, a paused run is the active one, and nothing of this is possible once it has ended.
func TestPaceOfARun(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	release := endless(s)
	run := s.detached(t, &cleanupv1.RunCleanupRequest{
		Tasks:           []string{"import-rejects", "audit-trail"},
		MaxDuration:     durationpb.New(time.Hour),
		Pace:            cleanupv1.Pace_PACE_GENTLE,
		PauseStopsClock: true,
	})
	id := run.GetId()
	if run.GetPace() != cleanupv1.Pace_PACE_GENTLE || !run.GetPauseStopsClock() || run.GetPauseTime() != nil {
		t.Errorf("it started as %v", run)
	}
	s.db.Until("SELECT count(*) FROM cleanupd.task WHERE state = 'RUNNING'")

	paced, err := s.SetPace(t.Context(), &cleanupv1.SetPaceRequest{RunId: id, Pace: cleanupv1.Pace_PACE_FAST})
	if err != nil || paced.GetRun().GetPace() != cleanupv1.Pace_PACE_FAST {
		t.Errorf("%v, %v", paced, err)
	}
	if got := s.overREST(t, "/v1/runs/"+id+":pace", `{"pace": "PACE_BALANCED"}`); got["pace"] != "PACE_BALANCED" ||
		got["state"] != "RUN_STATE_RUNNING" {
		t.Errorf("paced over REST: %v", got)
	}

	before := time.Now().Add(-time.Minute) // the clocks are those of one machine
	paused, err := s.PauseRun(t.Context(), &cleanupv1.PauseRunRequest{RunId: id})
	if got := paused.GetRun(); err != nil || got.GetState() != cleanupv1.RunState_RUN_STATE_PAUSED ||
		got.GetPausedBy() != "127.0.0.1" || got.GetPauseTime().AsTime().Before(before) ||
		!proto.Equal(got, s.get(t, id)) {
		t.Errorf("paused: %v, %v", paused, err)
	}
	again := s.overREST(t, "/v1/runs/"+id+":pause", "")
	if since, err := time.Parse(time.RFC3339Nano, again["pauseTime"].(string)); err != nil ||
		!since.Equal(paused.GetRun().GetPauseTime().AsTime()) || again["state"] != "RUN_STATE_PAUSED" ||
		again["pausedBy"] != "127.0.0.1" {
		t.Errorf("paused twice: %v", again)
	}
	// A stream is accepted although a paused run has no further event, so that clients know that a server answers.
	watching, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	stream, err := s.WatchRun(watching, &cleanupv1.WatchRunRequest{
		RunId: id, AfterSequence: s.db.Int("SELECT last_sequence FROM cleanupd.run WHERE id = $1", id),
	})
	if err != nil {
		t.Fatal(err)
	}
	if header, err := stream.Header(); err != nil || header == nil {
		t.Errorf("the stream of a paused run has the header %v, %v", header, err)
	}
	isPaused := cleanupv1.RunState_RUN_STATE_PAUSED
	if list, err := s.ListRuns(t.Context(), &cleanupv1.ListRunsRequest{State: &isPaused}); err != nil ||
		len(list.GetRuns()) != 1 || list.GetRuns()[0].GetId() != id {
		t.Errorf("paused runs: %v, %v", list, err)
	}
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{})
	if info, _ := wantCode(t, err, codes.Aborted); info.GetMetadata()["run_id"] != id {
		t.Errorf("a second run: %v", info)
	}
	if got, err := s.SetPace(
		t.Context(), &cleanupv1.SetPaceRequest{RunId: id, Pace: cleanupv1.Pace_PACE_GENTLE},
	); err != nil || got.GetRun().GetPace() != cleanupv1.Pace_PACE_GENTLE ||
		got.GetRun().GetState() != cleanupv1.RunState_RUN_STATE_PAUSED {
		t.Errorf("the pace of a paused run: %v, %v", got, err)
	}

	if got := s.overREST(t, "/v1/runs/"+id+":resume", ""); got["state"] != "RUN_STATE_RUNNING" ||
		got["pauseTime"] != nil || got["pausedBy"] != "" {
		t.Errorf("resumed over REST: %v", got)
	}
	resumed, err := s.ResumeRun(t.Context(), &cleanupv1.ResumeRunRequest{RunId: id})
	if got := resumed.GetRun(); err != nil || got.GetState() != cleanupv1.RunState_RUN_STATE_RUNNING ||
		got.GetPauseTime() != nil || got.GetPausedBy() != "" || got.GetPace() != cleanupv1.Pace_PACE_GENTLE {
		t.Errorf("resumed while it is running: %v, %v", resumed, err)
	}
	release()
	stream, err = s.WatchRun(t.Context(), &cleanupv1.WatchRunRequest{RunId: id})
	events, err := drain(t, stream, err)
	if err != nil {
		t.Fatal(err)
	}
	if last := events[len(events)-1].GetRunFinished().GetRun(); deleted(last) != 50 {
		t.Errorf("it ended as %v", last)
	}
	var said []string
	for _, e := range events {
		switch code := e.GetLog().GetCode(); code {
		case "PACE_CHANGED", "RUN_PAUSED", "RUN_CONTINUED":
			said = append(said, code+" "+e.GetLog().GetMessage())
		}
	}
	if diff := cmp.Diff(
		[]string{
			"PACE_CHANGED 127.0.0.1 changed the pace to FAST",
			"PACE_CHANGED 127.0.0.1 changed the pace to BALANCED", "RUN_PAUSED paused by 127.0.0.1",
			"PACE_CHANGED 127.0.0.1 changed the pace to GENTLE", "RUN_CONTINUED resumed by 127.0.0.1",
		},
		said,
	); diff != "" {
		t.Error(diff)
	}

	_, err = s.SetPace(t.Context(), &cleanupv1.SetPaceRequest{RunId: id, Pace: cleanupv1.Pace_PACE_FAST})
	wantCode(t, err, codes.FailedPrecondition)
	_, err = s.PauseRun(t.Context(), &cleanupv1.PauseRunRequest{RunId: id})
	wantCode(t, err, codes.FailedPrecondition)
	_, err = s.ResumeRun(t.Context(), &cleanupv1.ResumeRunRequest{RunId: id})
	wantCode(t, err, codes.FailedPrecondition)
	for path, body := range map[string]string{":pace": `{"pace": "PACE_FAST"}`, ":pause": "", ":resume": ""} {
		if got := s.call(t, http.MethodPost, "/v1/runs/"+id+path, body); got.code != http.StatusBadRequest ||
			!strings.Contains(got.body, "the run has ended: it is SUCCEEDED") {
			t.Errorf("%s of a run that has ended: %d %s", path, got.code, got.body)
		}
	}
	if now := s.get(t, id); now.GetState() != cleanupv1.RunState_RUN_STATE_SUCCEEDED ||
		now.GetPace() != cleanupv1.Pace_PACE_GENTLE {
		t.Errorf("it is %v", now)
	}
}

// Requests that cannot be met change nothing, and say which field is wrong.
func TestInvalidPaces(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	queued := s.waiting(t, &cleanupv1.RunCleanupRequest{})
	if queued.GetPace() != cleanupv1.Pace_PACE_BALANCED {
		t.Errorf("the default pace is %s", queued.GetPace())
	}
	id := queued.GetId()
	for _, p := range []cleanupv1.Pace{0, 99, -1} {
		_, err := s.SetPace(t.Context(), &cleanupv1.SetPaceRequest{RunId: id, Pace: p})
		if fields := violated(t, err); fields != "pace" ||
			!strings.Contains(err.Error(), "PACE_GENTLE, PACE_BALANCED, PACE_FAST") {
			t.Errorf("the pace %d: %s, %v", p, fields, err)
		}
	}
	for _, body := range []string{"{}", `{"pace": "PACE_UNSPECIFIED"}`, `{"pace": "PACE_SLOW"}`, `{"pace": 99}`} {
		got := s.call(t, http.MethodPost, "/v1/runs/"+id+":pace", body)
		if got.code != http.StatusBadRequest || !strings.Contains(got.body, "pace") {
			t.Errorf("%s: %d %s", body, got.code, got.body)
		}
	}
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Pace: 99, DryRun: true}); violated(t, err) != "pace" {
		t.Errorf("a run with an unknown pace: %v", err)
	}
	for _, unknown := range []string{"x", "01a20609-283b-755d-90ec-99cde01f104d"} {
		_, err := s.SetPace(t.Context(), &cleanupv1.SetPaceRequest{RunId: unknown, Pace: cleanupv1.Pace_PACE_FAST})
		wantCode(t, err, codes.NotFound)
		_, err = s.PauseRun(t.Context(), &cleanupv1.PauseRunRequest{RunId: unknown})
		wantCode(t, err, codes.NotFound)
		_, err = s.ResumeRun(t.Context(), &cleanupv1.ResumeRunRequest{RunId: unknown})
		wantCode(t, err, codes.NotFound)
		for path, body := range map[string]string{":pace": `{"pace": "PACE_FAST"}`, ":pause": "", ":resume": ""} {
			if got := s.call(t, http.MethodPost, "/v1/runs/"+unknown+path, body); got.code != http.StatusNotFound {
				t.Errorf("%s of an unknown run: %d %s", path, got.code, got.body)
			}
		}
	}
	if diff := cmp.Diff(queued, s.get(t, id), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// A run that no replica has claimed is paused at once, and is queued again when it is resumed, as is a dry run.
// Cancelling it ends the pause.
func TestPauseOfAQueuedRun(t *testing.T) {
	t.Parallel()
	s := serve(t, database(t), true)
	for _, dry := range []bool{false, true} {
		run := s.waiting(t, &cleanupv1.RunCleanupRequest{DryRun: dry})
		got, err := s.PauseRun(t.Context(), &cleanupv1.PauseRunRequest{RunId: run.GetId()})
		if err != nil || got.GetRun().GetState() != cleanupv1.RunState_RUN_STATE_PAUSED {
			t.Errorf("paused, dry %v: %v, %v", dry, got, err)
		}
		back, err := s.ResumeRun(t.Context(), &cleanupv1.ResumeRunRequest{RunId: run.GetId()})
		if diff := cmp.Diff(
			run, back.GetRun(), protocmp.Transform(), protocmp.IgnoreFields(run, "last_sequence"),
		); err != nil || diff != "" {
			t.Errorf("resumed, dry %v: %v, %s", dry, err, diff)
		}
		if _, err := s.PauseRun(t.Context(), &cleanupv1.PauseRunRequest{RunId: run.GetId()}); err != nil {
			t.Error(err)
		}
		ended, err := s.CancelRun(t.Context(), &cleanupv1.CancelRunRequest{RunId: run.GetId()})
		if got := ended.GetRun(); err != nil || got.GetState() != cleanupv1.RunState_RUN_STATE_CANCELLED ||
			got.GetPauseTime() != nil || got.GetPausedBy() != "" {
			t.Errorf("cancelled, dry %v: %v, %v", dry, got, err)
		}
	}
}

// Viewers change nothing about a run, not even about their own dry runs. The audit has each call with its change, and
// the run says who paused it.
func TestWhoMayPace(t *testing.T) {
	t.Parallel()
	authenticator, err := access.Open(t.Context(), access.Config{TokenFile: tokenFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	s := serveAs(t, database(t), true, nil, transport.Config{Authenticator: authenticator})
	as := func(who string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret-"+who)
	}
	if _, err := s.RunCleanup(as("viewer"), &cleanupv1.RunCleanupRequest{DryRun: true}); err != nil {
		t.Fatal(err)
	}
	s.db.Until("SELECT count(*) FROM cleanupd.run")
	id := s.db.Strings("SELECT id::text FROM cleanupd.run")[0]
	calls := map[string]func(ctx context.Context) (*cleanupv1.Run, error){
		"1 SetPace": func(ctx context.Context) (*cleanupv1.Run, error) {
			out, err := s.SetPace(ctx, &cleanupv1.SetPaceRequest{RunId: id, Pace: cleanupv1.Pace_PACE_FAST})
			return out.GetRun(), err
		},
		"2 PauseRun": func(ctx context.Context) (*cleanupv1.Run, error) {
			out, err := s.PauseRun(ctx, &cleanupv1.PauseRunRequest{RunId: id})
			return out.GetRun(), err
		},
		"3 ResumeRun": func(ctx context.Context) (*cleanupv1.Run, error) {
			out, err := s.ResumeRun(ctx, &cleanupv1.ResumeRunRequest{RunId: id})
			return out.GetRun(), err
		},
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		_, err := calls[name](as("viewer"))
		wantCode(t, err, codes.PermissionDenied)
		run, err := calls[name](as("operator"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if paused := name == "2 PauseRun"; paused != (run.GetPausedBy() == "token:the-operator") {
			t.Errorf("%s: paused by %q", name, run.GetPausedBy())
		}
	}
	_, err = s.SetPace(as("operator"), &cleanupv1.SetPaceRequest{RunId: id})
	wantCode(t, err, codes.InvalidArgument)
	s.db.Until("SELECT (count(*) >= 8)::int FROM cleanupd.audit")
	got := s.db.Strings(`SELECT concat_ws(' ', subject, substring(rpc FROM '/(.*)'), result, details)
		FROM cleanupd.audit WHERE rpc NOT LIKE '%RunCleanup' ORDER BY id`)
	if diff := cmp.Diff([]string{
		`token:the-viewer SetPace PERMISSION_DENIED {}`,
		`token:the-operator SetPace OK {"pace": "FAST", "run_id": "` + id + `"}`,
		`token:the-viewer PauseRun PERMISSION_DENIED {}`,
		`token:the-operator PauseRun OK {"run_id": "` + id + `"}`,
		`token:the-viewer ResumeRun PERMISSION_DENIED {}`,
		`token:the-operator ResumeRun OK {"run_id": "` + id + `"}`,
		`token:the-operator SetPace INVALID_ARGUMENT {}`,
	}, got); diff != "" {
		t.Error(diff)
	}
}

// The schedule keeps its pace, its windows and whether pauses stop the clock, over gRPC and over REST; a mask changes
// only its fields, and each of them changes the etag.
func TestWindowsOfTheSchedule(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	windows := []*cleanupv1.Window{
		{
			Days: []string{"MON", "TUE", "WED", "THU", "FRI"}, Start: "08:00", End: "20:00",
			Pace: cleanupv1.Pace_PACE_GENTLE,
		},
		{Start: "22:00", End: "06:00", Pace: cleanupv1.Pace_PACE_FAST},
		{Days: []string{"SUN"}, Start: "00:00", End: "00:00"},
	}
	etags := map[string]bool{}
	set := func(schedule *cleanupv1.Schedule, paths ...string) *cleanupv1.Schedule {
		t.Helper()
		req := &cleanupv1.SetScheduleRequest{Schedule: schedule}
		if paths != nil {
			req.UpdateMask = mask(paths...)
		}
		out, err := s.SetSchedule(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if etags[out.GetEtag()] {
			t.Errorf("the etag of %v was that of another schedule", schedule)
		}
		etags[out.GetEtag()] = true
		if !proto.Equal(out.GetSchedule(), s.schedule(t)) {
			t.Errorf("the answer is %v, and then %v", out.GetSchedule(), s.schedule(t))
		}
		return out.GetSchedule()
	}
	want := &cleanupv1.Schedule{
		Cron:            "0 4 * * *",
		TimeZone:        "Europe/Berlin",
		MaxDuration:     durationpb.New(time.Hour),
		ContinueOnError: new(true),
		Pace:            cleanupv1.Pace_PACE_GENTLE,
		Windows:         windows,
		PauseStopsClock: true,
		Undo:            durationpb.New(48 * time.Hour),
	}
	check := func(what string, got *cleanupv1.Schedule) {
		t.Helper()
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	check("everything", set(proto.CloneOf(want)))
	want.Pace = cleanupv1.Pace_PACE_FAST
	check("the pace", set(&cleanupv1.Schedule{Pace: want.GetPace()}, "pace"))
	want.Windows = windows[1:]
	check("the windows", set(&cleanupv1.Schedule{Windows: windows[1:]}, "windows"))
	want.PauseStopsClock = false
	check("the clock", set(&cleanupv1.Schedule{Windows: windows}, "pause_stops_clock"))
	want.Undo = durationpb.New(0)
	check("no undo", set(&cleanupv1.Schedule{Undo: want.GetUndo()}, "undo"))
	want.Windows, want.Pace, want.Undo = nil, 0, nil
	check("a reset", set(&cleanupv1.Schedule{}, "windows", "pace", "undo"))

	got := s.call(t, http.MethodPatch, "/v1/schedule", `{"pace": "PACE_BALANCED", "pauseStopsClock": true, "windows": [
		{"days": ["SAT", "SUN"], "start": "22:00", "end": "06:00", "pace": "PACE_FAST"}, {"start": "12:00", "end":
			"13:00"}]}`)
	stored := map[string]any{
		"pace":            "PACE_BALANCED",
		"pauseStopsClock": true,
		"windows": []any{
			map[string]any{"days": []any{"SAT", "SUN"}, "start": "22:00", "end": "06:00", "pace": "PACE_FAST"},
			map[string]any{"days": []any{}, "start": "12:00", "end": "13:00", "pace": "PACE_UNSPECIFIED"},
		},
	}
	if got.code != http.StatusOK {
		t.Fatalf("%d %s", got.code, got.body)
	}
	for name, value := range stored {
		if diff := cmp.Diff(value, at(got.lines[0], "schedule", name)); diff != "" {
			t.Errorf("over REST, %s: %s", name, diff)
		}
	}
	got = s.call(t, http.MethodPatch, "/v1/schedule", `{"windows": null}`)
	if left, _ := at(got.lines[0], "schedule", "windows").([]any); got.code != http.StatusOK || len(left) > 0 ||
		at(got.lines[0], "schedule", "pace") != "PACE_BALANCED" {
		t.Errorf("without windows: %d %s", got.code, got.body)
	}

	for fields, schedule := range map[string]*cleanupv1.Schedule{
		"schedule.pace":            {Pace: 99},
		"schedule.windows[1].pace": {Windows: []*cleanupv1.Window{windows[0], {Start: "1:00", End: "02:00", Pace: 99}}},
		"schedule.windows[0].days[1], schedule.windows[0].end, schedule.windows[0].start, schedule.windows[1].end, " +
			"schedule.windows[1].start": {
			Windows: []*cleanupv1.Window{{Days: []string{"MON", "mon"}, Start: "22", End: "24:00"}, {Start: "1:00"}},
		},
		"schedule.windows": {Windows: slices.Repeat(windows[1:2], 21)},
	} {
		_, err := s.SetSchedule(t.Context(), &cleanupv1.SetScheduleRequest{Schedule: schedule})
		if got := violated(t, err); got != fields {
			t.Errorf("%v: violations of %s, want %s", schedule, got, fields)
		}
	}
	changes := s.db.Strings(
		"SELECT details->>'to' FROM cleanupd.audit WHERE rpc LIKE '%SetSchedule' AND result = 'OK' ORDER BY id")
	if len(changes) == 0 ||
		changes[0] != "0 4 * * * Europe/Berlin, disabled, for 1h0m0s at most without pauses, GENTLE, "+
			"undo for 48h0m0s, in MON,TUE,WED,THU,FRI 08:00-20:00 GENTLE and 22:00-06:00 FAST and SUN 00:00-00:00" {
		t.Errorf("the audit has %q", changes)
	}
}
