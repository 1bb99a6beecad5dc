package purge_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// The oldest row is found by an index or the statistics, without the zero record, and never by reading the table.
func TestOldest(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do(`CREATE TABLE t (id int PRIMARY KEY, at timestamptz, other int);
		INSERT INTO t VALUES (0, '1970-01-01', 0);
		INSERT INTO t SELECT i, '2020-01-01'::timestamptz + i * interval '1 minute', 0 FROM generate_series(1, 20000) i;
		INSERT INTO t VALUES (-1, NULL, 0), (-2, '-infinity', 0); CREATE TABLE empty (LIKE t);
			CREATE TABLE old (at timestamptz); INSERT INTO old VALUES ('2020-01-01'), ('2020-01-01')`)
	first := time.Date(2020, 1, 1, 0, 1, 0, 0, time.UTC)
	oldest := func(relation string, o purge.Older, gone time.Time) (date *time.Time, err error) {
		err = pgx.BeginFunc(t.Context(), db.Pool,
			func(tx pgx.Tx) error { date, err = o.Oldest(t.Context(), tx, relation, gone); return err })
		return date, err
	}
	// The statistics have a hundredth of the dates, so that the first one is not the oldest.
	want := func(name string, gone, want time.Time) {
		t.Helper()
		if got, err := oldest("t", purge.Older{Column: "at", Key: "id"}, gone); err != nil || got == nil ||
			got.Sub(want).Abs() > 4*time.Hour {
			t.Errorf("%s: %v, %v, want %s", name, got, err, want)
		}
	}
	if got, err := oldest("t", purge.Older{Column: "at", Key: "id"}, time.Time{}); !errors.Is(err, purge.ErrNotKnown) {
		t.Errorf("never analyzed: %v, %v", got, err)
	}
	db.Do("ANALYZE t")
	want("by the statistics", time.Time{}, first)
	week := first.Add(7 * 24 * time.Hour)
	want("by the statistics, after a deletion", week, week)
	db.Do("CREATE INDEX at_last ON t (other, at)")
	db.Do("CREATE INDEX at_partial ON t (at) WHERE id > 10000")
	want("by the statistics, with other indexes", week, week)
	db.Do("CREATE INDEX at_first ON t (at, id)")
	want("by the index", week, first)
	if plan := strings.Join(
		db.Strings(
			"EXPLAIN SELECT min(r.at)::timestamptz FROM ONLY t AS r WHERE r.id IS DISTINCT FROM 0 AND isfinite(r.at)"),
		"\n",
	); !strings.Contains(plan, "using at_first") {
		t.Errorf("the index is not used: %s", plan)
	}
	db.Do("ANALYZE old; DELETE FROM old")
	db.Do("VACUUM (TRUNCATE false) old")
	for _, relation := range []string{"empty", "old"} {
		if got, err := oldest(relation, purge.Older{Column: "at"}, time.Time{}); err != nil || got != nil {
			t.Errorf("%s: %v, %v", relation, got, err)
		}
	}
}
