package service_test

import (
	"context"
	_ "embed"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// shopSQL is also what the tests of the console use.
//
//go:embed testdata/shop.sql
var shopSQL string

// someLogins are of no customer.
const someLogins = `INSERT INTO shop.login SELECT gen_random_uuid(), now() - i * interval '1 hour', '10.0.0.1'
	FROM generate_series(1, 7) i`

func shop(t *testing.T) *server { return serve(t, prepared(t, "shop", shopSQL+someLogins), false) }

// oldOrders deletes closed orders after two years.
func oldOrders() *cleanupv1.Policy {
	return &cleanupv1.Policy{
		Name:      "old-orders",
		Table:     "shop.order_line",
		Enabled:   true,
		OlderThan: olderThan("placed", 730),
		Filters: []*cleanupv1.Filter{
			{Column: "status", Op: cleanupv1.FilterOp_FILTER_OP_EQUAL, Values: []string{"closed"}},
		},
	}
}

func setPolicy(t *testing.T, s *server, p *cleanupv1.Policy) *cleanupv1.Policy {
	t.Helper()
	out, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	return out.GetPolicy()
}

func codesOf(list []*cleanupv1.Message) string {
	var codes []string
	for _, m := range list {
		codes = append(codes, m.GetCode())
	}
	return strings.Join(codes, " ")
}

// The run follows the dry run.
func approve(t *testing.T, s *server, tasks ...string) (dry, run *cleanupv1.Run) {
	t.Helper()
	_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: tasks, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	_, run, err = s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	return dry, run
}

// A policy that is disabled, deleted or given another rule during a run stops: after the call has returned, no batch of
// it is committed. The run continues with its other tasks, and skips policies that were changed before they began. A
// new description changes nothing.
func TestPolicyChangedInMidRun(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	set := func(change func(p *cleanupv1.Policy)) func(s *server, name string) error {
		return func(s *server, name string) error {
			out, err := s.GetPolicy(context.Background(), &cleanupv1.GetPolicyRequest{Name: name})
			if err != nil {
				return err
			}
			change(out.GetPolicy())
			_, err = s.SetPolicy(context.Background(), &cleanupv1.SetPolicyRequest{Policy: out.GetPolicy()})
			return err
		}
	}
	const cancelled = cleanupv1.TaskState_TASK_STATE_CANCELLED
	for name, test := range map[string]struct {
		change func(s *server, name string) error
		code   string
	}{
		"disabled": {set(func(p *cleanupv1.Policy) { p.Enabled = false }), "TASK_DISABLED"},
		"changed":  {set(func(p *cleanupv1.Policy) { p.OlderThan = olderThan(p.OlderThan.Column, 731) }), "POLICY_CHANGED"},
		"deleted": {func(s *server, name string) error {
			_, err := s.DeletePolicy(context.Background(), &cleanupv1.DeletePolicyRequest{Name: name})
			return err
		}, "TASK_REMOVED"},
		"described": {set(func(p *cleanupv1.Policy) { p.Description, p.Limit = "Old orders", 50 }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shop(t)
			s.db.Do(`CREATE TABLE shop.note (at timestamptz); INSERT INTO shop.note VALUES ('2000-01-01');
				CREATE TABLE shop.word (at timestamptz); INSERT INTO shop.word VALUES ('2000-01-01');
				CREATE TABLE finish (); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
				'BEGIN WHILE NOT EXISTS (SELECT FROM finish) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN OLD; END';
				CREATE TRIGGER wait BEFORE DELETE ON shop.order_line FOR EACH ROW WHEN (OLD.id > 600) EXECUTE FUNCTION wait()`)
			if _, err := s.SetGuards(t.Context(), &cleanupv1.SetGuardsRequest{
				Guards: &cleanupv1.Guards{}, Reason: "a test",
			}); err != nil {
				t.Fatal(err)
			}
			first := oldOrders()
			first.Name, first.Limit, first.OlderThan, first.Filters = "a", 20, olderThan("placed", 100), nil
			second := &cleanupv1.Policy{Name: "b", Table: "shop.note", Enabled: true, OlderThan: olderThan("at", 100)}
			third := &cleanupv1.Policy{Name: "c", Table: "shop.word", Enabled: true, OlderThan: second.GetOlderThan()}
			for _, p := range []*cleanupv1.Policy{first, second, third} {
				setPolicy(t, s, p)
			}
			all := []string{"policy/a", "policy/b", "policy/c"}
			_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: all, DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			detached, err := s.RunCleanup(t.Context(), &cleanupv1.RunCleanupRequest{Plan: dry.GetId(), Detach: true})
			if err != nil {
				t.Fatal(err)
			}
			started, err := detached.Recv()
			if err != nil {
				t.Fatal(err)
			}
			s.db.Until(
				"SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()")
			before := s.db.Strings("SELECT rule::text FROM cleanupd.policy WHERE name = 'a'")[0]
			changed := make(chan error, 1)
			go func() { changed <- errors.Join(test.change(s, "b"), test.change(s, "a")) }()
			s.db.Until("SELECT 1 - count(*) FROM cleanupd.policy WHERE name = 'a' AND rule::text = $1", before)
			select {
			case err := <-changed:
				t.Fatalf("the change was acknowledged while a batch by the old rule was open: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			s.db.Do("INSERT INTO finish DEFAULT VALUES")
			if err := <-changed; err != nil {
				t.Fatal(err)
			}
			left := s.db.Int("SELECT count(*) FROM shop.order_line")
			watched, err := s.WatchRun(t.Context(), &cleanupv1.WatchRunRequest{RunId: started.GetEvent().GetRunId()})
			if err != nil {
				t.Fatal(err)
			}
			events, err := drain(t, watched, nil)
			if err != nil {
				t.Fatal(err)
			}
			run := events[len(events)-1].GetRunFinished().GetRun()
			if run.GetState() != cleanupv1.RunState_RUN_STATE_SUCCEEDED {
				t.Errorf("%v", run)
			}
			byTask := map[string]*cleanupv1.TaskResult{}
			for _, r := range run.GetResults() {
				byTask[r.GetTask()] = r
			}
			a, b, c := byTask["policy/a"], byTask["policy/b"], byTask["policy/c"]
			if c.GetRowsDeleted() != 1 {
				t.Errorf("%v", c)
			}
			if test.code == "" {
				if a.GetState() != cleanupv1.TaskState_TASK_STATE_SUCCEEDED || a.GetRowsDeleted() < 800 ||
					b.GetRowsDeleted() != 1 {
					t.Errorf("%v, %v", a, b)
				}
				return
			}
			if a.GetState() != cancelled || codesOf(a.GetDetails()) != test.code || a.GetRowsDeleted() != 1000-left ||
				a.GetRowsDeleted() == 0 || a.GetRowsDeleted() > 800 {
				t.Errorf("%v, %d of 1000 were left when the change was acknowledged", a, left)
			}
			if b.GetState() != cleanupv1.TaskState_TASK_STATE_SKIPPED || codesOf(b.GetDetails()) != test.code {
				t.Errorf("%v", b)
			}
			if now := s.db.Int("SELECT count(*) FROM shop.order_line"); now != left {
				t.Errorf("%d rows are left, %d when the change was acknowledged", now, left)
			}
		})
	}
}

func listedRefusals(t *testing.T, s *server) []*cleanupv1.GuardRefusal {
	t.Helper()
	guards, err := s.GetGuards(t.Context(), &cleanupv1.GetGuardsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return guards.GetRefusals()
}

// A policy is a task of runs like the others: the first run follows a saved plan, and others need none.
func TestPoliciesInRuns(t *testing.T) {
	t.Parallel()
	s := shop(t)
	set := setPolicy(t, s, oldOrders())
	if codesOf(set.GetWarnings()) != "POLICY_UNPROVEN" || set.GetEtag() == "" {
		t.Errorf("%v", set)
	}
	tasks, err := s.ListTasks(t.Context(), &cleanupv1.ListTasksRequest{})
	if err != nil || len(tasks.GetTasks()) != 1 || tasks.GetTasks()[0].GetName() != "policy/old-orders" {
		t.Fatalf("%v %v", tasks, err)
	}
	// A run that deletes nothing proves nothing.
	s.db.Do("CREATE TABLE shop.later AS TABLE shop.order_line; TRUNCATE shop.order_line")
	_, empty, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	events, _, err := s.run(t, &cleanupv1.RunCleanupRequest{Plan: empty.GetId()})
	said := func(e *cleanupv1.RunEvent) bool { return e.GetLog().GetCode() == "POLICY_NOTHING_PROVEN" }
	if err != nil || !slices.ContainsFunc(events, said) {
		t.Errorf("%v %v", err, events)
	}
	s.db.Do("INSERT INTO shop.order_line SELECT * FROM shop.later")
	const due = "SELECT count(*) FROM shop.order_line WHERE status = 'closed' AND placed < now() - interval '730 days'"
	rows := s.db.Int(due)
	_, refused, err := s.run(t, &cleanupv1.RunCleanupRequest{})
	wantCode(t, err, codes.FailedPrecondition)
	if r := resultOf(refused, "policy/old-orders"); r.GetMetadata()["guard"] != "policy" || s.db.Int(due) != rows {
		t.Errorf("%v", r)
	}
	if got := listedRefusals(t, s); len(got) != 1 ||
		got[0].GetGuard().GetGuard() != cleanupv1.GuardKind_GUARD_KIND_POLICY ||
		got[0].GetGuard().GetNumber() != 1 || got[0].GetTask() != "policy/old-orders" {
		t.Errorf("the guards list %v", got)
	}
	dry, run := approve(t, s)
	if got := listedRefusals(t, s); got != nil {
		t.Errorf("after the plan the guards list %v", got)
	}
	if p := resultOf(dry, "policy/old-orders").GetPreview(); len(p) != 1 || p[0].GetRows() != rows || rows == 0 {
		t.Errorf("%d %v", rows, p)
	}
	if r := resultOf(run, "policy/old-orders"); r.GetRowsDeleted() != rows || s.db.Int(due) != 0 {
		t.Errorf("%d %v", rows, r)
	}
	s.db.Do("UPDATE shop.order_line SET status = 'closed'")
	rows = s.db.Int(due)
	if _, run, err = s.run(t, &cleanupv1.RunCleanupRequest{}); err != nil ||
		resultOf(run, "policy/old-orders").GetRowsDeleted() != rows || rows == 0 {
		t.Errorf("a proven policy: %v %v", run, err)
	}
	p := oldOrders()
	p.OlderThan = olderThan("placed", 600)
	if set = setPolicy(t, s, p); codesOf(set.GetWarnings()) != "POLICY_UNPROVEN" {
		t.Errorf("another rule: %v", set)
	}
	_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{})
	wantCode(t, err, codes.FailedPrecondition)
	if got := listedRefusals(t, s); len(got) != 1 {
		t.Errorf("after another rule was refused the guards list %v", got)
	}
	p.Enabled = false
	setPolicy(t, s, p)
	if got := listedRefusals(t, s); got != nil {
		t.Errorf("of a disabled policy the guards list %v", got)
	}
	if _, _, err = s.run(t, &cleanupv1.RunCleanupRequest{SkipTasks: []string{"policies"}}); err == nil {
		t.Error("a run without tasks")
	}
}

// One field of a message in a policy can be changed without the others.
func TestPolicyMaskOfAMessage(t *testing.T) {
	t.Parallel()
	s := shop(t)
	setPolicy(t, s, oldOrders())
	mask := &fieldmaskpb.FieldMask{Paths: []string{"older_than.days", "keep_newest.count", "keep_newest.order_by"}}
	given := &cleanupv1.Policy{
		Name:       "old-orders",
		OlderThan:  &cleanupv1.OlderThan{Age: &cleanupv1.OlderThan_Days{Days: 600}},
		KeepNewest: &cleanupv1.KeepNewest{OrderBy: "placed", Count: 3},
	}
	out, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: given, UpdateMask: mask})
	p := out.GetPolicy()
	if age := p.GetOlderThan(); err != nil || age.GetDays() != 600 || age.GetColumn() != "placed" {
		t.Errorf("%v %v", p, err)
	}
	if p.GetKeepNewest().GetCount() != 3 || len(p.GetFilters()) != 1 {
		t.Errorf("%v %v", p, err)
	}
	for _, path := range []string{"older_than.nothing", "filters.column", "table.name"} {
		mask.Paths = []string{path}
		_, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: given, UpdateMask: mask})
		wantCode(t, err, codes.InvalidArgument)
	}
}

