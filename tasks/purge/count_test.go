package purge_test

import (
	"context"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

func counted(t *testing.T, db *pgtest.DB, s purge.Sweep) (n int64) {
	t.Helper()
	e, _ := engine(db)
	if err := e.Count(t.Context(), s, func(_ context.Context, found purge.Tally) error {
		n += found.Rows + found.Paired
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCountChangesNothing(t *testing.T) {
	t.Parallel()
	db := rows(t, 1_000)
	if n := counted(t, db, obsolete); n != 500 {
		t.Errorf("counted %d rows, want 500", n)
	}
	if n := db.Int("SELECT count(*) FROM t"); n != 1_000 {
		t.Errorf("%d rows remain of 1000", n)
	}
}

// A small table is counted. For a large one the planner estimates, or a sample is counted if the planner cannot.
func TestEstimate(t *testing.T) {
	t.Parallel()
	small, large := rows(t, 10_000), rows(t, 300_000)
	large.Do("CREATE TABLE other (id int); INSERT INTO other SELECT generate_series(1, 100000)")
	orphans := obsolete
	orphans.Where = sqlexpr.SQL("old AND NOT EXISTS (SELECT FROM other AS o WHERE o.id = r.id)")
	orphans.ReadsOthers = true
	for _, c := range []struct {
		name     string
		db       *pgtest.DB
		sweep    purge.Sweep
		analyze  bool
		known    bool
		from, to int64
	}{
		{"small", small, obsolete, false, true, 5_000, 5_000},
		{"never analyzed", large, obsolete, false, false, 0, 0},
		{"sampled", large, orphans, false, true, 85_000, 115_000},
		{"planned", large, obsolete, true, true, 140_000, 160_000},
	} {
		if c.analyze {
			c.db.Do("ANALYZE t")
		}
		e, _ := engine(c.db)
		n, known, err := e.Estimate(t.Context(), c.sweep, c.sweep)
		if err != nil || known != c.known || len(n) != 2 || n[0] < c.from || n[1] > c.to {
			t.Errorf("%s: estimated %d rows (%t, %v), want %d to %d", c.name, n, known, err, c.from, c.to)
		}
	}
}
