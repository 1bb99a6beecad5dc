package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// explain shows what a task would do. An unknown or missing name is a usage error.
func TestExplain(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("DROP TABLE NmsSimulation")
	r := startServer(t, "--database-url", db.URL())
	for task, says := range map[string][]string{
		"sessions": {
			"sessions, reference time 2", "\ndelete \"public\".\"xtksessioninfo\": tsExpiration before ",
			"\n  DELETE FROM ONLY ", "\n  $1 = 2", "\n  found by table\n",
		},
		"deliveries": {
			"It starts with 0 rows of \"public\".\"nmsdelivery\": ", "\n  SELECT r.iDeliveryId FROM ",
			"\nupdate \"public\".\"nmsdelivery\"",
		},
		"work-tables": {
			"\ndrop wkdlv\\_%: the id in the name is that of no row of nmsdelivery",
			"\nSkipped:\n  skipped because table NmsDelivery is empty",
		},
		"email-error-stats": {"\n  WITH gone AS (DELETE FROM ", "\n  $1 = NULL\n  $2 = 2", "\n  $3 = []\n"},
		"statistics":        {" tables, one after another\n  VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED, TRUNCATE false) \""},
		"import-rejects":    {"\ndelete ", "\nSkipped:\n  skipped because table XtkJob is empty"},
		"simulation-tables": {"\nSkipped:\n  orphans of NmsSimulation are not deleted, because it is missing"},
	} {
		code, out, errs := r.run(t, "explain", task)
		for _, part := range says {
			if code != 0 || errs != "" || !strings.Contains(out, part) {
				t.Errorf("%s: %d %s %s\nwithout %q", task, code, out, errs, part)
			}
		}
	}
	if code, out, _ := r.run(t, "explain sessions -o json"); code != 0 ||
		!strings.Contains(out, `"statements"`) {
		t.Errorf("%d %s", code, out)
	}
	if code, _, errs := r.run(t, "explain no-such"); code == 0 ||
		!strings.Contains(errs, "no such task") {
		t.Errorf("%d %s", code, errs)
	}
	db.Do(
		"INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) VALUES (1, 1, '2020-01-01'), (2, 1, " +
			"'2999-01-01'), (-2147483648, 1, '2020-01-01')",
	)
	for key, says := range map[string][]string{
		"1": {
			"\"public\".\"nmsdelivery\" 1: DELETE NEXT RUN by the task deliveries\nreference time 2",
			"\ndeliveries, delete: NEXT RUN\n  rule: iDeleteStatus is not 0 and",
			"\n  1. true    nmsdelivery 1: iDeleteStatus is not 0 (iDeleteStatus = 1)\n",
		},
		"2": {
			"2: DELETE LATER from 2999-01-08T00:00:00Z by the task deliveries\n",
			"\n  1. false   nmsdelivery 2: tsDelete",
		},
		"-2147483648": {"\"public\".\"nmsdelivery\" -2147483648: DELETE NEXT RUN by the task deliveries\n"},
		"3":           {"3: no such row\nNo known run"},
	} {
		code, out, errs := r.run(t, "explain nmsdelivery", key)
		for _, part := range says {
			if code != 0 || errs != "" || !strings.Contains(out, part) {
				t.Errorf("%s: %d %s %s\nwithout %q", key, code, out, errs, part)
			}
		}
	}
	if code, _, errs := r.run(t, "run --task deliveries"); code != 0 {
		t.Fatal(errs)
	}
	if code, out, _ := r.run(t, "explain nmsdelivery 1"); code != 0 || !strings.Contains(out, "ROWS OF THE TABLE") ||
		!strings.Contains(out, " deliveries") {
		t.Errorf("%d %s", code, out)
	}
	if code, out, errs := r.run(t, "explain nmsdelivery x"); code != 2 || out != "" ||
		strings.Count(errs, "\n") != 1 {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if code, _, errs := r.run(t, "explain"); code != 2 ||
		!strings.Contains(errs, "the name of one task") {
		t.Errorf("%d %s", code, errs)
	}
}

// explain prints a command that brings a row back from the trash, and the command works.
func TestExplainRowInTheTrash(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 3) i")
	r := startServer(t, "--database-url", db.URL(), "--undo", "72h")
	if code, _, errs := r.run(t, "run --task audit-trail"); code != 0 {
		t.Fatal(errs)
	}
	_, out, errs := r.run(t, "explain xtkaudit 2")
	command := regexp.MustCompile(`(?m)^It is in the trash until 2\S+Z, deleted by the task audit-trail\. ` +
		`To bring it back:\n  cleanupd (trash restore .+)$`).FindStringSubmatch(out)
	if command == nil {
		t.Fatalf("it says %s%s, want the command", out, errs)
	}
	code, out, errs := cleanupd(t, strings.Fields(strings.ReplaceAll(command[1], "'", ""))...)
	if left := db.Strings("SELECT iAuditId::text FROM XtkAudit"); code != 0 || strings.Join(left, " ") != "2" {
		t.Errorf("after %s the rows are %q, want 2: %s%s", command[1], left, out, errs)
	}
	db.Do("ALTER TABLE XtkAudit ADD CONSTRAINT young CHECK (tsChanged > '2020-01-01') NOT VALID")
	run := db.Strings("SELECT id::text FROM cleanupd.run WHERE restore IS NULL")[0]
	if code, out, errs = r.run(t, "trash restore "+run); code != 1 ||
		!strings.Contains(errs, "not restored: 2 rows, which the trash keeps") {
		t.Errorf("a restore that the table refuses ends with %d: %s%s", code, out, errs)
	}
}