// An age stays in the unit in which it was given, also if it is 0, and a mask replaces one by the other.
func TestAgesOfPolicies(t *testing.T) {
	t.Parallel()
	s := shop(t)
	const path = "/v1/policies/p"
	for _, step := range []struct{ method, body, want string }{
		{http.MethodPut, `{"table": "shop.order_line", "olderThan": {"column": "placed", "hours": 0}}`, `"hours":0`},
		{http.MethodPatch, `{"olderThan": {"days": 0}}`, `"days":0`},
		{http.MethodPatch, `{"olderThan": {"hours": 48}}`, `"hours":48`},
		{http.MethodGet, "", `"hours":48`},
	} {
		got := s.call(t, step.method, path, step.body)
		units := strings.Count(got.body, "days") + strings.Count(got.body, "hours")
		if got.code != 200 || !strings.Contains(got.body, step.want) || units != 1 {
			t.Errorf("%s %s: %d %s", step.method, step.body, got.code, got.body)
		}
		if warned := strings.Contains(got.body, "POLICY_OF_EVERY_ROW"); warned != strings.HasSuffix(step.want, ":0") {
			t.Errorf("%s %s: warned: %t", step.method, step.body, warned)
		}
	}
	s.db.Do(`ALTER TABLE shop.login RENAME "At" TO expires_at`)
	expired := s.call(t, http.MethodPut, "/v1/policies/expired",
		`{"table": "shop.login", "olderThan": {"column": "expires_at", "hours": 0}}`)
	if expired.code != 200 || strings.Contains(expired.body, "POLICY_OF_EVERY_ROW") {
		t.Errorf("%d %s", expired.code, expired.body)
	}
	got := s.call(t, http.MethodPatch, path, `{"olderThan": {"days": 1, "hours": 1}}`)
	if got.code != 400 {
		t.Errorf("both: %d %s", got.code, got.body)
	}
}

