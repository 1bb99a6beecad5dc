package main

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// Guards are shown and set by their names; a mistake sets none. A refused task runs with a plan that accepts the guard;
// --yes does not accept it.
func TestGuards(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2020-01-01' FROM generate_series(1, 20) i")
	r := startServer(t, "--database-url", db.URL())
	do := func(args ...string) (int, string, string) {
		return cleanupd(t, append(args, "--server", r.grpc)...)
	}
	left := func() int64 { return db.Int("SELECT count(*) FROM XtkAudit WHERE iAuditId > 0") }
	for _, args := range [][]string{
		{},
		{"minRows"},
		{"minRows=x"},
		{"minRows=1.5"},
		{"noSuch=1"},
		{"cutoff=1"},
		{"maxIdle=tomorrow"},
		{"maxSharePercent=101"},
	} {
		if code, out, errs := do(append([]string{"guards", "set"}, args...)...); code != 2 || out != "" ||
			strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: %d %q %q", args, code, out, errs)
		}
	}
	if code, out, errs := do(
		"guards", "set", "minRows=10", "maxIdle=90d", "cutoff=off", "maxGrowth=off", "max_clock_difference=1m30s",
	); code != 0 ||
		errs != "" {
		t.Fatalf("%d %q %q", code, out, errs)
	}
	code, out, _ := do("guards")
	for _, line := range []string{
		"minRows 10 100,000", "maxIdle 90 days 45 days", "cutoff off on", "maxGrowth off 10",
		"maxClockDifference 1m30s 5m0s", "maxTables 5,000 5,000",
	} {
		if code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), line) {
			t.Errorf("%d, %q is not in %s", code, line, out)
		}
	}
	if code, out, _ := do("guards", "set", "cutoff=default", "-o", "json"); code != 0 ||
		!strings.Contains(strings.Join(strings.Fields(out), ""), `"cutoff":true`) {
		t.Errorf("%d %s", code, out)
	}
	if code, _, errs := do("run", "--task", "audit-trail"); code != 1 || !strings.Contains(errs, "this is unusual") ||
		left() != 20 {
		t.Errorf("%d %q", code, errs)
	}
	if code, out, _ := do("guards"); code != 0 ||
		!strings.Contains(
			strings.Join(strings.Fields(out), " "), `audit-trail share "public"."xtkaudit" 11 or more 10 `,
		) {
		t.Errorf("%d %s", code, out)
	}
	code, out, errs := do("run", "--preview", "--yes", "--task", "audit-trail")
	_, command, _ := strings.Cut(strings.TrimSpace(errs), "cleanupd run ")
	if code != 1 || !strings.Contains(out, "The guard share refuses this") || left() != 20 || command == "" {
		t.Fatalf("%d %q %q", code, out, errs)
	}
	if code, _, errs := do("run", "--plan", strings.Fields(command)[1]); code != 1 ||
		!strings.Contains(errs, "Guards refused this plan. To accept it: cleanupd run "+command) {
		t.Errorf("%d %q", code, errs)
	}
	if code, _, errs := do(
		"run", "--plan", strings.Fields(command)[1], "--accept-guard", "share",
	); code != 2 || !strings.Contains(errs, "GUARD,TABLE,NUMBER") ||
		left() != 20 {
		t.Errorf("%d %q", code, errs)
	}
	if code, out, errs := do(
		append([]string{"run"}, strings.Fields(strings.ReplaceAll(command, "'", ""))...)...,
	); code != 0 ||
		left() != 0 {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

// Typing the number of a guard confirms the preview, too; no other question follows.
func TestPreviewThatAGuardRefuses(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2020-01-01' FROM generate_series(1, 20) i")
	r := startServer(t, "--database-url", db.URL())
	if code, _, errs := r.run(t, "guards set minRows=10 cutoff=off maxGrowth=off"); code != 0 {
		t.Fatal(errs)
	}
	for answer, want := range map[string]int64{" ": 20, "20": 0} {
		code, shown := onTerminal(t, answer, "run", "--preview", "--task", "audit-trail", "--server", r.grpc)
		left := db.Int("SELECT count(*) FROM XtkAudit WHERE iAuditId > 0")
		if (code == 0) != (left == 0) || left != want || strings.Contains(shown, "[y/N]") ||
			!strings.Contains(shown, "20 rows would be deleted") || !strings.Contains(shown, "cannot be undone") {
			t.Errorf("%q: %d, %d rows are left: %s", answer, code, left, shown)
		}
		if left == 0 {
			db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2020-01-01' FROM generate_series(1, 20) i")
		}
	}
}
