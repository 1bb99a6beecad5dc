package service_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/tasks"
)

// Every task is explained, with the current cutoffs, and the server accepts its statements. Of holds, an explanation
// shows only that there are some.
func TestExplainTask(t *testing.T) {
	t.Parallel()
	db := filled(t)
	s := serve(t, db, false)
	db.Do(
		"CREATE TABLE wkDlv_987654 (i int); CREATE VIEW wkDlv_987654_v AS SELECT FROM wkDlv_987654; DROP TABLE " +
			"NmsVisitor; DELETE FROM XtkOption WHERE sName = 'NmsCleanup_BroadLogPurgeDelay'",
	)
	explain := func(task string) *cleanupv1.ExplainTaskResponse {
		t.Helper()
		out, err := s.ExplainTask(t.Context(), &cleanupv1.ExplainTaskRequest{Task: task})
		if err != nil {
			t.Fatalf("%s: %v", task, err)
		}
		return out
	}
	for _, what := range tasks.Pipeline {
		out := explain(what.Name)
		if out.GetTask() != what.Name || time.Since(out.GetReferenceTime().AsTime()).Abs() > time.Hour {
			t.Errorf("%v", out)
		}
		statements := out.GetStatements()
		if out.GetParents() != nil {
			statements = append(slices.Clone(statements), out.GetParents())
		}
		for _, told := range statements {
			drop := told.GetAction() == cleanupv1.PreviewAction_PREVIEW_ACTION_DROP
			query := told.GetAction() == cleanupv1.PreviewAction_PREVIEW_ACTION_UNSPECIFIED
			switch {
			case told.GetSql() == "" && !drop:
				t.Errorf("%s: %v", what.Name, told)
			case drop && told.GetSql() != "":
				db.Do("BEGIN; " + told.GetSql() + " CASCADE; ROLLBACK")
			case what.Vacuums:
				db.Do(told.GetSql())
			case !drop:
				db.Do("PREPARE told AS " + told.GetSql() + "; DEALLOCATE told")
			}
			if told.GetRule() == "" || told.GetTable() == "" || (!drop && !query && told.GetScanMethod() == 0) {
				t.Errorf("%s: %v", what.Name, told)
			}
		}
	}
	says := func(task, sql, parameter string) {
		t.Helper()
		if out := explain(task); !slices.ContainsFunc(
			out.GetStatements(),
			func(told *cleanupv1.ExplainedStatement) bool {
				return strings.Contains(told.GetSql(), sql) &&
					(parameter == "" || slices.Contains(told.GetParameters(), parameter))
			},
		) {
			t.Errorf("%s has no %s: %v", task, sql, out)
		}
	}
	says("work-tables", `DROP VIEW "public"."wkdlv_987654_v"`, "")
	says("work-tables", `"public"."wkdlv_987654"`, "")
	says("work-tables", "= ANY ($1::bigint[])", "")
	says("email-error-stats", "WITH gone AS (DELETE FROM ", "[]")
	says("statistics", "VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED, TRUNCATE false) ", "")
	logs := explain("delivery-logs")
	cutoff := logs.GetReferenceTime().AsTime().AddDate(0, 0, -180).Format(time.RFC3339)
	if len(logs.GetStatements()) == 0 || !slices.Contains(logs.GetStatements()[0].GetParameters(), cutoff) ||
		!strings.Contains(logs.GetStatements()[0].GetRule(), "180 days") {
		t.Errorf("the cutoff is not %s: %v", cutoff, logs)
	}
	if visitors := explain("visitors"); len(visitors.GetStatements()) != 0 ||
		!strings.Contains(strings.Join(visitors.GetSkips(), "\n"), "NmsVisitor is missing") {
		t.Errorf("%v", visitors)
	}
	deliveries := explain("deliveries")
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"deliveries"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range dry.GetResults()[1].GetPreview() {
		if p.GetTable() == `"public"."nmsdelivery"` && p.GetAction() == cleanupv1.PreviewAction_PREVIEW_ACTION_DELETE &&
			p.GetRows() != deliveries.GetParentCount() {
			t.Errorf("the set has %d rows, %d would go", deliveries.GetParentCount(), p.GetRows())
		}
	}
	if _, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{
		Hold: &cleanupv1.Hold{
			What:   &cleanupv1.Hold_Recipients{Recipients: &cleanupv1.HeldRows{Ids: []int64{987654321}}},
			Reason: "a secret",
		},
	}); err != nil {
		t.Fatal(err)
	}
	if held := explain("delivery-logs").String(); !strings.Contains(held, "something is on hold") ||
		strings.Contains(held, "987654321") {
		t.Errorf("what is held is told to anyone, or nothing is: %s", held)
	}
	_, err = s.ExplainTask(t.Context(), &cleanupv1.ExplainTaskRequest{Task: "policy/none"})
	wantCode(t, err, codes.NotFound)
	if got := s.call(t, "GET", "/v1/tasks/policy/none:explain", ""); got.code != 404 {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := s.call(t, "GET", "/v1/tasks/sessions:explain", ""); got.code != 200 || !strings.Contains(
		got.body, `"sql":"DELETE FROM ONLY`,
	) ||
		!strings.Contains(got.body, `"scanMethod":"SCAN_METHOD_TABLE"`) {
		t.Errorf("%d %s", got.code, got.body)
	}
}
