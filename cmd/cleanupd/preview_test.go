package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// run --preview shows what would be deleted, and deletes exactly that; run --plan does what an earlier dry run found.
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
		!strings.Contains(errs, "does not hold any longer") {
		t.Errorf("a plan that was done: %d %s", code, errs)
	}
}
