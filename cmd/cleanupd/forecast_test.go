package main

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// The table of sequences says how many it leaves out.
func TestForecastOfManySequences(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`DO $$ BEGIN FOR i IN 1..14 LOOP
		EXECUTE format('CREATE SEQUENCE q%s; SELECT nextval(''q%1$s'')', i);
	END LOOP; END $$`)
	r := startServer(t, "--database-url", db.URL())
	code, out, errs := r.run(t, "forecast")
	if code != 0 || strings.Count(out, "public.q") != 10 ||
		!strings.HasSuffix(out, "\nand 4 more: cleanupd forecast -o json\n") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// The forecast says how many tasks it leaves out because they have no rows to delete.
func TestForecastOfIdleTasks(t *testing.T) {
	t.Parallel()
	f := newPolicyFiles(t)
	f.db.Do("DELETE FROM orders")
	if code, _, errs := f.do("apply", f.file(twoPolicies), "--yes"); code != 0 {
		t.Fatal(errs)
	}
	if code, out, errs := f.run(t, "forecast"); code != 0 || !strings.Contains(out, "\nand 2 tasks with nothing due: ") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}
