package purge_test

import (
	"context"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func counted(t *testing.T, db *pgtest.DB, s purge.Sweep) (n int64) {
	t.Helper()
	e, _ := engine(db)
	if err := e.Count(t.Context(), s, func(_ context.Context, rows int64) error { n += rows; return nil }); err != nil {
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
		t.Errorf("%d rows are left of 1000", n)
	}
}

func TestEstimate(t *testing.T) {
	t.Parallel()
	db := rows(t, 10_000)
	e, _ := engine(db)
	if _, ok, err := e.Estimate(t.Context(), obsolete); ok || err != nil {
		t.Errorf("an estimate for a table that was never analyzed (%v)", err)
	}
	db.Do("ANALYZE t")
	n, ok, err := e.Estimate(t.Context(), obsolete)
	if err != nil || !ok || n < 4_000 || n > 6_000 {
		t.Errorf("estimated %d rows (%t, %v), want about 5000", n, ok, err)
	}
}
