package service_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/tasks"
)

// A replica that also cleans, with a Forms database whose process instances ended a year ago, some of them a
// workflow's.
func purgeServer(t *testing.T) (*server, cleanupv1.UserDataServiceClient, *pgtest.DB) {
	t.Helper()
	s, client, forms := formsServer(t)
	forms.Do("ALTER TABLE tb_process_instance ADD ended date DEFAULT now() - interval '1 year'")
	return s, client, forms
}

func loans() *cleanupv1.FormsPurge {
	return &cleanupv1.FormsPurge{Name: "loans", Application: "Loans", DateColumn: "ended", Days: 100, Enabled: true}
}

func setPurge(t *testing.T, client cleanupv1.UserDataServiceClient, p *cleanupv1.FormsPurge) *cleanupv1.FormsPurge {
	t.Helper()
	out, err := client.SetFormsPurge(t.Context(), &cleanupv1.SetFormsPurgeRequest{Purge: p})
	if err != nil {
		t.Fatal(err)
	}
	return out.GetPurge()
}

// nil: the run does not have the task.
func resultOf(run *cleanupv1.Run, task string) *cleanupv1.TaskResult {
	i := slices.IndexFunc(run.GetResults(), func(r *cleanupv1.TaskResult) bool { return r.GetTask() == task })
	if i < 0 {
		return nil
	}
	return run.GetResults()[i]
}

// A purge is a task of runs like the others: it is listed, predicted to the row, run as planned, counted, and
// explained.
func TestPurgesInRuns(t *testing.T) {
	t.Parallel()
	s, client, forms := purgeServer(t)
	p := loans()
	p.Enabled = false
	set := setPurge(t, client, p)
	listed, err := s.ListTasks(t.Context(), &cleanupv1.ListTasksRequest{})
	if last := listed.GetTasks()[len(listed.GetTasks())-1]; err != nil || last.GetName() != "forms/loans" ||
		!last.GetDisabled() ||
		!strings.Contains(last.GetDescription(), "ended older than 100 days") {
		t.Fatalf("%v %v", last, err)
	}
	// Before the purge is enabled, a dry run that names it predicts what it deletes.
	ended := "SELECT count(*) FROM tb_process_instance WHERE status IN (2, 4) AND id IN (SELECT process_instance_id " +
		"FROM tb_101 UNION SELECT process_instance_id FROM tb_102)"
	due := forms.Int(ended)
	only := []string{"forms/loans"}
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: only, DryRun: true})
	if err != nil || due == 0 {
		t.Fatal(dry, err)
	}
	foreseen := resultOf(dry, "forms/loans")
	rows := map[string]int64{}
	for _, table := range foreseen.GetPreview() {
		rows[table.GetTable()] += table.GetRows()
	}
	if rows["tb_process_instance"] != due || rows["tb_task"] == 0 || forms.Int(ended) != due {
		t.Errorf("%v", foreseen)
	}
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{Tasks: only})
	if _, bad := wantCode(t, err, codes.InvalidArgument); bad.GetFieldViolations()[0].GetField() != "tasks[0]" {
		t.Errorf("%v", bad)
	}
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()})
	wantCode(t, err, codes.InvalidArgument)
	others := slices.Delete(tasks.Names(), 0, 1) // all of these would take long
	if _, all, err := s.run(t, &cleanupv1.RunCleanupRequest{SkipTasks: others}); err != nil ||
		resultOf(all, "forms/loans").GetState() != cleanupv1.TaskState_TASK_STATE_SKIPPED {
		t.Errorf("a run does what is disabled: %v %v", all, err)
	}

	// Once enabled, it deletes exactly what the plan of a dry run has, and no other process instance.
	p.Enabled, p.Etag = true, set.GetEtag()
	setPurge(t, client, p)
	if _, dry, err = s.run(t, &cleanupv1.RunCleanupRequest{Tasks: only, DryRun: true}); err != nil {
		t.Fatal(err)
	}
	forms.Do(
		"INSERT INTO tb_process_instance VALUES (5001, 'late', 2, '2020-01-01'); INSERT INTO tb_101 " +
			"(process_instance_id) VALUES (5001)",
	)
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()})
	done := resultOf(run, "forms/loans")
	if err != nil || done.GetRowsDeleted() != foreseen.GetRowsDeleted() || done.GetRowsDeleted() == 0 ||
		forms.Int(ended) != 1 {
		t.Errorf("%v, foreseen %v: %v", done, foreseen, err)
	}
	list, err := client.ListReceipts(t.Context(), &cleanupv1.ListReceiptsRequest{})
	if err != nil || len(list.GetReceipts()) != 1 || list.GetReceipts()[0].GetPurge() != "loans" ||
		list.GetReceipts()[0].GetRunId() != run.GetId() ||
		len(list.GetReceipts()[0].GetProcessInstanceIds()) != 0 {
		t.Fatalf("%v %v", list, err)
	}
	if r, err := client.GetReceipt(
		t.Context(), &cleanupv1.GetReceiptRequest{ReceiptId: list.GetReceipts()[0].GetId()},
	); err != nil ||
		int64(len(r.GetReceipt().GetProcessInstanceIds())) != due {
		t.Errorf("%v %v", r, err)
	}
	// A run of all tasks includes it, too. Changing a purge makes a plan stale.
	if _, dry, err = s.run(t, &cleanupv1.RunCleanupRequest{Tasks: only, DryRun: true}); err != nil {
		t.Fatal(err)
	}
	p.Days, p.Etag = 101, ""
	setPurge(t, client, p)
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()})
	if info, _ := wantCode(t, err, codes.FailedPrecondition); info.GetReason() != "PLAN_STALE" ||
		!strings.Contains(info.GetMetadata()["changed"], "101 days") {
		t.Errorf("%v", info)
	}
	if _, all, err := s.run(
		t, &cleanupv1.RunCleanupRequest{SkipTasks: others},
	); err != nil || resultOf(all, "forms/loans").GetRowsDeleted() != 2 ||
		forms.Int(ended) != 0 {
		t.Errorf("%v %v", all, err)
	}
	if e, err := s.ExplainTask(t.Context(), &cleanupv1.ExplainTaskRequest{Task: "forms/loans"}); err != nil || len(
		e.GetStatements(),
	) < 3 ||
		!strings.Contains(e.GetStatements()[0].GetSql(), "tb_process_instance") {
		t.Errorf("%v %v", e, err)
	}
	// A run of a purge that was deleted later, and the filter of runs, still have its name.
	if _, err := client.DeleteFormsPurge(t.Context(), &cleanupv1.DeleteFormsPurgeRequest{Name: "loans"}); err != nil {
		t.Error(err)
	}
	if l, err := s.ListRuns(t.Context(), &cleanupv1.ListRunsRequest{Task: "forms/loans"}); err != nil ||
		len(l.GetRuns()) < 4 {
		t.Errorf("%v %v", l, err)
	}
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{Tasks: only})
	wantCode(t, err, codes.InvalidArgument)
	if want := "Set, Set, Set, Delete"; strings.Join(
		s.db.Strings(
			"SELECT substring(rpc FROM '/(.*)FormsPurge') FROM cleanupd.audit WHERE rpc LIKE '%FormsPurge' AND "+
				"result = 'OK' ORDER BY time",
		),
		", ",
	) != want {
		t.Errorf("the audit has %v", s.db.Strings("SELECT rpc || result FROM cleanupd.audit"))
	}
}

