package service_test

import (
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

func refusedBy(err error) (codes.Code, string) {
	s := status.Convert(err)
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return s.Code(), info.GetReason()
		}
	}
	return s.Code(), ""
}

// A saved plan is executed once, with the tasks and the clock of its dry run, over gRPC and over REST; one that is
// invalid, or no longer holds, is refused, and nothing is deleted.
func TestPlan(t *testing.T) {
	t.Parallel()
	db := database(t)
	s := serve(t, db, false)
	insert := func(from, to int) {
		db.Do(
			"INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM "+
				"generate_series($1::int, $2::int) i",
			from,
			to,
		)
	}
	left := func() int64 { return db.Int("SELECT count(*) FROM XtkSessionInfo") }
	insert(1, 5)
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"sessions", "visitors"}})
	if err != nil {
		t.Fatal(err)
	}
	for field, req := range map[string]*cleanupv1.RunCleanupRequest{
		"tasks":      {Plan: dry.GetId(), Tasks: []string{"sessions"}},
		"skip_tasks": {Plan: dry.GetId(), SkipTasks: []string{"sessions"}},
		"dry_run":    {Plan: dry.GetId(), DryRun: true},
	} {
		if _, _, err := s.run(t, req); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), field) {
			t.Errorf("a plan with %s: %v", field, err)
		}
	}
	for _, id := range []string{"x", "01a20609-283b-755d-90ec-99cde01f104d"} {
		if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Plan: id}); status.Code(err) != codes.NotFound {
			t.Errorf("a plan that is not there: %v", err)
		}
	}
	if left() != 5 {
		t.Fatal("something was deleted")
	}
	db.Do(
		"INSERT INTO XtkOption (iOptionId, sName, iLongValue, iDataType) VALUES (1, 'NmsCleanup_VisitorPurgeDelay', " +
			"864000, 3)",
	)
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()})
	if code, reason := refusedBy(err); code != codes.FailedPrecondition || reason != "PLAN_STALE" ||
		!strings.Contains(err.Error(), "NmsCleanup_VisitorPurgeDelay") {
		t.Errorf("a plan by another option: %v", err)
	}
	db.Do("DELETE FROM XtkOption WHERE sName = 'NmsCleanup_VisitorPurgeDelay'")
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()})
	if err != nil || left() != 0 || run.GetPlan() != dry.GetId() ||
		!run.GetReferenceTime().AsTime().Equal(dry.GetReferenceTime().AsTime()) {
		t.Fatalf("%v, %v; %d rows are left", run, err, left())
	}
	for _, r := range run.GetResults() {
		chosen := r.GetTask() == "sessions" || r.GetTask() == "visitors"
		if ran := r.GetStartTime() != nil; ran != chosen {
			t.Errorf("%s: %v", r.GetTask(), r)
		}
	}
	insert(1, 5)
	if got := s.call(t, "POST", "/v1/runs", `{"plan": "`+dry.GetId()+`"}`); got.code != 400 || !strings.Contains(
		got.body, "PLAN_STALE",
	) ||
		left() != 5 {
		t.Errorf("a plan that was done: %d %s", got.code, got.body)
	}
	if _, _, err := s.run(
		t, &cleanupv1.RunCleanupRequest{Plan: run.GetId()},
	); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a plan that is no dry run: %v", err)
	}
	_, dry, err = s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"sessions"}})
	if err != nil {
		t.Fatal(err)
	}
	insert(6, 1_100)
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()})
	if code, reason := refusedBy(err); code != codes.FailedPrecondition || reason != "PLAN_EXCEEDED" || left() == 0 {
		t.Errorf("a plan that would be exceeded: %v; %d rows are left", err, left())
	}
	got := s.call(t, "GET", "/v1/runs?page_size=1", "")
	if !strings.Contains(got.body, `"reason":"REFUSAL_REASON_PLAN_EXCEEDED"`) ||
		!strings.Contains(got.body, `"planned":"5"`) {
		t.Errorf("the result does not say why: %s", got.body)
	}
	_, dry, err = s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"sessions"}})
	if err != nil {
		t.Fatal(err)
	}
	db.Do("UPDATE cleanupd.run SET reference_time = reference_time - interval '25 hours' WHERE id = $1::text::uuid",
		dry.GetId())
	db.Do("UPDATE cleanupd.run SET end_time = end_time - interval '2 days' WHERE NOT dry_run")
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()})
	if _, reason := refusedBy(err); reason != "PLAN_STALE" {
		t.Errorf("an old plan: %v", err)
	}
	// A plan applies to the tables that it was made for, not to their names.
	_, dry, err = s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"sessions"}})
	if err != nil {
		t.Fatal(err)
	}
	rows := left()
	db.Do("CREATE TABLE other (LIKE XtkSessionInfo INCLUDING ALL); INSERT INTO other TABLE XtkSessionInfo; " +
		"ALTER TABLE XtkSessionInfo RENAME TO old; ALTER TABLE other RENAME TO XtkSessionInfo")
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()})
	if _, reason := refusedBy(err); reason != "PLAN_STALE" || !strings.Contains(err.Error(), "xtksessioninfo") ||
		left() != rows || rows == 0 {
		t.Errorf("a plan of another table: %v; %d of %d rows are left", err, left(), rows)
	}
}
