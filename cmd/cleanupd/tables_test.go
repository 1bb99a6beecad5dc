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
