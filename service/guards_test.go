package service_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// Guards are read and set, over gRPC and over REST; a missing field has its default. A task that a guard refuses says
// why; a plan passes it with the number that its preview shows.
func TestGuards(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2020-01-01' FROM generate_series(1, 20) i")
	got, err := s.GetGuards(t.Context(), &cleanupv1.GetGuardsRequest{})
	if err != nil || !proto.Equal(got.GetGuards(), got.GetDefaults()) || got.GetGuards().GetMinRows() != 100_000 ||
		got.GetGuards().GetMaxIdle().AsDuration().Hours() != 45*24 ||
		got.GetRefusals() != nil {
		t.Fatalf("%v, %v", got, err)
	}
	set, err := s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{
		Guards: &cleanupv1.Guards{
			MinRows:   proto.Int64(3),
			MaxGrowth: proto.Float64(2.5),
			MaxIdle:   durationpb.New(0),
		},
	})
	if err != nil || set.GetGuards().GetMaxGrowth() != 2.5 || set.GetGuards().GetMaxIdle().AsDuration() != 0 ||
		set.GetGuards().GetMaxSharePercent() != 50 ||
		!set.GetGuards().GetCutoff() {
		t.Fatalf("%v, %v", set, err)
	}
	if got := s.call(
		t, "PUT", "/v1/guards", `{"minRows": "10", "maxTables": "0", "cutoff": false}`,
	); got.code != 200 || !strings.Contains(got.body, `"maxGrowth":10`) ||
		!strings.Contains(got.body, `"minRows":"10"`) ||
		!strings.Contains(got.body, `"cutoff":false`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	_, err = s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{})
	if _, bad := wantCode(t, err, codes.InvalidArgument); bad.GetFieldViolations()[0].GetField() != "guards" {
		t.Errorf("%v", err)
	}
	_, err = s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{
		Guards: &cleanupv1.Guards{MinRows: proto.Int64(-1), MaxIdle: &durationpb.Duration{Seconds: 1, Nanos: -1}},
	})
	if _, bad := wantCode(t, err, codes.InvalidArgument); len(bad.GetFieldViolations()) != 2 ||
		bad.GetFieldViolations()[0].GetField() != "guards.max_idle" {
		t.Errorf("%v", err)
	}
	if got := s.call(t, "PUT", "/v1/guards", `{"maxSharePercent": 200}`); got.code != 400 ||
		!strings.Contains(got.body, `"field":"maxSharePercent"`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"audit-trail"}})
	if code, reason := refusedBy(err); code != codes.FailedPrecondition || reason != "GUARD" || !strings.Contains(
		err.Error(), "share",
	) ||
		run.GetReason() != cleanupv1.RefusalReason_REFUSAL_REASON_GUARD {
		t.Errorf("%v", err)
	}
	for _, r := range run.GetResults() {
		if r.GetTask() == "audit-trail" &&
			(r.GetReason() != cleanupv1.RefusalReason_REFUSAL_REASON_GUARD ||
				r.GetMetadata()["table"] != `"public"."xtkaudit"` ||
				r.GetMetadata()["limit"] != "10" || r.GetMetadata()["number"] != "11") {
			t.Errorf("%v", r)
		}
	}
	if got := s.call(t, "GET", "/v1/guards", ""); got.code != 200 || !strings.Contains(
		got.body, `"refusals":[{"guard":{"guard":"GUARD_KIND_SHARE"`,
	) ||
		!strings.Contains(got.body, run.GetId()) {
		t.Errorf("%d %s", got.code, got.body)
	}
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"audit-trail"}, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(dry.GetTrippedGuards()) != 1 {
		t.Fatalf("the dry run says of guards: %v", dry.GetTrippedGuards())
	}
	guard := dry.GetTrippedGuards()[0]
	for field, req := range map[string]*cleanupv1.RunCleanupRequest{
		"accept_guards": {AcceptGuards: []*cleanupv1.TrippedGuard{guard}},
		"accept_guards[0].guard": {
			Plan:         dry.GetId(),
			AcceptGuards: []*cleanupv1.TrippedGuard{{Guard: cleanupv1.GuardKind_GUARD_KIND_IDLE, Table: "x"}},
		},
		"accept_guards[1].guard": {
			Plan:         dry.GetId(),
			AcceptGuards: []*cleanupv1.TrippedGuard{guard, {Guard: 99, Table: "x"}},
		},
		"accept_guards[2].guard": {
			Plan:         dry.GetId(),
			AcceptGuards: []*cleanupv1.TrippedGuard{guard, guard, {Guard: cleanupv1.GuardKind_GUARD_KIND_FIRST, Table: "x"}},
		},
		"accept_guards[0].table": {Plan: dry.GetId(), AcceptGuards: []*cleanupv1.TrippedGuard{
			{Guard: cleanupv1.GuardKind_GUARD_KIND_SHARE},
		}},
		"accept_guards[0].number": {
			Plan:         dry.GetId(),
			AcceptGuards: []*cleanupv1.TrippedGuard{{Guard: cleanupv1.GuardKind_GUARD_KIND_SHARE, Table: "x", Number: -1}},
		},
	} {
		_, _, err := s.run(t, req)
		if _, bad := wantCode(t, err, codes.InvalidArgument); bad.GetFieldViolations()[0].GetField() != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	body := strings.ReplaceAll(s.call(t, "GET", "/v1/runs/"+dry.GetId(), "").body, " ", "")
	if !strings.Contains(
		body,
		`"guards":[{"guard":"GUARD_KIND_SHARE","table":"\"public\".\"xtkaudit\"","number":"20","limit":"10",`+
			`"recentRows":"0","totalRows":"20","atLeast":false}]`,
	) {
		t.Errorf("the preview: %s", body)
	}
	if got := s.call(
		t, "POST", "/v1/runs",
		`{"plan": "`+dry.GetId()+`", "acceptGuards": [{"guard": "GUARD_KIND_SHARE", "table": "public.xtkaudit", `+
			`"number": "20"}]}`,
	); got.code != 200 || !strings.Contains(got.body, `"rowsDeleted":"20"`) ||
		s.db.Int("SELECT count(*) FROM XtkAudit WHERE iAuditId > 0") != 0 {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got, err := s.GetGuards(t.Context(), &cleanupv1.GetGuardsRequest{}); err != nil || got.GetRefusals() != nil {
		t.Errorf("%v, %v", got, err)
	}
	if n := s.db.Int(
		"SELECT count(*) FROM cleanupd.audit WHERE rpc LIKE '%SetGuards' AND details->'to' IS NOT NULL",
	); n != 2 {
		t.Errorf("%d changes are in the audit trail", n)
	}
}

// A change of an option that its task reads releases a tripped guard, at once and for good. Other changes do not.
func TestAnOptionEndsRefusals(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2020-01-01' FROM generate_series(1, 20) i")
	if _, err := s.SetGuards(
		t.Context(), &cleanupv1.SetGuardsRequest{Guards: &cleanupv1.Guards{MinRows: proto.Int64(3)}},
	); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"audit-trail"}}); err == nil {
		t.Fatal("no guard trips")
	}
	set := func(o *cleanupv1.Options) (refusals int) {
		t.Helper()
		if _, err := s.SetOptions(t.Context(), &cleanupv1.SetOptionsRequest{Options: o}); err != nil {
			t.Fatal(err)
		}
		got, err := s.GetGuards(t.Context(), &cleanupv1.GetGuardsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(got.GetRefusals())
	}
	if n := set(&cleanupv1.Options{VisitorPurgeDelayDays: proto.Int32(40)}); n != 1 {
		t.Errorf("%d refusals after another task's option was changed", n)
	}
	for _, days := range []int32{400, 180} {
		if n := set(&cleanupv1.Options{AuditTrailPurgeDelayDays: &days}); n != 0 {
			t.Errorf("%d refusals at %d days", n, days)
		}
	}
	s.db.Do("DELETE FROM XtkAudit WHERE iAuditId > 2")
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"audit-trail"}}); err != nil {
		t.Error(err)
	}
}

