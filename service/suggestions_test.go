package service_test

import (
	"regexp"
	"strings"
	"testing"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
)

// Keyed by table name.
func (s *server) suggestions(t *testing.T) map[string]*cleanupv1.PolicySuggestion {
	t.Helper()
	all, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*cleanupv1.PolicySuggestion{}
	for _, table := range all.GetTables() {
		if table.GetSuggestion() != nil {
			found[table.GetName()] = table.GetSuggestion()
		}
	}
	return found
}

var policyName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// A policy is suggested for a large table that nothing covers, and can be applied as it is: the table and the column
// exist, and the policy is not enabled. None is suggested for the application's own tables, and other kinds of tables.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.Do(`CREATE SCHEMA "Shop"; CREATE SCHEMA far;
		CREATE TABLE "Shop"."Order Lines" (id int, due timestamptz, "createdAt" timestamptz);
		CREATE TABLE cusevents (id int, tsCreated timestamptz, tsLastModified timestamptz, dExpires date);
		CREATE TABLE cusindexed (id int, tsA timestamptz, tsB timestamptz, tsCreated timestamptz);
		CREATE INDEX ON cusindexed (tsB);
		CREATE TABLE custenants (id int, created_at timestamptz, updated_at timestamptz, cancelled_at timestamptz);
		CREATE TABLE cuscopies (id int, bought_at timestamptz, discarded_at timestamptz);
		CREATE INDEX ON cuscopies (bought_at);
		CREATE INDEX ON custenants (created_at); CREATE TABLE cusdeletions (id int, deleted_at timestamptz);
		CREATE TABLE cusnodate (id int);
		CREATE TABLE cussmall (id int, tsCreated timestamptz);
		CREATE TABLE cus_events (id int, at date); CREATE TABLE "cus-events" (id int, at date);
		CREATE TABLE "☃" (id int, at date);
		CREATE TABLE "` + strings.Repeat("long", 15) + `" (id int, at date);
		CREATE TABLE parts (id int, at date) PARTITION BY RANGE (at);
		CREATE TABLE parts_1 PARTITION OF parts DEFAULT;
		INSERT INTO "Shop"."Order Lines" SELECT i, now() + interval '1 year', now() FROM generate_series(1, 9999) i;
		INSERT INTO cusevents SELECT i FROM generate_series(1, 9999) i;
		INSERT INTO cusindexed SELECT i FROM generate_series(1, 9999) i;
		INSERT INTO custenants SELECT i, now() FROM generate_series(1, 9999) i;
		INSERT INTO cuscopies SELECT i, now() FROM generate_series(1, 9999) i;
		INSERT INTO cusdeletions SELECT i, now() FROM generate_series(1, 9999) i;
		INSERT INTO cusnodate SELECT i FROM generate_series(1, 9999) i;
		INSERT INTO cus_events SELECT i FROM generate_series(1, 9999) i;
		INSERT INTO "cus-events" SELECT i FROM generate_series(1, 9999) i;
		INSERT INTO "☃" SELECT i FROM generate_series(1, 9999) i;
		INSERT INTO "` + strings.Repeat("long", 15) + `" SELECT i FROM generate_series(1, 9999) i;
		INSERT INTO parts SELECT i FROM generate_series(1, 9999) i;
		INSERT INTO XtkAudit (iAuditId) SELECT i FROM generate_series(1, 9999) i;
		INSERT INTO XtkWorkflow (iWorkflowId) SELECT i FROM generate_series(1, 9999) i;
		CREATE MATERIALIZED VIEW cusview AS SELECT * FROM cusevents;
		CREATE TABLE cuspeople (id int, birth_date date); CREATE TABLE custerms (id int, tsEnd timestamptz, dob date);
		CREATE TABLE cusfuture (id int, at timestamptz); CREATE TABLE cuspast (id int, d date);
		INSERT INTO cuspeople SELECT i, date '1960-01-01' + i FROM generate_series(1, 9999) i;
		INSERT INTO custerms SELECT i, now(), now() FROM generate_series(1, 9999) i;
		INSERT INTO cusfuture SELECT i, now() + i * interval '1 hour' FROM generate_series(-5000, 4999) i;
		INSERT INTO cuspast SELECT i, date '1950-01-01' + i FROM generate_series(1, 9999) i`)
	db.Do("ANALYZE")
	s := serve(t, db, true)
	if got := s.suggestions(t); len(got) > 0 {
		t.Errorf("for small tables: %v", got)
	}
	s.tables.Limits.Bytes = 100_000
	got := s.suggestions(t)
	columns := map[string]string{
		`"Shop"."Order Lines"`:                 "createdAt",
		"public.cusevents":                     "dexpires",
		"public.cusindexed":                    "tsb",
		"public.custenants":                    "cancelled_at",
		"public.cuscopies":                     "discarded_at",
		"public.cusdeletions":                  "deleted_at",
		"public.cusnodate":                     "",
		"public.cus_events":                    "at",
		`public."cus-events"`:                  "at",
		`public."☃"`:                           "at",
		"public.parts":                         "at",
		"public." + strings.Repeat("long", 15): "at",
	}
	names := map[string]bool{}
	for table, column := range columns {
		suggestion := got[table]
		if suggestion == nil || !strings.HasPrefix(suggestion.GetReason(), "no task covers it, and it has ") {
			t.Errorf("%s: %v", table, suggestion)
			continue
		}
		p := suggestion.GetPolicy()
		if column == "" {
			if p != nil || suggestion.GetPreviewCommand() != "" ||
				!strings.Contains(suggestion.GetReason(), "no column") {
				t.Errorf("%s: %v", table, suggestion)
			}
			continue
		}
		days := int32(365)
		if column == "dexpires" { // a date, whose rows expire when its day has ended
			days = 1
		}
		if p.GetTable() != table || p.GetEnabled() || p.GetOlderThan().GetDays() != days || names[p.GetName()] ||
			p.GetOlderThan().
				GetColumn() !=
				column || !policyName.MatchString(p.GetName()) || p.GetDescription() == "" ||
			suggestion.GetPreviewCommand() != "cleanupd run --dry-run --task policy/"+p.GetName() {
			t.Errorf("%s: %v", table, suggestion)
		}
		names[p.GetName()] = true
		if db.Int(
			"SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2", table, column,
		) != 1 {
			t.Errorf("%s has no column %s", table, column)
		}
	}
	if len(got) != len(columns) || !names["shop-order-lines"] || !names["cusevents"] || names["cus-events"] {
		t.Errorf("%d suggestions, %v", len(got), names)
	}
	rest := s.call(t, "GET", "/v1/tables?pageSize=1", "") // "Shop" is the first schema
	tables, _ := at(rest.lines[0], "tables").([]any)
	if rest.code != 200 || at(tables[0], "suggestion", "policy", "olderThan", "column") != "createdAt" {
		t.Errorf("%d %s", rest.code, rest.body)
	}
}

// A suggested policy can be set as it is, and previewed by the suggested command. Until it is enabled, it does not
// cover the table.
func TestSuggestedPoliciesCanBeSet(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	db.Do(`CREATE SCHEMA "Shop"; CREATE TABLE "Shop"."Order Lines" (id int PRIMARY KEY, "createdAt" timestamptz);
		CREATE TABLE parts (id int PRIMARY KEY, at date); CREATE TABLE "☃" (at timestamp, id int);
		INSERT INTO "Shop"."Order Lines" SELECT i, now() - i * interval '1 day' FROM generate_series(1, 9999) i;
		INSERT INTO parts SELECT i, '2020-01-01' FROM generate_series(1, 9999) i;
		INSERT INTO "☃" SELECT now(), i FROM generate_series(1, 9999) i`)
	db.Do("ANALYZE")
	s := serve(t, db, false)
	s.tables.Limits.Bytes = 100_000
	suggested := s.suggestions(t)
	if len(suggested) != 3 {
		t.Fatalf("%v", suggested)
	}
	for table, suggestion := range suggested {
		set, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: suggestion.GetPolicy()})
		if err != nil || set.GetPolicy().GetEnabled() {
			t.Errorf("%s: %v, %v", table, set, err)
		}
	}
	rows := map[string]int64{`"Shop"."Order Lines"`: 9634, "public.parts": 9999}
	preview, tasks := &cleanupv1.RunCleanupRequest{DryRun: true}, map[string]string{} // by table
	for table, suggestion := range s.suggestions(t) {
		command := suggested[table].GetPreviewCommand()
		if suggestion.GetPolicy() != nil || suggestion.GetPreviewCommand() != command ||
			!strings.Contains(suggestion.GetReason(), "is not enabled") {
			t.Errorf("%s, once the policy is set: %v", table, suggestion)
		}
		tasks[table] = strings.TrimPrefix(command, "cleanupd run --dry-run --task ")
		preview.Tasks = append(preview.Tasks, tasks[table])
	}
	_, run, err := s.run(t, preview)
	if err != nil || len(tasks) != 3 {
		t.Fatalf("the preview of %v: %v", tasks, err)
	}
	for table, task := range tasks {
		if n := resultOf(run, task).GetRowsDeleted(); n < rows[table]-1 || n > rows[table]+1 {
			t.Errorf("%s: %d rows, want %d", table, n, rows[table])
		}
	}
	for _, suggestion := range suggested {
		p := suggestion.GetPolicy()
		p.Enabled = true
		if _, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: p}); err != nil {
			t.Error(err)
		}
	}
	if got := s.suggestions(t); len(got) > 0 {
		t.Errorf("once the policies are enabled: %v", got)
	}
	all, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{PageSize: 1})
	if err != nil || len(all.GetTables()) != 1 || len(all.GetTables()[0].GetCoveredBy()) != 1 ||
		all.GetTables()[0].GetCoveredBy()[0] != "policy/shop-order-lines" {
		t.Errorf("%v, %v", all, err)
	}
}

// A policy is suggested for a table that grows fast.
func TestSuggestionsForGrowingTables(t *testing.T) {
	t.Parallel()
	db := bare(t)
	db.Do(`CREATE TABLE growing AS SELECT i, now() AS at FROM generate_series(1, 10000) i;
		CREATE TABLE resting AS SELECT i, now() AS at FROM generate_series(1, 10000) i;
		CREATE TABLE tiny AS SELECT 1 AS i, now() AS at`)
	db.Do("VACUUM ANALYZE growing, resting, tiny")
	s := serve(t, db, true)
	s.tables.Limits = capacity.Limits{Bytes: 1 << 30, GrowthPercent: 1, GrowthBytes: 100_000, Days: 30}
	db.Do(`INSERT INTO cleanupd.table_sampling VALUES (now() - interval '10 days');
		INSERT INTO cleanupd.sampled_table (name, first_time) SELECT 'public.' || name, now() - interval '10 days'
			FROM unnest(ARRAY['growing', 'resting', 'tiny']) AS name;
		INSERT INTO cleanupd.table_sample (table_id, time, rows, bytes, index_bytes)
			SELECT t.id, now() - interval '10 days', 0, CASE name WHEN 'public.resting' THEN c.relpages * 8192 * 0.95 ELSE
				0 END, 0
			FROM cleanupd.sampled_table t JOIN pg_class c ON c.oid = t.name::regclass`)
	got := s.suggestions(t)
	if len(got) != 1 || got["public.growing"].GetPolicy().GetOlderThan().GetDays() != 30 ||
		got["public.growing"].GetReason() != "no task covers it, and it grows by 10.0 % a day" {
		t.Errorf("%v", got)
	}
	page, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{
		OrderBy: cleanupv1.TableOrder_TABLE_ORDER_GROWTH, PageSize: 1,
	})
	if err != nil || page.GetTables()[0].GetName() != "public.growing" || page.GetTables()[0].GetGrowth_7Days() <= 0 ||
		page.GetTables()[0].Growth_30Days == nil || len(
		page.GetTables()[0].GetHistory(),
	) != 1 || page.GetSampleTime() == nil {
		t.Errorf("%v, %v", page, err)
	}
}
