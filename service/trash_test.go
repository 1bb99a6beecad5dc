package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/rowkey"
)

// What a run with undo deleted is listed, comes back by key, and can be deleted for good, but not against a hold.
func TestTrash(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM generate_series(1, 10) i`)
	run := func(undo time.Duration) *cleanupv1.Run {
		_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}, Undo: durationpb.New(undo)})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	first := run(72 * time.Hour)
	// undone is when the trash of a task of the first run expires, as GetRun says.
	undone := func() *timestamppb.Timestamp {
		got, err := s.GetRun(t.Context(), &cleanupv1.GetRunRequest{RunId: first.GetId()})
		if err != nil {
			t.Fatal(err)
		}
		return resultOf(got.GetRun(), "sessions").GetUndoExpireTime()
	}
	list, err := s.ListTrash(t.Context(), &cleanupv1.ListTrashRequest{RunId: first.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.GetEntries()) != 1 || list.GetBytes() == 0 || list.GetMaxBytes() == 0 {
		t.Fatalf("the trash is %v, want one entry", list)
	}
	e := list.GetEntries()[0]
	if e.GetTask() != "sessions" || e.GetTable() != `"public"."xtksessioninfo"` || e.GetRows() != 10 ||
		e.GetKind() != cleanupv1.TrashKind_TRASH_KIND_ROWS || e.GetRunId() != first.GetId() ||
		e.GetExpireTime().AsTime().Before(first.GetEndTime().AsTime().Add(71*time.Hour)) {
		t.Errorf("the entry is %v", e)
	}
	ended := resultOf(first, "sessions").GetUndoExpireTime()
	if want := e.GetExpireTime(); !ended.AsTime().Equal(want.AsTime()) || !undone().AsTime().Equal(want.AsTime()) {
		t.Errorf("the result says that it can be undone until %v, and later until %v; want %v", ended, undone(), want)
	}
	restore := func(req *cleanupv1.RestoreTrashRequest) *cleanupv1.Run {
		t.Helper()
		stream, err := s.RestoreTrash(t.Context(), req)
		events, err := drain(t, stream, err)
		if err != nil {
			t.Fatal(err)
		}
		return events[len(events)-1].GetRunFinished().GetRun()
	}
	back := restore(&cleanupv1.RestoreTrashRequest{
		RunId: first.GetId(), Tables: []string{"xtksessioninfo"}, Keys: []string{"3", "4"},
	})
	if r := back.GetResults()[0]; r.GetRowsRestored() != 2 || back.GetRestoredRunId() != first.GetId() {
		t.Errorf("the restore is %v, want two rows", back)
	}
	if got := s.db.Int("SELECT sum(sKey::int) FROM XtkSessionInfo"); got != 7 {
		t.Errorf("the keys that came back add up to %d, want 7", got)
	}
	hold, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{Hold: &cleanupv1.Hold{
		Reason: "a test", What: &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: "XtkSessionInfo"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	purge := &cleanupv1.PurgeTrashRequest{Table: "xtksessioninfo", Where: map[string]string{"skey": "5"}}
	_, err = s.PurgeTrash(t.Context(), purge)
	wantCode(t, err, codes.FailedPrecondition)
	_, err = s.PurgeTrash(t.Context(),
		&cleanupv1.PurgeTrashRequest{Table: "xtksessioninfo", Where: map[string]string{"sid": "5"}})
	wantCode(t, err, codes.InvalidArgument)
	if _, err := s.ReleaseHold(t.Context(), &cleanupv1.ReleaseHoldRequest{HoldId: hold.GetHold().GetId()}); err != nil {
		t.Fatal(err)
	}
	if out, err := s.PurgeTrash(t.Context(), purge); err != nil || out.GetRows() != 1 || out.GetEntries() != 0 {
		t.Errorf("purging one row: %v, %v", out, err)
	}
	s.db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('6', now() + '1 day');
		ALTER TABLE XtkSessionInfo ADD CONSTRAINT high CHECK (sKey NOT IN ('1', '2'))`)
	const exists = `"public"."xtksessioninfo": 1 row was not restored because the key exists again`
	back = restore(&cleanupv1.RestoreTrashRequest{RunId: first.GetId()})
	if r := back.GetResults()[0]; r.GetRowsRestored() != 4 || r.GetRowsExisting() != 1 || r.GetRowsFailed() != 2 ||
		!strings.HasPrefix(r.GetDetail(), exists+`; "public"."xtksessioninfo": 2 rows were not restored: `) {
		t.Errorf("the second restore is %v, want 4 rows, one that exists, and 2 that fail", back)
	}
	s.db.Do("ALTER TABLE XtkSessionInfo DROP CONSTRAINT high")
	back = restore(&cleanupv1.RestoreTrashRequest{RunId: first.GetId()})
	if r := back.GetResults()[0]; r.GetRowsRestored() != 2 || r.GetDetail() != exists {
		t.Errorf("the third restore is %v, want 2 rows, and one that exists", back)
	}
	run(0) // keeps nothing
	if until := resultOf(run(time.Hour), "sessions").GetUndoExpireTime(); until != nil {
		t.Errorf("a run that had nothing to keep can be undone until %v", until)
	}
	if out, err := s.PurgeTrash(t.Context(), &cleanupv1.PurgeTrashRequest{RunId: first.GetId()}); err != nil ||
		out.GetRows() != 1 || out.GetEntries() != 1 {
		t.Errorf("purging the rest: %v, %v", out, err)
	}
	if until := undone(); until != nil {
		t.Errorf("what is gone for good can be undone until %v", until)
	}
	if list, err = s.ListTrash(t.Context(), &cleanupv1.ListTrashRequest{}); err != nil || len(list.GetEntries()) > 0 {
		t.Errorf("the trash has %v, %v; want nothing", list, err)
	}
}

