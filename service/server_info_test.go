package service_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// A server without authentication says so, and which replicas are running; over gRPC and over REST.
func TestWhatServes(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	who, err := s.WhoAmI(t.Context(), &cleanupv1.WhoAmIRequest{})
	if err != nil || who.GetRole() != cleanupv1.Role_ROLE_ADMIN || who.GetSubject() != "" ||
		who.GetAddress() != "127.0.0.1" {
		t.Errorf("%v, %v", who, err)
	}
	// the replica registers once it works
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		server, err := s.GetServer(t.Context(), &cleanupv1.GetServerRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if server.GetDatabase() == "" || server.GetDatabaseHost() == "" || server.GetHistory().AsDuration() <= 0 ||
			server.GetPlanMaxAge().AsDuration() <= 0 ||
			server.GetUserData() || !server.GetCampaign() ||
			server.GetRefusal() != "" {
			t.Fatal(server)
		}
		if len(server.GetReplicas()) == 1 && server.GetReplicas()[0].GetName() == server.GetReplica() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(server)
		}
	}
	s.db.Do("UPDATE cleanupd.replica SET seen_time = seen_time - interval '3 minutes'")
	var silent struct{ Replicas []any }
	if got := s.call(t, "GET", "/v1/server", ""); got.code != 200 || json.Unmarshal([]byte(got.body), &silent) != nil ||
		len(silent.Replicas) != 0 {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := s.call(t, "GET", "/v1/whoami", ""); got.code != 200 {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// The audit is listed page by page, newest first.
func TestListAudit(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	for range 3 {
		if _, err := s.SetSchedule(
			t.Context(), &cleanupv1.SetScheduleRequest{Schedule: &cleanupv1.Schedule{}},
		); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"no such task"}})
	wantCode(t, err, codes.InvalidArgument)
	var all []*cleanupv1.AuditEntry
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		page, err := s.ListAudit(t.Context(), &cleanupv1.ListAuditRequest{PageSize: 3, PageToken: token})
		if err != nil || len(page.GetEntries()) > 3 || pages > 1 {
			t.Fatalf("%v, %v", page, err)
		}
		all, token = append(all, page.GetEntries()...), page.GetNextPageToken()
	}
	if len(all) != 4 || all[0].GetRpc() != "CleanupService/RunCleanup" ||
		codes.Code(all[0].GetStatusCode()) != codes.InvalidArgument ||
		all[3].GetRpc() != "CleanupService/SetSchedule" ||
		all[3].GetStatusCode() != 0 ||
		all[3].GetId() >= all[0].GetId() {
		t.Errorf("%v", all)
	}
	since := all[1].GetTime()
	for _, c := range []struct {
		in   *cleanupv1.ListAuditRequest
		want []*cleanupv1.AuditEntry
	}{
		{&cleanupv1.ListAuditRequest{Filter: "setSCHEDULE"}, all[1:]},
		{&cleanupv1.ListAuditRequest{Filter: "invalid_argument"}, all[:1]},
		{&cleanupv1.ListAuditRequest{Filter: "%"}, nil},
		{&cleanupv1.ListAuditRequest{SinceTime: since}, all[:2]},
		{&cleanupv1.ListAuditRequest{SinceTime: since, Filter: "schedule"}, all[1:2]},
	} {
		page, err := s.ListAudit(t.Context(), c.in)
		if diff := cmp.Diff(c.want, page.GetEntries(), protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("%v: %v (-want +got)\n%s", c.in, err, diff)
		}
	}
	const page = "/v1/audit?page_size=1&filter=schedule&since_time=2026-01-01T00:00:00Z"
	if got := s.call(t, "GET", page, ""); got.code != 200 {
		t.Errorf("%d %s", got.code, got.body)
	}
	for _, bad := range []string{
		"page_size=-1", "page_token=x", "since_time=x", "filter=%00", "filter=" + strings.Repeat("x", 201),
	} {
		if got := s.call(t, "GET", "/v1/audit?"+bad, ""); got.code != 400 {
			t.Errorf("%s: %d %s", bad, got.code, got.body)
		}
	}
}

