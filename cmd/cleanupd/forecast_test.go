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
