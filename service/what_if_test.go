package service_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// A dry run shows what other options would change, over gRPC and over REST; it is not a plan, and a run accepts no such
// question.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do(
		"INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified) SELECT i, 0, 0, now() - i * " +
			"interval '1 day' FROM generate_series(1, 100) i",
	)
	s := serve(t, db, false)
	days := func(n int32) *cleanupv1.Options { return &cleanupv1.Options{VisitorPurgeDelayDays: &n} }
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"visitors"}, WhatIf: days(10)})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range dry.GetResults() {
		if r.GetTask() != "visitors" {
			continue
		}
		if p := r.GetPreview(); len(p) != 1 || p[0].GetRows() != 91 || p[0].BaselineRows == nil ||
			p[0].GetBaselineRows() != 71 ||
			r.GetRowsDeleted() != 91 {
			t.Errorf("ten days: %v", r)
		}
	}
	if dry.GetWhatIf().GetVisitorPurgeDelayDays() != 10 {
		t.Errorf("the run does not say what it supposed: %v", dry.GetWhatIf())
	}
	got := s.call(t, "POST", "/v1/runs",
		`{"dryRun": true, "tasks": ["visitors"], "whatIf": {"visitorPurgeDelayDays": 200}}`)
	if got.code != 200 || !strings.Contains(got.body, `"baselineRows":"71"`) {
		t.Errorf("two hundred days: %d %s", got.code, got.body)
	}
	if _, _, err := s.run(
		t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()},
	); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a question as a plan: %v", err)
	}
	for field, req := range map[string]*cleanupv1.RunCleanupRequest{
		"what_if":                          {WhatIf: days(10)},
		"what_if.visitor_purge_delay_days": {DryRun: true, WhatIf: days(0)},
		"has no option":                    {DryRun: true, WhatIf: &cleanupv1.Options{}},
	} {
		if _, _, err := s.run(t, req); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if db.Int("SELECT count(*) FROM NmsVisitor") != 100 ||
		db.Int("SELECT count(*) FROM XtkOption WHERE sName = 'NmsCleanup_VisitorPurgeDelay'") != 0 {
		t.Error("something was changed")
	}
}
