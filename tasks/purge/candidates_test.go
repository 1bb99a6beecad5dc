package purge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// A row counts for all candidates whose condition is true, unless candidates that hide it from these also match; NULL
// is not true. Windows become wider.
func TestSurvey(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(
		"CREATE TABLE t (id int NOT NULL, kind int, d timestamptz, filler text); ALTER TABLE t ALTER filler SET " +
			"STORAGE PLAIN",
	)
	const rows = 9_000 // one a page, so that there are several windows
	db.Do(
		"INSERT INTO t SELECT i, CASE WHEN i % 7 > 0 THEN i % 5 END, timestamptz '2026-01-01' + i * interval '1 "+
			"second', repeat('x', 4500) FROM generate_series(1, $1::int) i",
		rows,
	)
	ids := []int64{2, 4, 8_999}
	candidates := []purge.Candidates{
		{Where: sqlexpr.Format("r.kind = %s", sqlexpr.Arg(1, "")), Key: "id"},
		{Where: sqlexpr.SQL("r.kind IN (1, 2)"), Except: []int{0}},
		{Where: sqlexpr.Format("r.id < %s", sqlexpr.Arg(5_000, "int")), Except: []int{0}, Date: "r.d"},
		{Where: sqlexpr.SQL("r.kind IN (2, 3)"), Except: []int{0, 2}, Date: "r.d"},
		{Where: sqlexpr.OneOf("r.kind", ids), Except: []int{0, 2, 3}},
	}
	is := []string{"kind = 1", "kind IN (1, 2)", "id < 5000", "kind IN (2, 3)", "kind IN (2, 4, 8999)"}
	e, _ := engine(db)
	sums := make([]purge.Tally, len(candidates))
	calls := 0
	if err := e.CountCandidates(
		t.Context(),
		"t",
		`"public"."t"`,
		candidates,
		func(_ context.Context, window []purge.Tally) error {
			calls++
			for i := range window {
				sums[i].Add(window[i])
			}
			return nil
		},
	); err != nil {
		t.Fatal(err)
	}
	if calls < 2 {
		t.Errorf("%d windows were read", calls)
	}
	for i, c := range candidates {
		where := is[i]
		for _, b := range c.Except {
			where += " AND (" + is[b] + ") IS NOT TRUE"
		}
		if want := int64(db.Int("SELECT count(*) FROM t WHERE " + where)); sums[i].Rows != want || want == 0 {
			t.Errorf("candidates %d: %d rows, want %d", i, sums[i].Rows, want)
		}
		if c.Date == "" {
			continue
		}
		var oldest, newest time.Time
		if err := db.QueryRow(t.Context(), fmt.Sprintf("SELECT min(d), max(d) FROM t WHERE %s", where)).
			Scan(&oldest, &newest); err != nil {
			t.Fatal(err)
		}
		if sums[i].Oldest == nil || !sums[i].Oldest.Equal(oldest) || !sums[i].Newest.Equal(newest) {
			t.Errorf("candidates %d: dates from %v to %v, want %v to %v", i, sums[i].Oldest, sums[i].Newest, oldest,
				newest)
		}
	}
	if n := db.Int("SELECT count(*) FROM t WHERE kind = 1 AND id = ANY ($1)", sums[0].Keys); n != purge.SampleSize {
		t.Errorf("the sample of keys is %v", sums[0].Keys)
	}
}