// There may be 2,000 policies; then another one is refused, and a stored one can still be changed.
func TestManyPolicies(t *testing.T) {
	t.Parallel()
	s := shop(t)
	setPolicy(t, s, oldOrders())
	s.db.Do(`INSERT INTO cleanupd.policy (name, rule) SELECT 'p' || i, rule || jsonb_build_object('name', 'p' || i)
		FROM cleanupd.policy, generate_series(1, 1999) i`)
	setPolicy(t, s, oldOrders())
	one := oldOrders()
	one.Name = "one-more"
	_, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: one})
	wantCode(t, err, codes.FailedPrecondition)
}

// The newest rows of each group, orphans, and rows that are changed.
func TestPolicyKinds(t *testing.T) {
	t.Parallel()
	s := shop(t)
	value, one := "[removed]", "1"
	for _, p := range []*cleanupv1.Policy{
		{Name: "logins", Table: "shop.login", Enabled: true, KeepNewest: &cleanupv1.KeepNewest{
			Per: []string{"customer"}, OrderBy: "At", Count: 20,
		}},
		{Name: "orphans", Table: "shop.login", Enabled: true, OrphanOf: &cleanupv1.OrphanOf{
			Column: "customer", ParentTable: "shop.customer", ParentColumn: "id",
		}},
		{
			Name: "anonymous", Table: "shop.order_line", Enabled: true, OlderThan: olderThan("placed", 500),
			Assign: []*cleanupv1.Assign{
				{Column: "note", Value: &value}, {Column: "customer"}, {Column: "total", Value: &one},
			},
		},
	} {
		setPolicy(t, s, p)
	}
	old := s.db.Int("SELECT count(*) FROM shop.order_line WHERE placed < now() - interval '500 days'")
	if d := s.warnings(t, "logins"); !strings.Contains(d, "POLICY_UNINDEXED") {
		t.Errorf("keep_newest without an index: %s", d)
	}
	s.db.Do(`CREATE INDEX ON shop.login (customer, "At")`)
	if d := s.warnings(t, "logins"); strings.Contains(d, "POLICY_UNINDEXED") {
		t.Errorf("keep_newest with an index: %s", d)
	}
	dry, run := approve(t, s)
	for task, rows := range map[string]int64{"policy/logins": 300, "policy/orphans": 7, "policy/anonymous": old} {
		found, did := resultOf(dry, task), resultOf(run, task)
		if found.GetRowsDeleted()+found.GetRowsUpdated() != rows || did.GetRowsDeleted()+did.GetRowsUpdated() != rows {
			t.Errorf("%s: %d %v %v", task, rows, found, did)
		}
	}
	if n := s.db.Int("SELECT count(*) FROM shop.login"); n != 200 {
		t.Errorf("%d logins are left", n)
	}
	if n := s.db.Int("SELECT count(*) FROM shop.order_line WHERE note = '[removed]' AND customer IS NULL"); n != old {
		t.Errorf("%d orders of %d are anonymous", n, old)
	}
	if _, run, err := s.run(t, &cleanupv1.RunCleanupRequest{}); err != nil ||
		resultOf(run, "policy/anonymous").GetRowsUpdated() != 0 {
		t.Errorf("a second run: %v %v", run, err)
	}
	// If most rows of a table seem to be orphans, perhaps because their parents are elsewhere, a guard refuses.
	s.db.Do("DELETE FROM shop.customer WHERE name <> 'customer 1'")
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"policy/orphans"}})
	wantCode(t, err, codes.FailedPrecondition)
	if r := resultOf(run, "policy/orphans"); r.GetMetadata()["guard"] != "share" ||
		s.db.Int("SELECT count(*) FROM shop.login") != 200 {
		t.Errorf("most rows are orphans: %v", r)
	}
}