// More than half of the process instances are not deleted without approval, nor those that a shorter delay makes
// obsolete.
func TestPurgesAreGuarded(t *testing.T) {
	t.Parallel()
	s, client, forms := purgeServer(t)
	forms.Do(
		"UPDATE tb_process_instance SET status = 2; INSERT INTO tb_101 (process_instance_id) SELECT id FROM " +
			"tb_process_instance",
	)
	if _, err := s.SetGuards(
		t.Context(), &cleanupv1.SetGuardsRequest{Guards: &cleanupv1.Guards{MinProcessInstances: new(int64(10))}},
	); err != nil {
		t.Fatal(err)
	}
	p := setPurge(t, client, loans())
	only := []string{"forms/loans"}
	refused := func() string {
		t.Helper()
		_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: only})
		if err == nil {
			return ""
		}
		info, _ := wantCode(t, err, codes.FailedPrecondition)
		if info.GetReason() != "GUARD" || resultOf(run, "forms/loans").GetRowsDeleted() != 0 {
			t.Errorf("%v %v", info, run)
		}
		return resultOf(run,
			"forms/loans").GetMetadata()["guard"] + " " + resultOf(run, "forms/loans").GetMetadata()["number"]
	}
	for range 2 { // the refusal persists
		if got := refused(); got != "share 40" {
			t.Errorf("all process instances: %q", got)
		}
	}
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: only, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	var accept []*cleanupv1.TrippedGuard
	for _, table := range resultOf(dry, "forms/loans").GetPreview() {
		accept = append(accept, table.GetGuards()...)
	}
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId(), AcceptGuards: accept}); err != nil ||
		forms.Int("SELECT count(*) FROM tb_process_instance") != 0 {
		t.Errorf("%v: %v", accept, err)
	}
	forms.Do(
		`INSERT INTO tb_process_instance SELECT i, 'i', 2, now() - interval '50 days'
			FROM generate_series(101, 120) i; INSERT INTO tb_101 (process_instance_id) SELECT i
			FROM generate_series(101, 120) i;
		INSERT INTO tb_process_instance SELECT i, 'i', 2, now() FROM generate_series(201, 300) i`,
	)
	p.Days = 40
	setPurge(t, client, p)
	if got := refused(); got != "cutoff 20" {
		t.Errorf("a shorter delay: %q", got)
	}
}

