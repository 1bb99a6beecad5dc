package purge_test

import (
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// BenchmarkPartition drops a partition of a million rows, and deletes its rows, for comparison.
func BenchmarkPartition(b *testing.B) {
	cutoff := time.Date(2020, 2, 1, 0, 0, 0, 0, time.UTC)
	sweep := purge.Sweep{
		Unit:     "1",
		Name:     "t_01",
		Relation: "t_01",
		Root:     "t",
		Where:    sqlexpr.Format("r.ts < %s AND r.id IS DISTINCT FROM 0", sqlexpr.Arg(cutoff, "timestamptz")),
		Limit:    5_000,
	}
	for name, older := range map[string]*purge.Older{"drop": {Column: "ts", Than: cutoff, Key: "id"}, "delete": nil} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				db := pgtest.Empty(b)
				db.Do(`CREATE TABLE t (id int NOT NULL, ts timestamptz, parent int, rest text) PARTITION BY RANGE (ts);
					CREATE TABLE t_01 PARTITION OF t FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
					CREATE INDEX ON t (id); CREATE INDEX ON t (ts); CREATE INDEX ON t (parent)`)
				db.Do(
					"INSERT INTO t SELECT i, '2020-01-01Z'::timestamptz + i * interval '1 s', i, repeat('x', 50) " +
						"FROM generate_series(1, 1000000) i",
				)
				db.Do("VACUUM ANALYZE t_01")
				e, a := engine(db)
				e.Workers = 2
				s := sweep
				s.Older, s.Partition = older, true
				b.StartTimer()
				if _, err := e.Sweep(b.Context(), s, purge.Cursor{}); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if a.deleted() != 1_000_000 {
					b.Fatalf("%d rows", a.deleted())
				}
				b.StartTimer()
			}
		})
	}
}