func (s *server) warnings(t *testing.T, name string) string {
	t.Helper()
	out, err := s.GetPolicy(t.Context(), &cleanupv1.GetPolicyRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return codesOf(out.GetPolicy().GetWarnings())
}

// Each wrong field is named, and nothing is stored.
func TestWrongPolicies(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE VIEW shop.view AS SELECT * FROM shop.login;
		ALTER TABLE shop.login ADD twice int GENERATED ALWAYS AS (1) STORED, ADD payload json;
		CREATE DOMAIN shop.day AS date; ALTER TABLE shop.order_line ADD placed2 timestamptz, ADD day shop.day`)
	text := func(v string) *string { return &v }
	for fields, change := range map[string]func(p *cleanupv1.Policy){
		"policy.name":            func(p *cleanupv1.Policy) { p.Name = "Old Orders" },
		"policy.table":           func(p *cleanupv1.Policy) { p.Table = "shop.nothing" },
		"policy.table ":          func(p *cleanupv1.Policy) { p.Table = "shop.view" },
		"policy.table  ":         func(p *cleanupv1.Policy) { p.Table = "cleanupd.run" },
		"policy.table   ":        func(p *cleanupv1.Policy) { p.Table = "pg_catalog.pg_class" },
		"policy.table    ":       func(p *cleanupv1.Policy) { p.Table = `x"; DROP TABLE shop.login; --` },
		"policy.limit":           func(p *cleanupv1.Policy) { p.Limit = -1 },
		"policy":                 func(p *cleanupv1.Policy) { p.OlderThan = nil },
		"policy.older_than.days": func(p *cleanupv1.Policy) { p.OlderThan = olderThan("placed", 24_856) },
		"policy.older_than":      func(p *cleanupv1.Policy) { p.OlderThan.Age = nil },
		"policy.older_than.hours": func(p *cleanupv1.Policy) {
			p.OlderThan.Age = &cleanupv1.OlderThan_Hours{Hours: 596_521}
		},
		"policy.older_than.hours ": func(p *cleanupv1.Policy) { // a date has none
			p.OlderThan = &cleanupv1.OlderThan{Column: "day", Age: &cleanupv1.OlderThan_Hours{Hours: 36}}
		},
		"policy.older_than.days ":   func(p *cleanupv1.Policy) { p.OlderThan = olderThan("day", 0) },
		"policy.older_than.column":  func(p *cleanupv1.Policy) { p.OlderThan.Column = "total" },
		"policy.older_than.column ": func(p *cleanupv1.Policy) { p.OlderThan.Column = "placed) OR (true" },
		"policy.filters[0].op":      func(p *cleanupv1.Policy) { p.Filters[0].Op = 0 },
		"policy.filters[0].values":  func(p *cleanupv1.Policy) { p.Filters[0].Values = nil },
		"policy.filters[0].column":  func(p *cleanupv1.Policy) { p.Filters[0].Column = "nothing" },
		"policy.filters[1].values[0]": func(p *cleanupv1.Policy) {
			p.Filters = append(p.Filters, filter("total", "ten"))
		},
		"policy.filters[1].column": func(p *cleanupv1.Policy) {
			p.Table, p.OlderThan.Column = "shop.login", "At"
			p.Filters = []*cleanupv1.Filter{filter("address", "10.0.0.1"), filter("payload", "{}")}
		},
		"policy.orphan_of.parent_table": func(p *cleanupv1.Policy) {
			p.OrphanOf = &cleanupv1.OrphanOf{Column: "customer", ParentTable: "shop.nobody", ParentColumn: "id"}
		},
		"policy.orphan_of.parent_column": func(p *cleanupv1.Policy) {
			p.OrphanOf = &cleanupv1.OrphanOf{Column: "total", ParentTable: "shop.customer", ParentColumn: "id"}
		},
		"policy.partitions": func(p *cleanupv1.Policy) { // not by its age alone
			p.Partitions = cleanupv1.Partitions_PARTITIONS_DETACH
		},
		"policy.undo":  func(p *cleanupv1.Policy) { p.Undo = durationpb.New(90*24*time.Hour + 1) },
		"policy.undo ": func(p *cleanupv1.Policy) { p.Undo = durationpb.New(-1) },
		"policy.undo  ": func(p *cleanupv1.Policy) {
			p.Undo, p.Assign = durationpb.New(time.Hour), []*cleanupv1.Assign{{Column: "note"}}
		},
		"policy.keep_newest.count": func(p *cleanupv1.Policy) { p.KeepNewest = &cleanupv1.KeepNewest{} },
		"policy.keep_newest.order_by": func(p *cleanupv1.Policy) {
			p.KeepNewest = &cleanupv1.KeepNewest{OrderBy: "note", Count: 1}
		},
		"policy.keep_newest.per[0]": func(p *cleanupv1.Policy) {
			p.KeepNewest = &cleanupv1.KeepNewest{Per: []string{"nobody"}, Count: 1}
		},
		"policy.assign[0].column": func(p *cleanupv1.Policy) {
			p.Assign = []*cleanupv1.Assign{{Column: "id", Value: text("1")}}
		},
		"policy.assign[0].column ": func(p *cleanupv1.Policy) { p.Assign = []*cleanupv1.Assign{{Column: "placed"}} },
		"policy.assign[0].value":   func(p *cleanupv1.Policy) { p.Assign = []*cleanupv1.Assign{{Column: "status"}} },
		"policy.assign[0].value ": func(p *cleanupv1.Policy) {
			p.Assign = []*cleanupv1.Assign{{Column: "note", Value: text("longer than twenty characters")}}
		},
		"policy.assign[0].value  ": func(p *cleanupv1.Policy) {
			p.Assign = []*cleanupv1.Assign{{Column: "total", Value: text("x")}}
		},
		"policy.filters[1].values[0] ": func(p *cleanupv1.Policy) {
			p.Filters = append(p.Filters, filter("placed", "yesterday"))
		},
		"policy.assign[0].value   ": func(p *cleanupv1.Policy) {
			p.Assign = []*cleanupv1.Assign{{Column: "placed2", Value: text("now")}}
		},
		"policy.assign[0].value    ": func(p *cleanupv1.Policy) {
			p.Assign = []*cleanupv1.Assign{{Column: "total", Value: text("1.239")}}
		},
		"policy.assign[0].column policy.assign[1].column": func(p *cleanupv1.Policy) {
			p.OlderThan = nil
			p.KeepNewest = &cleanupv1.KeepNewest{Per: []string{"customer"}, OrderBy: "total", Count: 1}
			p.Assign = []*cleanupv1.Assign{{Column: "customer"}, {Column: "total", Value: text("1")}}
		},
		"policy.assign[1].column": func(p *cleanupv1.Policy) {
			p.Assign = []*cleanupv1.Assign{{Column: "note"}, {Column: "NOTE"}}
		},
		"policy.assign[0].column  ": func(p *cleanupv1.Policy) {
			p.Table, p.OlderThan.Column, p.Filters = "shop.login", "At", nil
			p.Assign = []*cleanupv1.Assign{{Column: "twice", Value: text("1")}}
		},
		"policy.name policy.table policy.limit policy.older_than.days policy.filters[0].op": func(p *cleanupv1.Policy) {
			p.Name, p.Table, p.Limit, p.OlderThan, p.Filters[0].Op = "", "", -1, olderThan("placed", -1), 0
		},
	} {
		p := oldOrders()
		change(p)
		_, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: p})
		_, bad := wantCode(t, err, codes.InvalidArgument)
		var got []string
		for _, v := range bad.GetFieldViolations() {
			got = append(got, v.GetField())
		}
		if strings.Join(got, " ") != strings.TrimSpace(fields) {
			t.Errorf("%s: %v", fields, bad)
		}
	}
	if n := s.db.Int("SELECT count(*) FROM cleanupd.policy"); n != 0 {
		t.Errorf("%d policies are stored", n)
	}
}