// The reason of a change is in the audit, whether it came over gRPC or over REST.
func TestGuardsAreChangedForAReason(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	change := &cleanupv1.SetGuardsRequest{Guards: &cleanupv1.Guards{}, Reason: "a backlog of two years"}
	if _, err := s.SetGuards(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	if got := s.call(t, "PATCH", "/v1/guards?reason=back%20to%20normal", `{"minRows": "20"}`); got.code != 200 {
		t.Errorf("%d %s", got.code, got.body)
	}
	got := s.db.Strings("SELECT details->>'reason' FROM cleanupd.audit WHERE rpc LIKE '%SetGuards' ORDER BY id")
	if want := []string{"a backlog of two years", "back to normal"}; !slices.Equal(got, want) {
		t.Errorf("the audit has the reasons %q, want %q", got, want)
	}
	for _, reason := range []string{strings.Repeat("é", 1001), "a\x00b"} {
		_, err := s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{Guards: &cleanupv1.Guards{}, Reason: reason})
		if _, bad := wantCode(t, err, codes.InvalidArgument); bad.GetFieldViolations()[0].GetField() != "reason" {
			t.Errorf("%v", err)
		}
	}
}

// In a database without Campaign, the guards that only Campaign has cannot be changed; the others can.
func TestGuardsWithoutCampaign(t *testing.T) {
	t.Parallel()
	s := shop(t)
	for field, g := range map[string]*cleanupv1.Guards{
		"":                        {MinRows: proto.Int64(10)},
		"guards.max_idle":         {MaxIdle: durationpb.New(0)},
		"guards.max_tables":       {MaxTables: proto.Int64(7)},
		"guards.max_drop_percent": {MaxDropPercent: proto.Float64(7)},
	} {
		_, err := s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{Guards: g})
		if field == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		_, bad := wantCode(t, err, codes.InvalidArgument)
		if v := bad.GetFieldViolations(); len(v) != 1 || v[0].GetField() != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