// The progress of a restore counts the rows that came back, and says how many there will be.
func TestRestoreProgress(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(`ALTER TABLE XtkSessionInfo ADD filler text; -- four rows a block
		ALTER TABLE XtkSessionInfo ALTER filler SET STORAGE PLAIN;
		INSERT INTO XtkSessionInfo (sKey, tsExpiration, filler) SELECT i::text, '2020-01-01', repeat('x', 1900)
			FROM generate_series(1, 400) i`)
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}, Undo: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	s.db.Do(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END';
		CREATE TRIGGER wait BEFORE INSERT ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION wait()`)
	stream, err := s.RestoreTrash(t.Context(), &cleanupv1.RestoreTrashRequest{RunId: run.GetId()})
	events, err := drain(t, stream, err)
	if err != nil {
		t.Fatal(err)
	}
	var restored []int64
	for _, e := range events {
		if p := e.GetTaskProgress(); p.GetRowsRestored() > 0 {
			restored = append(restored, p.GetRowsRestored())
			if p.GetRowsExpected() != 400 || p.GetRowsPerSecond() == 0 {
				t.Errorf("the progress is %v, want 400 expected rows and how many a second", p)
			}
		}
	}
	if len(restored) == 0 || restored[0] == 400 {
		t.Errorf("the progress is %v, want parts of 400 rows", restored)
	}
}

// If foreign keys would delete rows that the trash cannot keep, the task is refused before it deletes anything.
func TestNotUndoable(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]string{
		"a table that refers to itself": `CREATE TABLE x (session varchar REFERENCES XtkSessionInfo (sKey) ON DELETE CASCADE,
			id int PRIMARY KEY, above int REFERENCES x ON DELETE CASCADE)`,
		"a key that clears": "CREATE TABLE x (session varchar REFERENCES XtkSessionInfo (sKey) ON DELETE SET NULL)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := campaign(t)
			s.db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('1', '2020-01-01');
				ALTER TABLE XtkSessionInfo ADD UNIQUE (sKey)`)
			s.db.Do(setup)
			_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{
				Tasks: []string{"sessions"}, Undo: durationpb.New(time.Hour),
			})
			wantCode(t, err, codes.FailedPrecondition)
			if reason := run.GetReason(); reason != cleanupv1.RefusalReason_REFUSAL_REASON_NOT_UNDOABLE {
				t.Errorf("the reason is %s: %v", reason, err)
			}
			if s.db.Int("SELECT count(*) FROM XtkSessionInfo") != 1 {
				t.Error("the row is gone")
			}
		})
	}
}

