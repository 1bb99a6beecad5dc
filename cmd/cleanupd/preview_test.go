package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// run --preview shows what would be deleted, and deletes exactly that; run --plan deletes what an earlier dry run
// found.
func TestRunPreview(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	insert := "INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 30) i"
	db.Do(insert)
	left := func() int64 { return db.Int("SELECT count(*) FROM XtkAudit") }
	r := startServer(t, "--database-url", db.URL())
	if code, _, errs := r.run(t, "run --preview"); code != 2 || !strings.Contains(errs, "--yes") ||
		left() != 30 {
		t.Errorf("without anybody to ask: %d %s", code, errs)
	}
	code, out, errs := r.run(t, "run --preview --yes --task audit-trail --undo 72h")
	if code != 0 || !regexp.MustCompile(`"public"."xtkaudit" +delete +30 `).MatchString(out) ||
		!strings.Contains(out, "30 rows would be deleted") ||
		!strings.Contains(out, "30 rows deleted") ||
		!strings.Contains(out, "The trash would need about") || strings.Count(out, "Undo until") != 1 ||
		left() != 0 {
		t.Errorf("%d %s %s", code, out, errs)
	}
	db.Do(insert)
	_, out, _ = r.run(t, "run --dry-run --task audit-trail")
	id := regexp.MustCompile(`Dry run (\S+) started`).FindStringSubmatch(out)
	if id == nil {
		t.Fatal(out)
	}
	if code, _, errs := r.run(t, "run --plan", id[1], "--task", "audit-trail"); code != 2 ||
		left() != 30 {
		t.Errorf("a plan with a task: %d %s", code, errs)
	}
	if code, out, errs := r.run(t, "run --plan", id[1]); code != 0 || left() != 0 {
		t.Errorf("a plan: %d %s %s", code, out, errs)
	}
	if code, _, errs := r.run(t, "run --plan", id[1]); code != 1 ||
		!strings.Contains(errs, "no longer holds") {
		t.Errorf("a plan that was done: %d %s", code, errs)
	}
}

// serveOldRows starts a server with a policy for the old rows of each table, and guards for small tables.
func serveOldRows(t *testing.T, db *pgtest.DB, tables ...string) *replica {
	t.Helper()
	r := startServer(t, "--database-url", db.URL())
	policies := "policies:\n"
	for _, table := range tables {
		policies += fmt.Sprintf("- {name: %[1]s, table: %[1]s, enabled: true, olderThan: {column: at, days: 30}}\n", table)
	}
	file := (&policyFiles{T: t, dir: t.TempDir()}).file(policies)
	if code, _, errs := r.run(t, "policies apply --yes", file); code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := r.run(t, "guards set minRows=10 cutoff=off maxGrowth=off"); code != 0 {
		t.Fatal(errs)
	}
	return r
}

// A task that undo would refuse is left out of a preview, so that it does not hide its rows from later tasks. The
// refusal is printed once.
func TestPreviewLeavesOutWhatCannotBeUndone(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE a (id int PRIMARY KEY, at timestamptz, other timestamptz);
		CREATE TABLE a_reply (id int PRIMARY KEY, a int REFERENCES a ON DELETE CASCADE,
			above int REFERENCES a_reply ON DELETE SET NULL);
		CREATE TABLE b (a int, at timestamptz);
		INSERT INTO a SELECT i, '2020-01-01' FROM generate_series(1, 5) i;
		INSERT INTO b SELECT i, '2020-01-01' FROM generate_series(1, 7) i`)
	r := serveOldRows(t, db, "a", "b")
	const why = "a run with undo would be refused: "
	code, out, errs := r.run(t, "run --dry-run --undo 1h")
	if code != 0 || strings.Count(out+errs, why) != 1 {
		t.Errorf("the dry run ends with %d, and not one refusal: %s%s", code, out, errs)
	}
	code, out, errs = r.run(t, "run --preview --yes --undo 1h")
	if code != 1 || !strings.Contains(errs, "policy/a is left out: "+why) || !strings.Contains(out, "7 rows deleted") ||
		!strings.Contains(errs, "left out, for the reasons above: policy/a") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if left := db.Strings("SELECT (SELECT count(*) FROM a) || ' ' || (SELECT count(*) FROM b)")[0]; left != "5 0" {
		t.Errorf("%s rows of a and b are left, want 5 0", left)
	}
}

// A policy for which the role lacks a right is not part of the total that the user approves.
func TestPreviewLeavesOutWhatTheRoleMayNotDo(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE a (id int PRIMARY KEY, at timestamptz); CREATE TABLE b (LIKE a INCLUDING ALL);
		INSERT INTO a SELECT i, '2020-01-01' FROM generate_series(1, 5) i; INSERT INTO b SELECT * FROM a`)
	r := serveOldRows(t, db, "a", "b")
	db.Do("REVOKE DELETE ON b FROM CURRENT_USER")
	code, out, errs := r.run(t, "run --preview --yes --task policy/a --task policy/b")
	if code != 1 || !strings.Contains(out, "Total: 5 rows deleted") || !strings.Contains(errs, "policy/b is left out: ") ||
		strings.Count(out+errs, `GRANT DELETE ON "public"."b"`) != 2 { // in the first dry run, and as the reason
		t.Errorf("%d: %s%s", code, out, errs)
	}
}