func olderThan(column string, days int32) *cleanupv1.OlderThan {
	return &cleanupv1.OlderThan{Column: column, Age: &cleanupv1.OlderThan_Days{Days: days}}
}

func filter(column, value string) *cleanupv1.Filter {
	return &cleanupv1.Filter{Column: column, Op: cleanupv1.FilterOp_FILTER_OP_EQUAL, Values: []string{value}}
}

// Policies are set, read, changed and deleted over REST as over gRPC.
func TestPoliciesOverREST(t *testing.T) {
	t.Parallel()
	s := shop(t)
	const body = `{"table": "shop.order_line", "enabled": true, "olderThan": {"column": "placed", "days": 730}}`
	got := s.call(t, http.MethodPut, "/v1/policies/old-orders", body)
	if got.code != 200 || !strings.Contains(got.body, `"name":"old-orders"`) ||
		!strings.Contains(got.body, "POLICY_UNPROVEN") {
		t.Fatalf("%d %s", got.code, got.body)
	}
	if got := s.call(t, http.MethodPut, "/v1/policies/only-checked?validateOnly=true", body); got.code != 200 ||
		s.db.Int("SELECT count(*) FROM cleanupd.policy") != 1 {
		t.Errorf("only checked: %d %s", got.code, got.body)
	}
	if n := s.db.Int(`SELECT count(*) FROM cleanupd.audit WHERE rpc = 'PolicyService/SetPolicy' AND result = 'OK'
		AND details = '{"policy": "only-checked", "validate_only": true}'`); n != 1 {
		t.Errorf("%d entries of the audit say that a policy was only checked", n)
	}
	if got := s.call(t, http.MethodPatch, "/v1/policies/old-orders", `{"limit": 7}`); got.code != 200 ||
		!strings.Contains(got.body, `"limit":7`) || !strings.Contains(got.body, `"days":730`) {
		t.Errorf("a mask: %d %s", got.code, got.body)
	}
	for path, want := range map[string]int{
		"/v1/policies/old-orders": 200, "/v1/policies/nothing": 404, "/v1/policies": 200,
	} {
		if got := s.call(t, http.MethodGet, path, ""); got.code != want {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
	for path, want := range map[string]int{
		"/v1/policies/old-orders?etag=old": 409, "/v1/policies/nothing": 404,
	} {
		if got := s.call(t, http.MethodDelete, path, ""); got.code != want {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
	if got := s.call(t, http.MethodDelete, "/v1/policies/old-orders", ""); got.code != 200 ||
		s.db.Int("SELECT count(*) FROM cleanupd.policy") != 0 {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := s.call(t, http.MethodPatch, "/v1/policies/old-orders", `{"limit": 7}`); got.code != 404 {
		t.Errorf("a mask for nothing: %d %s", got.code, got.body)
	}
}

// A policy in a Campaign database keeps the zero record, and tables of the application's configuration are refused.
func TestPoliciesOfCampaign(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do(`CREATE TABLE cus_transaction (id integer PRIMARY KEY, made timestamptz);
		INSERT INTO cus_transaction SELECT i, now() - interval '400 days' FROM generate_series(-2, 7) i`)
	p := &cleanupv1.Policy{
		Name: "transactions", Table: "cus_transaction", Enabled: true,
		OlderThan: olderThan("made", 365),
	}
	setPolicy(t, s, p)
	tasks, err := s.ListTasks(t.Context(), &cleanupv1.ListTasksRequest{})
	list := tasks.GetTasks()
	at := slices.IndexFunc(list, func(t *cleanupv1.Task) bool { return t.GetName() == "policy/transactions" })
	if err != nil || at < 0 || list[at+1].GetName() != "statistics" {
		t.Errorf("%v %v", list, err)
	}
	dry, run := approve(t, s, "policy/transactions")
	if a, b := resultOf(dry, p.GetName()), resultOf(run, "policy/transactions").GetRowsDeleted(); a != nil || b != 9 ||
		s.db.Int("SELECT sum(id)::int FROM cus_transaction") != 0 {
		t.Errorf("%v %d", a, b)
	}
	p.Name, p.Table, p.OlderThan.Column = "audit", "XtkAudit", "tsChanged"
	if set := setPolicy(t, s, p); codesOf(set.GetWarnings()) != "POLICY_UNPROVEN POLICY_TABLE_COVERED" {
		t.Errorf("%v", set)
	}
	for table, column := range map[string]string{
		"NmsRecipient": "tsLastModified", "NmsDelivery": "tsLastModified", "wkf12_3": "at",
	} {
		s.db.Do("CREATE TABLE IF NOT EXISTS wkf12_3 (id int, at timestamptz)")
		p.Table, p.OlderThan.Column = table, column
		_, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: p})
		if _, bad := wantCode(t, err, codes.InvalidArgument); len(bad.GetFieldViolations()) != 1 ||
			bad.GetFieldViolations()[0].GetField() != "policy.table" {
			t.Errorf("%s: %v", table, bad)
		}
	}
}

// A policy on a table says which foreign keys delete rows with its rows, keep them, or lack an index; and a run deletes
// rows that keep others before these, whatever the names of the policies.
func TestPoliciesWithForeignKeys(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE TABLE cart (id int PRIMARY KEY, placed timestamptz);
		CREATE TABLE item (id int PRIMARY KEY, cart int REFERENCES cart, placed timestamptz);
		CREATE TABLE gift (id int PRIMARY KEY, cart int REFERENCES cart ON DELETE CASCADE);
		CREATE TABLE bill (id int PRIMARY KEY, cart int REFERENCES cart);
		CREATE INDEX ON item (cart);
		INSERT INTO cart SELECT i, '2020-01-01' FROM generate_series(1, 2000) i;
		INSERT INTO item SELECT i, i, '2020-01-01' FROM generate_series(1, 1980) i;
		INSERT INTO bill SELECT i, i FROM generate_series(1971, 1990) i;
		INSERT INTO gift SELECT i, i FROM generate_series(1, 30) i`)
	old := olderThan("placed", 365)
	set := setPolicy(t, s, &cleanupv1.Policy{Name: "a-carts", Table: "cart", Enabled: true, OlderThan: old})
	const want = "POLICY_UNPROVEN POLICY_CASCADES POLICY_ROWS_REFUSED POLICY_KEY_UNINDEXED"
	if got := codesOf(set.GetWarnings()); got != want || set.GetWarnings()[2].GetParams()["rows"] != "1990" ||
		set.GetWarnings()[2].GetParams()["tables"] != "public.bill, public.item" {
		t.Errorf("the warnings are %q, want %q: %v", got, want, set.GetWarnings())
	}
	alone := setPolicy(t, s, &cleanupv1.Policy{Name: "c-carts", Table: "cart", OlderThan: old, Unreferenced: true})
	const rest = "POLICY_UNPROVEN POLICY_TABLE_COVERED POLICY_KEY_UNINDEXED"
	if got := codesOf(alone.GetWarnings()); got != rest {
		t.Errorf("with unreferenced, which keys neither take nor keep rows of, the warnings are %q, want %q", got, rest)
	}
	setPolicy(t, s, &cleanupv1.Policy{Name: "b-items", Table: "item", Enabled: true, OlderThan: old})
	s.db.Do("DELETE FROM bill")
	dry, run := approve(t, s)
	if r := resultOf(run, "policy/a-carts"); r.GetRowsDeleted() != 2_000 || r.GetRowsCascaded() != 30 ||
		resultOf(run, "policy/b-items").GetRowsDeleted() != 1_980 {
		t.Errorf("the run did %v", run.GetResults())
	}
	var remarks []string
	for _, p := range resultOf(dry, "policy/a-carts").GetPreview() {
		remarks = append(remarks, p.GetRemarks()...)
	}
	for _, part := range []string{"rows of public.item that refer", "CREATE INDEX ON public.gift (cart)"} {
		if !strings.Contains(strings.Join(remarks, "; "), part) {
			t.Errorf("the remarks are %q, want %q among them", remarks, part)
		}
	}
}

func searchIn(db *pgtest.DB, path string) {
	db.Do("ALTER ROLE CURRENT_USER IN DATABASE " + db.Name + " SET search_path = " + path)
	db.Reset()
}

func exchange(db *pgtest.DB, a, b string) {
	db.Do("ALTER TABLE shop." + a + " RENAME TO between; ALTER TABLE shop." + b + " RENAME TO " + a +
		"; ALTER TABLE shop.between RENAME TO " + b)
}

// The proof of a policy, and a saved plan, apply to tables and columns, not to their names.
func TestPolicyOfAnotherTable(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	const orders = "(id bigserial PRIMARY KEY, customer uuid, status text NOT NULL, placed timestamptz, paid timestamptz)"
	const task = "policy/old-orders"
	orphans := oldOrders()
	orphans.OlderThan, orphans.Filters = nil, nil
	orphans.OrphanOf = &cleanupv1.OrphanOf{Column: "customer", ParentTable: "customer", ParentColumn: "id"}
	aged := oldOrders()
	aged.Table = "order_line"
	for name, test := range map[string]struct {
		policy *cleanupv1.Policy
		change func(db *pgtest.DB)
	}{
		"exchanged": {aged, func(db *pgtest.DB) { exchange(db, "order_line", "other") }},
		"created again": {aged, func(db *pgtest.DB) {
			db.Do("DROP TABLE shop.order_line; CREATE TABLE shop.order_line " + orders)
		}},
		"a column exchanged": {aged, func(db *pgtest.DB) {
			db.Do(`ALTER TABLE shop.order_line RENAME placed TO between; ALTER TABLE shop.order_line RENAME paid TO placed;
				ALTER TABLE shop.order_line RENAME between TO paid`)
		}},
		"a parent exchanged": {orphans, func(db *pgtest.DB) { exchange(db, "customer", "client") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shop(t)
			fill := func() {
				s.db.Do(`INSERT INTO shop.order_line (customer, status, placed, paid)
					SELECT gen_random_uuid(), 'closed', '2001-01-01', '2001-01-01' FROM generate_series(1, 10)`)
				s.db.Do("INSERT INTO shop.order_line (status) SELECT 'without a customer' FROM generate_series(1, 30)")
			}
			searchIn(s.db, "shop")
			s.db.Do(
				"DROP TABLE shop.order_line; CREATE TABLE shop.order_line " + orders + "; CREATE TABLE shop.other " + orders +
					"; CREATE TABLE shop.client (id uuid PRIMARY KEY); " +
					"INSERT INTO shop.client VALUES (gen_random_uuid())",
			)
			fill()
			setPolicy(t, s, test.policy)
			approve(t, s)
			fill()
			_, dry, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true})
			if err != nil || s.warnings(t, "old-orders") != "" {
				t.Fatal(err, s.warnings(t, "old-orders"))
			}
			test.change(s.db)
			s.db.Do("DELETE FROM shop.order_line")
			fill()
			_, _, err = s.run(t, &cleanupv1.RunCleanupRequest{Plan: dry.GetId()})
			if _, reason := refusedBy(err); reason != "PLAN_STALE" {
				t.Error(err)
			}
			if got := s.warnings(t, "old-orders"); !strings.Contains(got, "POLICY_UNPROVEN") {
				t.Errorf("warnings %q", got)
			}
			_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{})
			wantCode(t, err, codes.FailedPrecondition)
			if r := resultOf(run, task); r.GetMetadata()["guard"] != "policy" ||
				s.db.Int("SELECT count(*) FROM shop.order_line WHERE status = 'closed'") != 10 {
				t.Errorf("%v", r)
			}
			if _, run := approve(t, s); resultOf(run, task).GetRowsDeleted() != 10 {
				t.Errorf("a new proof: %v", run)
			}
		})
	}
}

// A table that comes first on the search path does not take the place of the one that a policy was set for.
func TestPolicyAndANamesake(t *testing.T) {
	t.Parallel()
	s := shop(t)
	searchIn(s.db, "early, shop")
	p := oldOrders()
	p.Table, p.Filters = "order_line", nil
	setPolicy(t, s, p)
	approve(t, s)
	s.db.Do(`CREATE SCHEMA early; CREATE TABLE early.order_line AS SELECT * FROM shop.order_line;
		UPDATE early.order_line SET placed = '2001-01-01'`)
	if _, run, err := s.run(t, &cleanupv1.RunCleanupRequest{}); err != nil ||
		resultOf(run, "policy/old-orders").GetRowsDeleted() != 0 || s.warnings(t, "old-orders") != "" {
		t.Errorf("%v %v %s", run, err, s.warnings(t, "old-orders"))
	}
}

// A change that cannot be made to all rows, or that the next run would make to other rows, is refused.
func TestPoliciesThatCannotRun(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE DOMAIN filled AS text NOT NULL; CREATE DOMAIN checked AS filled CHECK (VALUE IS NOT NULL);
		CREATE TABLE shop.owner (id int PRIMARY KEY); INSERT INTO shop.owner VALUES (2);
		CREATE TABLE shop.item (id int PRIMARY KEY, at timestamptz, email text, name text, phone text, included text,
			note text, mail text CHECK (mail LIKE '%@%'), size int CHECK (size > 0 AND size < 9), kind text, other text,
			CHECK (kind <> other), owner int REFERENCES shop.owner,
			low text GENERATED ALWAYS AS (lower(name)) STORED UNIQUE, filled filled, checked checked, ref int, part int,
			prio int GENERATED ALWAYS AS (coalesce(ref, 100)) STORED, EXCLUDE USING btree (phone WITH =));
		CREATE UNIQUE INDEX ON shop.item (lower(email)); CREATE UNIQUE INDEX ON shop.item (id) INCLUDE (included);
		CREATE UNIQUE INDEX ON shop.item (at) WHERE part > 0;
		CREATE TABLE shop.touched (id int PRIMARY KEY, at timestamptz, note text, other text);
		CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.at = now(); RETURN NEW; END';
		CREATE TRIGGER touch BEFORE UPDATE OF note ON shop.touched FOR EACH ROW EXECUTE FUNCTION touch();
		CREATE TABLE shop.parts (id int, at timestamptz, note text) PARTITION BY RANGE (id);
		CREATE TABLE shop.part PARTITION OF shop.parts FOR VALUES FROM (1) TO (10);
		CREATE TRIGGER touch AFTER UPDATE ON shop.part FOR EACH ROW EXECUTE FUNCTION touch()`)
	newest := &cleanupv1.KeepNewest{OrderBy: "at", Count: 3}
	one := "1"
	for name, c := range map[string]struct {
		table, column string
		null          bool
		newest        *cleanupv1.KeepNewest
		field         string // empty if it is accepted
	}{
		"a unique expression":       {table: "item", column: "email", field: "policy.assign[0].column"},
		"a generated unique column": {table: "item", column: "name", field: "policy.assign[0].column"},
		"an exclusion constraint":   {table: "item", column: "phone", field: "policy.assign[0].column"},
		"a partial unique index":    {table: "item", column: "part", field: "policy.assign[0].column"},
		"an included column":        {table: "item", column: "included"},
		"a domain without NULL":     {table: "item", column: "filled", null: true, field: "policy.assign[0].value"},
		"a domain with a check":     {table: "item", column: "checked", null: true, field: "policy.assign[0].value"},
		"a value of a domain":       {table: "item", column: "checked"},
		"a check that forbids it":   {table: "item", column: "mail", field: "policy.assign"},
		"a check that allows it":    {table: "item", column: "size"},
		"a check that allows NULL":  {table: "item", column: "mail", null: true},
		"a check of the row":        {table: "item", column: "kind"},
		"a parent that is missing":  {table: "item", column: "owner", field: "policy.assign"},
		"no parent":                 {table: "item", column: "owner", null: true},
		"a generated order": {
			"item", "ref", false, &cleanupv1.KeepNewest{OrderBy: "prio", Count: 3},
			"policy.assign[0].column",
		},
		"a trigger":                  {"touched", "note", false, newest, "policy.assign"},
		"a trigger of other columns": {"touched", "other", false, newest, ""},
		"a trigger of a partition":   {"parts", "note", false, newest, "policy.assign"},
		"a trigger and an age":       {table: "touched", column: "note"},
	} {
		p := &cleanupv1.Policy{Name: "p", Table: "shop." + c.table, KeepNewest: c.newest}
		if c.newest == nil {
			p.OlderThan = olderThan("at", 30)
		}
		p.Assign = []*cleanupv1.Assign{{Column: c.column, Value: &one}}
		if c.null {
			p.Assign[0].Value = nil
		}
		_, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: p})
		if c.field == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		_, bad := wantCode(t, err, codes.InvalidArgument)
		if v := bad.GetFieldViolations(); len(v) != 1 || v[0].GetField() != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A value whose meaning depends on the clock or on a setting, or that would be truncated, is refused: a run must do
// what its saved plan counted.
func TestValuesOfPoliciesMeanOneThing(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE TYPE pair AS (d date, n int); CREATE DOMAIN day AS date;
		CREATE TABLE shop.item (at timestamptz, d date, day day, t time, dates date[], days day[], during tstzrange,
			spans daterange[], multi datemultirange, p money, i interval, intervals interval[], n name, c "char", pair pair,
			texts text[], note text, number int)`)
	for _, c := range []struct {
		column, value string
		ok            bool
	}{
		{"d", "2026-02-03", true},
		{"d", "infinity", true},
		{"d", "03/02/2026", false},
		{"d", "3 Feb 2026", false},
		{"d", "today", false},
		{"d", "20260203", false},
		{"day", "03.02.2026", false},
		{"day", "2026-02-03", true},
		{"at", "2026-02-03T16:05:00.5Z", true},
		{"at", "2026-02-03 16:05+02", true},
		{"at", "2026-02-03 16:05 IST", false},
		{"t", "16:05", true},
		{"t", "now", false},
		{"t", "allballs", false},
		{"dates", "{2026-02-03,NULL}", true},
		{"dates", "{today}", false},
		{"dates", "{2026-02-03,03/02/2026}", false},
		{"days", "{tomorrow}", false},
		{"during", "[2026-02-03,)", true},
		{"during", `["2026-02-03 00:00:00+00","2026-02-04 00:00:00+00")`, true},
		{"during", "empty", true},
		{"during", "[tomorrow,)", false},
		{"spans", `{"[2026-02-03,03/04/2026)"}`, false},
		{"multi", "{[2026-02-03,2026-03-04)}", true},
		{"multi", "{[yesterday,)}", false},
		{"p", "12", true},
		{"p", "1.000", false},
		{"i", "3 days", true},
		{"i", "-3 days", true},
		{"i", "-1 2:03:04", false},
		{"i", "P1DT-2H", true},
		{"intervals", `{"-1 2:03:04"}`, false},
		{"n", strings.Repeat("n", 63), true},
		{"n", strings.Repeat("n", 64), false},
		{"c", "c", true},
		{"c", "cc", false},
		{"pair", "(today,1)", false},
		{"texts", "{today}", true},
		{"note", "now", true},
		{"number", "-7", true},
	} {
		p := &cleanupv1.Policy{Name: "p", Table: "shop.item", OlderThan: olderThan("at", 30)}
		p.Filters = []*cleanupv1.Filter{filter(c.column, c.value)}
		_, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: p})
		if c.ok && err != nil {
			t.Errorf("%s %s: %v", c.column, c.value, err)
		} else if !c.ok {
			_, bad := wantCode(t, err, codes.InvalidArgument)
			if v := bad.GetFieldViolations(); len(v) != 1 || v[0].GetField() != "policy.filters[0].values[0]" {
				t.Errorf("%s %s: %v", c.column, c.value, err)
			}
		}
		p.Filters, p.Assign = nil, []*cleanupv1.Assign{{Column: c.column, Value: &c.value}}
		if !slices.Contains([]string{"d", "n", "c", "p", "i"}, c.column) {
			continue
		}
		if _, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: p}); (err == nil) != c.ok {
			t.Errorf("assign %s %s: %v", c.column, c.value, err)
		}
	}
	p := &cleanupv1.Policy{Name: "p", Table: "shop.item", OlderThan: olderThan("at", 30)}
	p.Filters = []*cleanupv1.Filter{
		{Column: "note", Op: cleanupv1.FilterOp_FILTER_OP_STARTS_WITH, Values: []string{""}},
	}
	_, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: p})
	wantCode(t, err, codes.InvalidArgument)
}

// A policy warns about owners whose code would gain access to tables of others: the owner of its table, and those of
// partitions and of tables whose rows foreign keys delete with its rows.
func TestPolicyWarnsOfOwners(t *testing.T) {
	t.Parallel()
	s := shop(t)
	s.db.Do(`CREATE TABLE event (id int, placed timestamptz) PARTITION BY RANGE (placed);
		CREATE TABLE event_all PARTITION OF event DEFAULT;
		CREATE TABLE basket (id int PRIMARY KEY, placed timestamptz);
		CREATE TABLE item (basket int REFERENCES basket ON DELETE CASCADE)`)
	owner := s.db.Role("mallory")
	event, basket := oldOrders(), oldOrders()
	event.Name, event.Table, event.Filters = "event", "event", nil
	basket.Name, basket.Table, basket.Filters = "basket", "basket", nil
	all := []*cleanupv1.Policy{oldOrders(), event, basket}
	for _, p := range all {
		if set := setPolicy(t, s, p); strings.Contains(codesOf(set.GetWarnings()), "SEVERAL_OWNERS") {
			t.Errorf("one owner: %v", set)
		}
	}
	s.db.Superuser("ALTER TABLE shop.order_line OWNER TO " + owner + "; ALTER TABLE event_all OWNER TO " + owner +
		"; ALTER TABLE item OWNER TO " + owner +
		"; GRANT ALL ON shop.order_line, event_all, item TO neolane; GRANT neolane TO " + owner)
	for _, p := range all {
		if d := s.warnings(t, p.GetName()); strings.Contains(d, "SEVERAL_OWNERS") {
			t.Errorf("an owner who may become the service's role: %s", d)
		}
	}
	s.db.Superuser("REVOKE neolane FROM " + owner)
	for i, table := range []string{"shop.order_line", "public.event_all", "public.item"} {
		set := setPolicy(t, s, all[i])
		at := slices.IndexFunc(set.GetWarnings(),
			func(m *cleanupv1.Message) bool { return m.GetCode() == "SEVERAL_OWNERS" })
		if at < 0 {
			t.Errorf("no warning: %v", set)
			continue
		}
		want := map[string]string{"table": table, "owner": owner, "others": "neolane"}
		if got := set.GetWarnings()[at].GetParams(); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// DROP with further conditions, which can never drop a partition, has a warning.
func TestPartitionsThatAreNeverDropped(t *testing.T) {
	t.Parallel()
	s := shop(t)
	for _, c := range []struct {
		partitions cleanupv1.Partitions
		alone      bool
	}{
		{cleanupv1.Partitions_PARTITIONS_DROP, false},
		{cleanupv1.Partitions_PARTITIONS_DROP, true},
		{cleanupv1.Partitions_PARTITIONS_UNSPECIFIED, false},
		{cleanupv1.Partitions_PARTITIONS_DELETE, false},
	} {
		p := oldOrders()
		p.Partitions = c.partitions
		if c.alone {
			p.Filters = nil
		}
		want := c.partitions == cleanupv1.Partitions_PARTITIONS_DROP && !c.alone
		warned := slices.ContainsFunc(setPolicy(t, s, p).GetWarnings(), func(m *cleanupv1.Message) bool {
			return m.GetCode() == message.PolicyDropsNothing.Code
		})
		if warned != want {
			t.Errorf("%v, by age alone %t: warned is %t", c.partitions, c.alone, warned)
		}
	}
}