// The share guard counts what purges delete together: in a run, in a dry run of it, and in the runs of a day.
func TestShareOfPurges(t *testing.T) {
	t.Parallel()
	s, client, forms := purgeServer(t)
	forms.Do(
		`TRUNCATE omd_object_type, tb_process_instance, tb_task, tb_101, tb_102, tb_103; INSERT INTO omd_object_type
			VALUES ('pt_A/x', 'tb_101'), ('pt_B/x', 'tb_102'), ('pt_C/x', 'tb_103');
		INSERT INTO tb_process_instance (id, status) SELECT i, 2 FROM generate_series(1, 300) i;
		INSERT INTO tb_101 (process_instance_id) SELECT generate_series(1, 300, 3);
			INSERT INTO tb_102 (process_instance_id) SELECT generate_series(2, 300, 3);
			INSERT INTO tb_103 (process_instance_id) SELECT generate_series(3, 300, 3)`,
	)
	for _, name := range []string{"a", "b", "c"} {
		setPurge(t, client, &cleanupv1.FormsPurge{
			Name:        name,
			Application: strings.ToUpper(name),
			DateColumn:  "ended",
			Days:        100,
			Enabled:     true,
		})
	}
	_, dry, err := s.run(t,
		&cleanupv1.RunCleanupRequest{Tasks: []string{"forms/a", "forms/b", "forms/c"}, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	for task, trips := range map[string]string{"forms/a": "", "forms/b": "200 150", "forms/c": "300 150"} {
		got := ""
		for _, g := range resultOf(dry, task).GetPreview()[0].GetGuards() {
			got = fmt.Sprint(g.GetNumber(), " ", g.GetLimit())
		}
		if got != trips {
			t.Errorf("the dry run of %s trips %q, want %q", task, got, trips)
		}
	}
	left := func() int64 { return forms.Int("SELECT count(*) FROM tb_process_instance") }
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"forms/a", "forms/b"}, ContinueOnError: true})
	if info, _ := wantCode(t, err, codes.FailedPrecondition); info.GetReason() != "GUARD" || left() != 200 ||
		resultOf(run, "forms/b").GetMetadata()["number"] != "200" {
		t.Errorf("two thirds in one run: %d are left: %v", left(), run)
	}
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"forms/c"}}); err == nil || left() != 200 {
		t.Errorf("a third in the next run of the day: %d are left: %v", left(), err)
	}
	s.db.Do("UPDATE cleanupd.run SET start_time = start_time - interval '1 day'")
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"forms/c"}}); err == nil || left() != 200 {
		t.Errorf("the guard refuses nothing: %d are left: %v", left(), err)
	}
	accept := []*cleanupv1.TrippedGuard{
		{Guard: cleanupv1.GuardKind_GUARD_KIND_SHARE, Table: "tb_process_instance", Number: 200},
	}
	_, dry, err = s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"forms/c"}, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId(), AcceptGuards: accept}); err != nil ||
		left() != 100 {
		t.Errorf("with an approval: %d are left: %v", left(), err)
	}
}