// Policies do not depend on each other: one that fails in the preview, or that guards refuse, is left out, and the
// others run. The exit status and the last line say that it was left out.
func TestPreviewLeavesOutPolicies(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE a (id int PRIMARY KEY, at timestamptz); CREATE TABLE b (LIKE a INCLUDING ALL);
		CREATE TABLE c (LIKE a INCLUDING ALL)`)
	r := serveOldRows(t, db, "a", "b", "c")
	db.Do("REVOKE SELECT ON b FROM CURRENT_USER")
	for _, test := range []struct {
		command, answer string
		code            int
		left            string // rows of a and c
		out, errs       []string
	}{
		{
			command: "run --dry-run", code: 1, left: "5 20",
			errs: []string{"tasks that failed: cleanupd run --dry-run --skip-task policy/b --server " + r.grpc + "\n"},
		},
		{
			command: "run", code: 1, left: "5 20",
			errs: []string{
				"cleanupd: task policy/a failed: ", "\ncleanupd: task policy/b failed: ", "\ncleanupd: task policy/c failed: ",
			},
		},
		{
			command: "run --dry-run --task policy/b --skip-task policy/c", code: 1, left: "5 20",
		},
		{
			command: "run --preview --yes --task policy/b", code: 1, left: "5 20",
			errs: []string{"GRANT SELECT"},
		},
		{
			command: "run --preview --yes", code: 1, left: "0 20",
			out: []string{"5 rows deleted"},
			errs: []string{
				"policy/b is left out: ", "GRANT SELECT", `policy/c is left out: The guard share refuses this for "public"."c"`,
				"cleanupd run --preview --task policy/c --server " + r.grpc + " asks.\n",
				"\ncleanupd: left out, for the reasons above: policy/b, policy/c\n",
			},
		},
		{
			command: "run --preview --task policy/a --task policy/b", answer: "y\r", code: 1, left: "0 20",
			out: []string{
				"policy/b is left out: ", "5 rows would be deleted", "5 rows deleted", "left out, for the reasons above: policy/b",
			},
		},
		{
			command: "run --preview --task policy/a --task policy/b", answer: "n\r", code: 1, left: "5 20",
			out: []string{"nothing was run", "left out, for the reasons above: policy/b"},
		},
		{command: "run --preview --yes --task policy/a", left: "0 20"},
	} {
		db.Do(`TRUNCATE a, c; INSERT INTO a SELECT i, '2020-01-01' FROM generate_series(1, 5) i;
			INSERT INTO a SELECT i, now() FROM generate_series(6, 99) i;
			INSERT INTO c SELECT i, '2020-01-01' FROM generate_series(1, 20) i`)
		var code int
		var out, errs string
		if test.answer == "" {
			code, out, errs = r.run(t, test.command)
		} else {
			code, out = onTerminal(t, test.answer, append(strings.Fields(test.command), "--server", r.grpc)...)
			out = strings.ReplaceAll(out, "\r", "")
		}
		left := db.Strings("SELECT (SELECT count(*) FROM a WHERE id <= 5) || ' ' || (SELECT count(*) FROM c)")[0]
		if code != test.code || left != test.left {
			t.Errorf("%s: %d, %s rows are left: %s %s", test.command, code, left, out, errs)
		}
		for _, text := range test.out {
			if !strings.Contains(out, text) {
				t.Errorf("%s: %q is not in %s", test.command, text, out)
			}
		}
		for _, text := range test.errs {
			if !strings.Contains(errs, text) {
				t.Errorf("%s: %q is not in %s", test.command, text, errs)
			}
		}
	}
	_, ids, _ := r.run(t, "runs --state failed -o json")
	id := regexp.MustCompile(`"id": *"(\S+)"`).FindStringSubmatch(ids)[1]
	if _, shown, _ := r.run(t, "runs show", id); strings.Count(shown, "GRANT SELECT") != 1 {
		t.Errorf("the error of a task is not shown once: %s", shown)
	}
	_, listed, _ := r.run(t, "runs --state failed")
	for line := range strings.Lines(listed) {
		if len(line) > 230 {
			t.Errorf("a long line: %s", line)
		}
	}
	_, out, _ := r.run(t, "run --dry-run")
	id = regexp.MustCompile(`Dry run (\S+) started`).FindStringSubmatch(out)[1]
	if code, _, errs := r.run(t, "run --plan", id); code != 2 || !strings.HasSuffix(errs,
		"in this one policy/b failed: make one without (skip_tasks; cleanupd run --dry-run --skip-task policy/b)\n") {
		t.Errorf("%d %s", code, errs)
	}
}