// A partitioned work table would leave its partitions behind. Its task is refused before it deletes anything.
func TestPartitionedWorkTableIsNotUndoable(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(`INSERT INTO NmsDelivery (iDeliveryId) VALUES (0); INSERT INTO NmsGroup (iGroupId, iType) VALUES (1, 1);
		INSERT INTO XtkWorkflow (iWorkflowId, iState, iHistory) VALUES (2, 20, 1);
		INSERT INTO XtkWorkflowLog (iWorkflowLogId, iWorkflowId, tsLog) VALUES (1, 2, '2000-01-01'), (2, 2, now());
		CREATE TABLE wkf2_1 (i int) PARTITION BY RANGE (i); CREATE TABLE wkf2_1_part PARTITION OF wkf2_1 DEFAULT`)
	run := func(undo time.Duration) (*cleanupv1.Run, error) {
		req := &cleanupv1.RunCleanupRequest{Tasks: []string{"workflow-instances"}, Undo: durationpb.New(undo)}
		_, run, err := s.run(t, req)
		return run, err
	}
	const left = "SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'wkf2%' AND relnamespace = " +
		"'public'::regnamespace) + (SELECT count(*) FROM XtkWorkflowLog WHERE tsLog < '2001-01-01')"
	const refused = cleanupv1.RefusalReason_REFUSAL_REASON_NOT_UNDOABLE
	if run, err := run(time.Hour); run.GetReason() != refused || s.db.Int(left) != 3 {
		t.Errorf("the run ended with %v, %s; %d tables and rows are left, want 3", err, run.GetReason(), s.db.Int(left))
	}
	if _, err := run(0); err != nil || s.db.Int(left) != 0 {
		t.Errorf("without undo, the run ended with %v; %d tables and rows are left, want none", err, s.db.Int(left))
	}
}

func TestTrashErrors(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}})
	if err != nil {
		t.Fatal(err)
	}
	dropped, rows := uuid.NewString(), uuid.NewString() // runs that the history has forgotten
	for name, c := range map[string]struct {
		call func() error
		want codes.Code
	}{
		"a restore of no run": {
			func() error { return restoreError(t, s, &cleanupv1.RestoreTrashRequest{}) }, codes.InvalidArgument,
		},
		"a restore of nothing": {
			func() error { return restoreError(t, s, &cleanupv1.RestoreTrashRequest{RunId: run.GetId()}) }, codes.NotFound,
		},
		"keys of dropped tables": {func() error {
			s.db.Do(`INSERT INTO cleanupd.trash (run_id, task, kind, root, columns, relation, keep, expire_time)
				VALUES ($1, 'work-tables', 'TABLE', '"public"."wkf1"', '[]', '{}', '1h', now())`, dropped)
			return restoreError(t, s, &cleanupv1.RestoreTrashRequest{RunId: dropped, Keys: []string{"1"}})
		}, codes.InvalidArgument},
		"keys in another schema": {func() error {
			s.db.Do(`INSERT INTO cleanupd.trash (run_id, task, kind, root, columns, keep, expire_time)
				VALUES ($1, 'sessions', 'ROWS', '"public"."t"', '[]', '1h', now())`, rows)
			return restoreError(t, s,
				&cleanupv1.RestoreTrashRequest{RunId: rows, Keys: []string{"1"}, IntoSchema: "restored"})
		}, codes.InvalidArgument},
		"a purge of everything": {
			func() error { _, err := s.PurgeTrash(t.Context(), &cleanupv1.PurgeTrashRequest{}); return err },
			codes.InvalidArgument,
		},
		"rows of no table": {func() error {
			where := map[string]string{"a": "1"}
			_, err := s.PurgeTrash(t.Context(), &cleanupv1.PurgeTrashRequest{RunId: run.GetId(), Where: where})
			return err
		}, codes.InvalidArgument},
		"a page": {func() error {
			_, err := s.ListTrash(t.Context(), &cleanupv1.ListTrashRequest{PageToken: "x"})
			return err
		}, codes.InvalidArgument},
		"too long": {func() error {
			_, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Undo: durationpb.New(91 * 24 * time.Hour)})
			return err
		}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, c.call(), c.want) })
	}
}

func restoreError(t *testing.T, s *server, req *cleanupv1.RestoreTrashRequest) error {
	t.Helper()
	stream, err := s.RestoreTrash(t.Context(), req)
	_, err = drain(t, stream, err)
	return err
}