// While everything is on hold no obsolete instance is deleted, and no person's data is erased.
func TestFormsIsHeld(t *testing.T) {
	t.Parallel()
	s, client, forms := purgeServer(t)
	setPurge(t, client, loans())
	held, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{
		Hold: &cleanupv1.Hold{
			Reason: "audit",
			What:   &cleanupv1.Hold_Everything{Everything: &cleanupv1.HeldEverything{}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"forms/loans"}}); err != nil || resultOf(
		run, "forms/loans",
	).GetState() != cleanupv1.TaskState_TASK_STATE_SKIPPED ||
		forms.Int("SELECT count(*) FROM tb_process_instance") != 40 {
		t.Errorf("%v %v", run, err)
	}
	erase := func(dryRun bool) error {
		_, err := eraseAll(t, client,
			&cleanupv1.EraseUserDataRequest{ProcessInstanceIds: []string{"1"}, DryRun: dryRun})
		return err
	}
	sweep, err := client.SweepDocuments(t.Context(), &cleanupv1.SweepDocumentsRequest{})
	if err == nil {
		_, err = sweep.Recv()
	}
	for what, err := range map[string]error{"erase": erase(false), "sweep": err} {
		if info, _ := wantCode(t, err, codes.FailedPrecondition); info.GetReason() != runs.AllHeld {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := erase(true); err != nil || forms.Int("SELECT count(*) FROM tb_process_instance") != 40 {
		t.Errorf("a dry run: %v", err)
	}
	if _, err := s.ReleaseHold(t.Context(), &cleanupv1.ReleaseHoldRequest{HoldId: held.GetHold().GetId()}); err != nil {
		t.Fatal(err)
	}
	if err := erase(false); err != nil || forms.Int("SELECT count(*) FROM tb_process_instance") != 39 {
		t.Errorf("after the release: %v", err)
	}
}

// waitingPurge starts a purge of 1,000 process instances that waits for one of the second hundred until release is
// called.
func waitingPurge(
	t *testing.T,
) (s *server, forms *pgtest.DB, stream grpc.ServerStreamingClient[cleanupv1.RunCleanupResponse], locked pgx.Tx) {
	t.Helper()
	s, client, forms := purgeServer(t)
	forms.Do(
		`DELETE FROM tb_process_instance; INSERT INTO tb_process_instance SELECT i, 'i', 2, '2020-01-01'
			FROM generate_series(1, 1000) i; TRUNCATE tb_101; INSERT INTO tb_101 (process_instance_id) SELECT i
			FROM generate_series(1, 1000) i; TRUNCATE tb_task`,
	)
	if _, err := s.SetGuards(
		t.Context(), &cleanupv1.SetGuardsRequest{Guards: &cleanupv1.Guards{MaxSharePercent: new(float64)}},
	); err != nil {
		t.Fatal(err)
	}
	setPurge(t, client, loans())
	locked = forms.Hold("SELECT FROM tb_process_instance WHERE id = 150 FOR UPDATE")
	stream, err := s.RunCleanup(t.Context(), &cleanupv1.RunCleanupRequest{Tasks: []string{"forms/loans"}})
	if err != nil {
		t.Fatal(err)
	}
	return s, forms, stream, locked
}

// A hold of everything that is created during a purge stops it. The run counts what was deleted before, as the receipt
// does, and the retained rows.
func TestFormsIsHeldDuringPurge(t *testing.T) {
	t.Parallel()
	s, forms, stream, locked := waitingPurge(t)
	forms.Until("SELECT (count(*) <= 900)::int FROM tb_process_instance")
	created := make(chan error, 1)
	go func() {
		_, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: &cleanupv1.Hold{
			Reason: "audit",
			What:   &cleanupv1.Hold_Everything{Everything: &cleanupv1.HeldEverything{}},
		}})
		created <- err
	}()
	s.db.Until("SELECT count(*) FROM cleanupd.hold")
	if err := locked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	inForce := forms.Int("SELECT count(*) FROM tb_process_instance")
	events, err := drain(t, stream, nil)
	result := resultOf(events[len(events)-1].GetRunFinished().GetRun(), "forms/loans")
	rows, left := s.db.Int("SELECT sum(rows) FROM cleanupd.erasure_rows"), forms.Int(
		"SELECT count(*) FROM tb_process_instance")
	if err != nil || left != inForce || left < 800 || result.GetState() != cleanupv1.TaskState_TASK_STATE_SKIPPED ||
		result.GetRowsDeleted() != rows ||
		result.GetRowsOnHold() != left {
		t.Errorf("%d process instances are left of %d when the hold was in force, %d rows are gone: %v %v", left,
			inForce, rows, result, err)
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.erasure WHERE state = 'FAILED' OR state = 'SUCCEEDED'"); n != 1 {
		t.Error("the receipt does not end")
	}
}

// A process instance that cannot be erased fails the task, which names the receipt. The others are erased.
func TestPurgesThatFail(t *testing.T) {
	t.Parallel()
	s, client, forms := purgeServer(t)
	forms.Do(
		`UPDATE tb_process_instance SET status = 2; INSERT INTO tb_101 (process_instance_id) SELECT id
			FROM tb_process_instance;
		CREATE FUNCTION refuse() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN IF OLD.id = 7 THEN RAISE ''not this one''; END IF; RETURN OLD; END';
			CREATE TRIGGER refuse BEFORE DELETE ON tb_process_instance FOR EACH ROW EXECUTE FUNCTION refuse()`,
	)
	setPurge(t, client, loans())
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"forms/loans"}})
	wantCode(t, err, codes.Internal)
	result := resultOf(run, "forms/loans")
	if result.GetState() != cleanupv1.TaskState_TASK_STATE_FAILED ||
		!strings.Contains(result.GetError(), "1 process instances could not be erased") ||
		forms.Int("SELECT id FROM tb_process_instance") != 7 ||
		result.GetRowsDeleted() == 0 {
		t.Errorf("%v", result)
	}
}