// ListRuns lists the requested runs page by page, newest first, and a run says how many events it has.
func TestListRuns(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	events, real, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"visitors"}})
	if err != nil {
		t.Fatal(err)
	}
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"visitors", "sessions"}, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	succeeded, failed, yes, no := cleanupv1.RunState_RUN_STATE_SUCCEEDED, cleanupv1.RunState_RUN_STATE_FAILED, true, false
	for _, c := range []struct {
		name string
		in   *cleanupv1.ListRunsRequest
		want []string
	}{
		{"all", &cleanupv1.ListRunsRequest{}, []string{dry.GetId(), real.GetId()}},
		{"succeeded", &cleanupv1.ListRunsRequest{State: &succeeded}, []string{dry.GetId(), real.GetId()}},
		{"failed", &cleanupv1.ListRunsRequest{State: &failed}, nil},
		{"dry", &cleanupv1.ListRunsRequest{DryRun: &yes}, []string{dry.GetId()}},
		{"real", &cleanupv1.ListRunsRequest{DryRun: &no}, []string{real.GetId()}},
		{"a task of both", &cleanupv1.ListRunsRequest{Task: "visitors"}, []string{dry.GetId(), real.GetId()}},
		{"a task of one", &cleanupv1.ListRunsRequest{Task: "sessions"}, []string{dry.GetId()}},
		{"from the second on", &cleanupv1.ListRunsRequest{CreatedFromTime: dry.GetCreateTime()}, []string{dry.GetId()}},
		{"before the second", &cleanupv1.ListRunsRequest{CreatedBeforeTime: dry.GetCreateTime()}, []string{
			real.GetId(),
		}},
	} {
		var got []string
		for token, pages := "", 0; pages == 0 || token != ""; pages++ { // the filter holds on each page
			c.in.PageSize, c.in.PageToken = 1, token
			page, err := s.ListRuns(t.Context(), c.in)
			if err != nil || len(page.GetRuns()) > 1 || pages > 2 {
				t.Fatalf("%s: %v, %v", c.name, page, err)
			}
			for _, run := range page.GetRuns() {
				got = append(got, run.GetId())
				if run.GetId() == real.GetId() && run.GetLastSequence() != events[len(events)-1].GetSequence() {
					t.Errorf("%d events, and the last one is %v", run.GetLastSequence(), events[len(events)-1])
				}
			}
			token = page.GetNextPageToken()
		}
		if len(got) != len(c.want) || (len(got) > 0 && (got[0] != c.want[0] || got[len(got)-1] != c.want[len(got)-1])) {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
	if got := s.call(
		t, "GET", "/v1/runs?state=RUN_STATE_FAILED&dryRun=false&createdFromTime=2020-01-01T00:00:00Z", "",
	); got.code != 200 {
		t.Errorf("%d %s", got.code, got.body)
	}
	for _, bad := range []string{
		"state=RUN_STATE_UNSPECIFIED", "state=9", "state=x", "task=nothing", "created_from_time=yesterday",
	} {
		if got := s.call(t, "GET", "/v1/runs?"+bad, ""); got.code != 400 {
			t.Errorf("%s: %d %s", bad, got.code, got.body)
		}
	}
	// A wrong parameter is a field violation, as a wrong field of a body is.
	for bad, want := range map[string]string{
		"state=FAILD":                 "state: must be one of RUN_STATE_QUEUED, RUN_STATE_RUNNING",
		"page_size=ten":               "page_size: must be a whole number",
		"dryRun=yes":                  "dryRun: must be true or false",
		"created_from_time=yesterday": "created_from_time: must be a time, such as 2026-02-28T12:00:00Z",
		"stat=x":                      "stat: there is no such parameter (did you mean state?)",
		"task=a&task=b":               "task: is given 2 times",
		"task=%FF":                    "task: is not UTF-8",
	} {
		got := s.call(t, "GET", "/v1/runs?"+bad, "")
		field, _, _ := strings.Cut(want, ":")
		if got.code != 400 || !strings.Contains(got.body, "the query is not valid: "+want) ||
			!strings.Contains(strings.ReplaceAll(got.body, " ", ""), `"field":"`+field+`"`) {
			t.Errorf("%s: %d %s", bad, got.code, got.body)
		}
	}
	for _, in := range []*cleanupv1.ListRunsRequest{
		{CreatedBeforeTime: &timestamppb.Timestamp{Nanos: -1}},
		{PageSize: -1},
		{PageToken: "x"},
		{PageToken: "MjAyNg=="},
		{View: 7},
	} {
		_, err = s.ListRuns(t.Context(), in)
		wantCode(t, err, codes.InvalidArgument)
	}
}