// A row that its table rejects does not keep the rest from coming back, and rows that came back are not tried again.
// Metrics count the rows that came back and those that are left. A restore does not count as a successful cleanup, and
// releases no guard.
func TestRestoreWithARefusedRow(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('1', '2020-01-01'), ('2', '2020-01-01');
		ALTER TABLE XtkSessionInfo ADD UNIQUE (sKey);
		CREATE TABLE visit (session varchar REFERENCES XtkSessionInfo (sKey) ON DELETE CASCADE, page int);
		INSERT INTO visit VALUES ('1', 1), ('2', 2)`)
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}, Undo: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	s.db.Do(`ALTER TABLE visit ADD CHECK (page < 2);
		INSERT INTO cleanupd.guard_refusal (task, task_kind, guard, table_name,
		number, number_limit, options, run_id) VALUES ('sessions', 'BUILT_IN', 'share', 't', 2, 1, '{}', gen_random_uuid())`)
	stream, err := s.RestoreTrash(t.Context(), &cleanupv1.RestoreTrashRequest{RunId: run.GetId()})
	events, err := drain(t, stream, err)
	if err != nil {
		t.Fatal(err)
	}
	r := events[len(events)-1].GetRunFinished().GetRun().GetResults()[0]
	if r.GetRowsRestored() != 3 || r.GetRowsFailed() != 1 || !strings.Contains(r.GetDetail(), "visit_page_check") {
		t.Errorf("the restore is %v, want 3 rows, and one that the table refuses", r)
	}
	if s.db.Int("SELECT count(*) FROM cleanupd.guard_refusal") != 1 {
		t.Error("the restore has released the guard of its task")
	}
	_, got := s.scrape(t)
	got.check(t, "cleanupd_rows_restored_total", map[string]float64{"sessions": 3})
	got.check(t, "cleanupd_rows_not_restored_total", map[string]float64{"failed sessions": 1})
	got.check(t, "cleanupd_rows_retained", nil)
	got.check(t, "cleanupd_trash_rows", map[string]float64{"": 1})
	if success := got.series("cleanupd_last_success_timestamp_seconds"); success["all"] != 0 || success["some"] == 0 {
		t.Errorf("the last success is %v, want that of a run of some tasks", success)
	}
	in := got.sum("cleanupd_trash_next_expiry_timestamp_seconds") - float64(time.Now().Unix())
	if got.sum("cleanupd_trash_bytes") == 0 || got.sum("cleanupd_trash_max_bytes") < 64<<20 || in < 3000 || in > 3600 {
		t.Errorf("the trash has %v bytes of %v, and expires in %v seconds", got.sum("cleanupd_trash_bytes"),
			got.sum("cleanupd_trash_max_bytes"), in)
	}
}

// A request that names a table applies to its partitions in the trash, too.
func TestTrashOfAPartitionedTable(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE TABLE shop.visit (at timestamptz NOT NULL) PARTITION BY RANGE (at);
		CREATE TABLE shop."visit 2019" PARTITION OF shop.visit FOR VALUES FROM ('2019-01-01') TO ('2020-01-01');
		CREATE TABLE shop.visit_later PARTITION OF shop.visit DEFAULT;
		INSERT INTO shop.visit VALUES ('2019-05-01'), ('2019-06-01'), ('2020-05-01'), (now())`)
	setPolicy(t, s, &cleanupv1.Policy{Name: "visits", Table: "shop.visit", Enabled: true, OlderThan: olderThan("at", 365)})
	_, plan, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Plan: plan.GetId(), Undo: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.ListTrash(t.Context(), &cleanupv1.ListTrashRequest{RunId: run.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.GetEntries() {
		got = append(got, fmt.Sprint(e.GetKind(), e.GetTable(), e.GetParentTable(), e.GetRows()))
	}
	slices.Sort(got)
	want := []string{
		`TRASH_KIND_PARTITION"shop"."visit 2019""shop"."visit"2`, `TRASH_KIND_ROWS"shop"."visit"1`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the trash has %q, want %q", got, want)
	}
	out, err := s.PurgeTrash(t.Context(), &cleanupv1.PurgeTrashRequest{RunId: run.GetId(), Table: `"shop"."visit"`})
	if err != nil || out.GetRows() != 3 || out.GetEntries() != 2 {
		t.Errorf("purging the table: %v, %v; want 3 rows of 2 entries", out, err)
	}
}

// The explanation of a row that is in the trash has what a restore needs to bring back this row alone, also of a row
// that a foreign key deleted from a table that no task covers.
func TestExplainRowInTheTrash(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(`INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2020-01-01' FROM generate_series(1, 3) i;
		CREATE TABLE remark (id int UNIQUE, audit int REFERENCES XtkAudit (iAuditId) ON DELETE CASCADE, word text,
			PRIMARY KEY (audit, word));
		INSERT INTO remark VALUES (7, 2, 'a'), (8, 2, 'b');
		CREATE TABLE parcel (id bigint PRIMARY KEY, audit int REFERENCES XtkAudit (iAuditId) ON DELETE CASCADE);
		INSERT INTO parcel VALUES (4, 2)`)
	ask := func(table, key string) *cleanupv1.ExplainRowResponse {
		t.Helper()
		out, err := s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: table, Key: rowkey.Parse(key)})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if x := ask("xtkaudit", "2"); !x.GetExists() || x.GetTrash() != nil {
		t.Errorf("before the run the row is explained by %v, want that it exists", x)
	}
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"audit-trail"}, Undo: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ table, key, root, value, back string }{
		{"xtkaudit", "2", `"public"."xtkaudit"`, "2", "SELECT count(*) FROM XtkAudit WHERE iAuditId = 2"},
		{"remark", "id=7", `"public"."remark"`, "7", "SELECT count(*) FROM remark WHERE id = 7"},
		{"parcel", "4", `"public"."parcel"`, "4", "SELECT count(*) FROM parcel WHERE id = 4"},
	} {
		x := ask(c.table, c.key)
		if x.GetExists() || len(x.GetTrash()) != 1 {
			t.Fatalf("%s %s is explained by %v, want one place in the trash", c.table, c.key, x)
		}
		r := x.GetTrash()[0]
		if r.GetRunId() != run.GetId() || r.GetTask() != "audit-trail" || r.GetTable() != c.root || r.GetKey() != c.value ||
			r.GetExpireTime().AsTime().Before(run.GetEndTime().AsTime().Add(59*time.Minute)) {
			t.Errorf("%s %s is in the trash as %v", c.table, c.key, r)
		}
		if err := restoreError(t, s, &cleanupv1.RestoreTrashRequest{
			RunId: r.GetRunId(), Tables: []string{r.GetTable()}, Keys: []string{r.GetKey()},
		}); err != nil {
			t.Fatal(err)
		}
		if got := s.db.Int(c.back); got != 1 {
			t.Errorf("%s %s: %d rows came back, want this one", c.table, c.key, got)
		}
	}
	restores, err := s.ListRuns(t.Context(), &cleanupv1.ListRunsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first := restores.GetRuns()[2].GetResults()[0] // the row, and not those that had gone with it
	want := []string{
		`"public"."parcel": 1 row is still in the trash and refers to rows of "public"."xtkaudit" that were to be restored`,
		`"public"."remark": 2 rows are still in the trash and refer to rows of "public"."xtkaudit" that were to be restored`,
	}
	for i, m := range first.GetDetails() {
		if i >= len(want) || m.GetText() != want[i] {
			t.Errorf("the restore of a row says %q", m.GetText())
		}
	}
	if len(first.GetDetails()) != len(want) {
		t.Errorf("the restore of a row says %v, want %q", first.GetDetails(), want)
	}
	if x := ask("xtkaudit", "9"); x.GetExists() || x.GetTrash() != nil {
		t.Errorf("a row that never was is explained by %v", x)
	}
	if x := ask("remark", "id=7"); !x.GetExists() || len(x.GetSteps()) == 0 {
		t.Errorf("a row that goes with others is explained by %v", x)
	}
	_, err = s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: "remark", Key: rowkey.Parse("id=9")})
	wantCode(t, err, codes.FailedPrecondition)
	s.db.Do("ALTER TABLE remark DROP CONSTRAINT remark_audit_fkey") // nothing deletes its rows any more
	_, err = s.ExplainRow(t.Context(), &cleanupv1.ExplainRowRequest{Table: "public.remark", Key: rowkey.Parse("id=8")})
	if err == nil || !strings.Contains(err.Error(), "the trash has rows of it: see cleanupd trash list") {
		t.Errorf("a row of a table that nothing covers any more: %v, want that the trash has rows of it", err)
	}
}
