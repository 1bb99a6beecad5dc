package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// The command tables lists all tables, the reasons why work tables are retained, and suggestions.
func TestTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (520, 13);
		CREATE TABLE wkf520_1 AS SELECT generate_series(1, 1000) AS i; CREATE TABLE wkf521_1 (i int);
		CREATE SCHEMA shop;
		CREATE TABLE shop.orders AS SELECT i, now() - i * interval '1 day' AS created FROM generate_series(1, 20000) i`)
	db.Do("CREATE TABLE \"cus\n\x1b[31mhostile\" (i int)")
	db.Do("ANALYZE shop.orders, wkf520_1")
	db.Superuser("UPDATE pg_class SET relpages = 300000 WHERE oid = 'shop.orders'::regclass")
	s := startServer(t, "--database-url", db.URL())
	for args, want := range map[string]struct {
		code  int
		lines []string
		errs  string
	}{
		"tables --order-by bytes --limit 1": {
			0,
			[]string{
				"TABLE           SIZE  INDEXES  COVERED BY    ROWS  DEAD     FREE",
				"shop.orders  2.3 GiB      0 B  –           20,000   0 B  2.3 GiB",
				"shop.orders: no task covers it, and it has 2.3 GiB.",
				`  Policy:  {"name":"shop-orders","table":"shop.orders","description":"Suggested: no task covers it, and it has ` +
					`2.3 GiB.","olderThan":{"column":"created","days":365}}`,
				"  Preview: cleanupd run --dry-run --task policy/shop-orders",
			},
			"There are more entries",
		},
		"tables --uncovered": {0, []string{"public.xtkworkflow ", "shop.orders "}, ""},
		"tables": {
			0,
			[]string{
				"public.wkf%: 2 tables", "  1 table retained, ", " KiB: workflow 520 is paused", "  1 table unused",
				"deliveries +2",
			},
			"",
		},
		"tables --order-by age": {2, nil, "must be name, bytes, growth, rows"},
		"tables --limit -1":     {2, nil, "--limit must be 0 or more, not -1"},
		"tables extra":          {2, nil, "extra"},
	} {
		code, out, errs := s.run(t, args)
		if code != want.code || !strings.Contains(errs, want.errs) || (want.errs == "" && errs != "") ||
			strings.Contains(out, "\x1b") {
			t.Errorf("%s: %d %s %s", args, code, out, errs)
		}
		for _, line := range want.lines {
			if !strings.Contains(out, line) {
				t.Errorf("%s: without %q:\n%s", args, line, out)
			}
		}
	}
	_, out, _ := s.run(t, "tables -o json --order-by rows")
	_, suggested, _ := s.run(t, "tables --uncovered")
	policy := regexp.MustCompile(`Policy:  (.*)`).FindStringSubmatch(suggested)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if policy == nil || os.WriteFile(file, []byte(policy[1]), 0o600) != nil {
		t.Fatal(suggested)
	}
	if code, out, errs := s.run(t, "policies set --file", file); code != 0 {
		t.Errorf("the suggested policy: %d %s %s", code, out, errs)
	}
	_, suggested, _ = s.run(t, "tables --uncovered")
	if !strings.Contains(
		suggested,
		"shop.orders: no task covers it, and it has 2.3 GiB; policy/shop-orders is not enabled.\n"+
			"  Preview: cleanupd run --dry-run --task policy/shop-orders\n",
	) {
		t.Error(suggested)
	}
	var got struct {
		Tables []struct{ Name, Rows string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Tables[0].Name != "shop.orders" ||
		got.Tables[0].Rows != "20000" {
		t.Errorf("%v %.1000s", err, out)
	}
}

// With --suggest, tables prints a file that apply reads: a disabled policy for each table that nothing covers, why its
// column was chosen, and why there is none for others.
func TestSuggestedFile(t *testing.T) {
	t.Parallel()
	f := newPolicyFiles(t)
	f.db.Do(`DROP TABLE line, customer; CREATE INDEX ON orders (placed);
		CREATE TABLE visit (id int, at timestamptz, valid_until date); CREATE TABLE person (id int, birth date);
		CREATE TABLE voucher (id int, "expiresAt" timestamp); CREATE TABLE zone (id int, valid_to date);
		INSERT INTO orders VALUES (101, 1, 'open', '', '2019-06-15 12:00Z')`)
	f.db.Do("CREATE TABLE \"od\nd\" (id int); ANALYZE")
	const want = `# Suggested policies, all of them disabled. Correct the columns and the days, enable
# what you want, and then:
#   cleanupd policies apply FILE --server SERVER
#   cleanupd run --preview --server SERVER
policies:
  # public.orders: SIZE, about 101 rows
  # placed: a date that may tell the age of rows; an index begins with it; the oldest is of 2019-06-15
  - name: orders
    table: public.orders
    description: 'Suggested: no task covers it.'
    enabled: false
    olderThan:
      column: placed
      days: 365
  # public.visit: SIZE, about 0 rows
  # valid_until: by its name, when a row expires; no index begins with it, so runs read the whole table` +
		`; to keep expired rows for longer, give more days, or take at
  - name: visit
    table: public.visit
    description: 'Suggested: no task covers it.'
    enabled: false
    olderThan:
      column: valid_until
      days: 1
  # public.voucher: SIZE, about 0 rows
  # expiresAt: by its name, when a row expires; no index begins with it, so runs read the whole table
  - name: voucher
    table: public.voucher
    description: 'Suggested: no task covers it.'
    enabled: false
    olderThan:
      column: expiresAt
      hours: 0
  # public.zone: SIZE, about 0 rows
  # valid_to: by its name, when a row expires; no index begins with it, so runs read the whole table
  - name: zone
    table: public.zone
    description: 'Suggested: no task covers it.'
    enabled: false
    olderThan:
      column: valid_to
      days: 1
# No policy is suggested for:
# public."od d": SIZE, about 0 rows; no task covers it; it has no column with a date by which a policy could ` +
		`delete rows
# public.person: SIZE, about 0 rows; no task covers it; none of its dates tells the age of a row
`
	suggest := func() string {
		code, out, errs := f.run(t, "tables", "--suggest")
		if code != 0 || errs != "" {
			t.Fatalf("%d %s", code, errs)
		}
		return regexp.MustCompile(`: [\d.]+ (Ki)?B,`).ReplaceAllString(
			strings.ReplaceAll(out, f.grpc, "SERVER"), ": SIZE,")
	}
	got := suggest()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if code, out, errs := f.do("apply", f.file(got), "--yes"); code != 0 || !strings.Contains(out, "4 new") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if again := suggest(); !strings.Contains(again, "policies: []") ||
		!strings.Contains(again, "# public.orders: SIZE, about 101 rows; no task covers it; policy/orders is not enabled\n") {
		t.Errorf("once the policies are set:\n%s", again)
	}
}

// A role that may only read is shown the oldest date, and a partition key needs no index.
func TestSuggestionsForReader(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	reader := db.Role("reader")
	db.Do(`CREATE TABLE event (id int, made_at timestamptz) PARTITION BY RANGE (made_at);
		CREATE TABLE event_2019 PARTITION OF event FOR VALUES FROM ('2019-01-01') TO ('2020-01-01');
		CREATE TABLE event_2020 PARTITION OF event FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
		INSERT INTO event SELECT i, timestamptz '2019-06-15 12:00Z' + i * interval '1 day' FROM generate_series(0, 400) i;
		CREATE TABLE visit AS SELECT * FROM event; CREATE INDEX ON visit (made_at); ANALYZE;
		GRANT SELECT ON event, visit TO ` + reader)
	code, out, errs := cleanupd(t, "tables", "--suggest", "--database-url", db.As(reader))
	for _, want := range []string{
		"# made_at: a date that may tell the age of rows; the table is partitioned by it; the oldest is of 2019-06-15\n",
		"# made_at: a date that may tell the age of rows; an index begins with it; the oldest is of 2019-06-15\n",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d, %q is not in %s%s", code, want, out, errs)
		}
	}
}