// A cancelled run stops after its transaction, and reports its deletions.
func TestPurgesAreCancelled(t *testing.T) {
	t.Parallel()
	s, forms, stream, locked := waitingPurge(t)
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	forms.Until("SELECT (count(*) <= 900)::int FROM tb_process_instance")
	if _, err := s.CancelRun(t.Context(), &cleanupv1.CancelRunRequest{RunId: first.GetEvent().GetRunId()}); err != nil {
		t.Fatal(err)
	}
	_ = locked.Rollback(t.Context())
	events, err := drain(t, stream, nil)
	wantCode(t, err, codes.Canceled)
	result := resultOf(events[len(events)-1].GetRunFinished().GetRun(), "forms/loans")
	rows, left := s.db.Int("SELECT sum(rows) FROM cleanupd.erasure_rows"), forms.Int(
		"SELECT count(*) FROM tb_process_instance")
	if result.GetRowsDeleted() != rows || left < 800 || left > 900 ||
		s.db.Int("SELECT count(*) FROM cleanupd.erasure_item WHERE state = 'DONE'") != 1000-left {
		t.Errorf("%d rows are gone, %d process instances left: %v", rows, left, result)
	}
}

// The errors of purges, over gRPC and REST.
func TestPurgeErrors(t *testing.T) {
	t.Parallel()
	s, client, _ := purgeServer(t)
	for _, c := range []struct {
		method, path, body string
		code               int
		says               string
	}{
		{
			http.MethodPut, "/v1/forms/purges/old", `{"application": "Loans", "dateColumn": "ended", "days": 10}`, 200,
			`"enabled":false`,
		},
		{
			http.MethodPut, "/v1/forms/purges/old", `{"application": "Loans", "dateColumn": "status", "days": 0}`, 400,
			`"field":"days"`,
		},
		{
			http.MethodPut, "/v1/forms/purges/old", `{"application": "Loans", "dateColumn": "status", "days": 5}`, 400,
			"ended",
		},
		{
			http.MethodPut, "/v1/forms/purges/OLD", `{"application": "Loans", "dateColumn": "ended", "days": 5}`, 400,
			`"field":"name"`,
		},
		{
			http.MethodPut, "/v1/forms/purges/old",
			`{"application": "Loans", "dateColumn": "ended", "days": 5, "etag": "x"}`, 409, "etag",
		},
		{http.MethodGet, "/v1/forms/purges?pageSize=1", "", 200, `"nextPageToken":""`},
		{http.MethodGet, "/v1/forms/purges?pageSize=-1", "", 400, "pageSize"},
		{http.MethodGet, "/v1/forms/purges?pageToken=x", "", 400, "pageToken"},
		{http.MethodPut, "/v1/forms/purges/old", `{"applicaton": "Loans"}`, 400, "applicaton"},
		{http.MethodPut, "/v1/forms/purges/old?x=1", `{}`, 400, "x"},
		{
			http.MethodPut, "/v1/forms/purges/old",
			`{"name": "other", "application": "Loans", "dateColumn": "ended", "days": 5}`, 400, `"field":"name"`,
		},
		{http.MethodPost, "/v1/forms/purges", `{}`, 405, ""},
		{http.MethodGet, "/v1/forms/purges", "", 200, `"name":"old"`},
		{http.MethodDelete, "/v1/forms/purges/none", "", 404, "none"},
		{http.MethodDelete, "/v1/forms/purges/old", "", 200, "{}"},
		{http.MethodDelete, "/v1/forms/purges/old", "", 404, "old"},
	} {
		got := s.call(t, c.method, c.path, c.body)
		if got.code != c.code || !strings.Contains(strings.ReplaceAll(got.body, ": ", ":"), c.says) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, got.code, got.body)
		}
	}
	_, err := client.SetFormsPurge(t.Context(), &cleanupv1.SetFormsPurgeRequest{})
	if _, bad := wantCode(t, err, codes.InvalidArgument); len(bad.GetFieldViolations()) != 4 {
		t.Errorf("%v", bad)
	}
}
