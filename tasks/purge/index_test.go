package purge_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// dated creates a table of n rows, part percent of them old, and returns the sweep of the old ones.
func dated(t *testing.T, n, part int, dateType string) (*pgtest.DB, purge.Sweep) {
	t.Helper()
	db := pgtest.Empty(t)
	db.Do(
		"CREATE TABLE t (id int PRIMARY KEY, parent int NOT NULL, ts " + dateType + ", rest text); CREATE INDEX ON t " +
			"(ts); CREATE INDEX ON t (parent)",
	)
	db.Do(
		"INSERT INTO t SELECT i, i / 100, CASE WHEN hashint4(i) % 100 BETWEEN 1 - $2::int AND 0 THEN "+
			"'2020-01-01'::timestamptz + i * interval '1 s' WHEN i % 7 > 0 THEN '2030-01-01' END, repeat('x', 200) "+
			"FROM generate_series(1, $1::int) i",
		n,
		part*2,
	)
	db.Do("ANALYZE t")
	cutoff := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	return db, purge.Sweep{
		Unit:     "1",
		Name:     "t",
		Relation: `"public"."t"`,
		Root:     `"public"."t"`,
		Where:    sqlexpr.Format("r.ts < %s", sqlexpr.Arg(cutoff, "timestamptz")),
		Limit:    100,
		Older:    &purge.Older{Column: "ts", Than: cutoff},
	}
}

const countOld = "SELECT count(*) FROM t WHERE ts < '2025-01-01'"

// Few obsolete rows are found by an index; if there are many, or no index helps, the table is swept. All obsolete rows
// are deleted either way.
func TestScanMethodIsChosen(t *testing.T) {
	t.Parallel()
	const byIndex, byTable = "index t_ts_idx", "table"
	for _, c := range []struct {
		name     string
		n, part  int
		dateType string
		change   string
		want     string
	}{
		{"little", 50_000, 2, "timestamptz", "", byIndex},
		{"little of a small table", 20_000, 2, "timestamptz", "", byTable},
		{"much", 50_000, 50, "timestamptz", "", byTable},
		{"no index", 50_000, 2, "timestamptz", "DROP INDEX t_ts_idx", byTable},
		{
			"an index of the other rows", 50_000, 2, "timestamptz",
			"DROP INDEX t_ts_idx; CREATE INDEX ON t (ts) WHERE ts > '2029-01-01'", byTable,
		},
		{"no time zone", 50_000, 2, "timestamp", "", byIndex},
		{"older than all dates", 50_000, 2, "timestamptz", "UPDATE t SET ts = '-infinity' WHERE id = 1", byIndex},
		{"many of one date", 50_000, 2, "timestamptz", "UPDATE t SET ts = '2021-01-01' WHERE id <= 5000", byIndex},
		{"nothing", 50_000, 0, "timestamptz", "", byIndex},
		{"some of each block", 50_000, 8, "timestamptz", "", byTable},
		{
			"all of some blocks",
			50_000,
			0,
			"timestamptz",
			"UPDATE t SET ts = '2021-01-01'::timestamptz + hashint4(id) " +
				"* interval '1 ms' WHERE id BETWEEN 10000 AND 14000; CLUSTER t USING t_pkey; ANALYZE t",
			byIndex,
		},
		{
			"some large rows of each block",
			50_000,
			4,
			"timestamptz",
			"ALTER TABLE t ALTER rest SET STORAGE PLAIN; " +
				"UPDATE t SET rest = repeat('x', 2500); CLUSTER t USING t_pkey; ANALYZE t",
			byIndex,
		},
		{"all large rows of some blocks", 50_000, 0, "timestamptz", `ALTER TABLE t ALTER rest
			SET STORAGE PLAIN; UPDATE t SET rest = repeat('x', 2500), ts = CASE WHEN id BETWEEN 9000
			AND 12000 THEN '2021-01-01'::timestamptz + hashint4(id) * interval '1 ms' ELSE ts END;
			CLUSTER t USING t_pkey; ANALYZE t`, byIndex},
		{"all of some blocks, and some elsewhere", 50_000, 0, "timestamptz", `UPDATE t
			SET ts = '2021-01-01'::timestamptz + hashint4(id) * interval '1 ms' WHERE id BETWEEN 10000 AND 14000;
			UPDATE t SET ts = '2021-01-01' WHERE id IN (1, 9000, 49999); CLUSTER t USING t_pkey; ANALYZE t`, byIndex},
	} {
		t.Run(c.name, func(t *testing.T) {
			suite.Except(t, suite.Long, "little", "little of a small table", "much", "no index",
				"nothing", "all of some blocks")
			t.Parallel()
			db, s := dated(t, c.n, c.part, c.dateType)
			if c.change != "" {
				db.Do(c.change)
			}
			obsolete := db.Int(countOld)
			e, a := engine(db)
			e.Workers = 3
			if _, err := e.Sweep(t.Context(), s, purge.Cursor{}); err != nil {
				t.Fatal(err)
			}
			if left := db.Int(countOld); left != 0 || a.deleted() != obsolete || a.biggest() > 100 {
				t.Errorf("%d obsolete rows remain; deleted %d of %d, at most %d at once", left, a.deleted(), obsolete,
					a.biggest())
			}
			if text, _ := a.scan.MarshalText(); string(text) != c.want {
				t.Errorf("the rows are found by %q, want %q", text, c.want)
			}
			if c.want == byIndex &&
				slices.ContainsFunc(a.batches, func(d purge.Delta) bool { return d.Cursor.Place > 0 }) {
				t.Error("a cursor has a position, though not everything below it is done")
			}
		})
	}
}

// Rows that are close together are counted beforehand, and searched for elsewhere only if fewer were deleted. The zero
// record, which is old, is neither deleted nor counted.
func TestRowsOutsideTheSampleAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   string
		searches int64
	}{
		"nothing elsewhere": {"SELECT", 0},
		"some elsewhere":    {"UPDATE t SET ts = '2021-01-01' WHERE id IN (1, 9000, 49999)", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := dated(t, 50_000, 0, "timestamptz")
			db.Do(
				"UPDATE t SET ts = '2021-01-01'::timestamptz + hashint4(id) * interval '1 ms' WHERE id BETWEEN 10000 " +
					"AND 14000; INSERT INTO t VALUES (0, 0, '2020-01-01')",
			)
			db.Do(c.change)
			db.Do("CLUSTER t USING t_pkey; ANALYZE t")
			s.Where = sqlexpr.Format("%s AND r.id IS DISTINCT FROM 0", s.Where)
			s.Older.Key = "id"
			e, a := engine(db)
			searched := &tracer{text: "min(r.ctid)"}
			config := db.Config()
			config.ConnConfig.Tracer = searched
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			e.Pool = pool
			obsolete := db.Int(countOld + " AND id <> 0")
			if _, err := e.Sweep(t.Context(), s, purge.Cursor{}); err != nil {
				t.Fatal(err)
			}
			if left := db.Strings("SELECT id::text FROM t WHERE ts < '2025-01-01'"); a.deleted() != obsolete ||
				!slices.Equal(left, []string{"0"}) {
				t.Errorf("deleted %d of %d rows; %v remain", a.deleted(), obsolete, left)
			}
			if searches := searched.queries.Load(); searches != c.searches {
				t.Errorf("%d searches, want %d", searches, c.searches)
			}
		})
	}
}

type tracer struct {
	text    string
	queries atomic.Int64
}

func (r *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, r.text) {
		r.queries.Add(1)
	}
	return ctx
}

func (r *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Rows found by an index are deleted: a limited number at a time, one at a time, and by their parents.
func TestFoundRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(e *purge.Engine, s *purge.Sweep)
	}{
		{"part by part", func(e *purge.Engine, _ *purge.Sweep) { e.FindAtOnce(300) }},
		{"single rows", func(e *purge.Engine, _ *purge.Sweep) { e.MaxRows = 1 }},
		{"by their parents", func(_ *purge.Engine, s *purge.Sweep) {
			s.Where = sqlexpr.Format("%s AND ts < '2025-01-01'", sqlexpr.OneOf("r.parent", []int64{3, 77, 450}))
			s.Older = nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db, s := dated(t, 50_000, 2, "timestamptz")
			e, a := engine(db)
			c.change(e, &s)
			where, args := s.Where.Build()
			obsolete := db.Int("SELECT count(*) FROM t AS r WHERE "+where, args...)
			all := db.Int("SELECT count(*) FROM t")
			if _, err := e.Sweep(t.Context(), s, purge.Cursor{}); err != nil {
				t.Fatal(err)
			}
			if a.deleted() != obsolete || obsolete == 0 || db.Int("SELECT count(*) FROM t") != all-obsolete {
				t.Errorf("deleted %d of %d rows", a.deleted(), obsolete)
			}
		})
	}
}

// A worker that takes over finds the remaining rows.
func TestFoundRowsAfterAnotherWorker(t *testing.T) {
	t.Parallel()
	db, s := dated(t, 50_000, 2, "timestamptz")
	e, a := engine(db)
	stop := errors.New("stop")
	a.before = func(*pgx.Batch) error {
		if a.deleted() > 300 {
			return stop
		}
		return nil
	}
	if _, err := e.Sweep(t.Context(), s, purge.Cursor{}); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	a.before = nil
	before, obsolete := a.deleted(), db.Int(countOld)
	if _, err := e.Sweep(t.Context(), s, a.batches[len(a.batches)-1].Cursor); err != nil {
		t.Fatal(err)
	}
	if a.deleted()-before != obsolete || db.Int(countOld) != 0 {
		t.Errorf("deleted %d of %d rows", a.deleted()-before, obsolete)
	}
}

// A row that the application changed after it was found is judged by its new state, even if it has moved; a locked row
// is retained and counted.
func TestFoundRowsAreJudgedAgain(t *testing.T) {
	t.Parallel()
	db, s := dated(t, 50_000, 2, "timestamptz")
	ids := db.Strings("SELECT id::text FROM t WHERE ts < '2025-01-01' ORDER BY ctid DESC LIMIT 3")
	db.Hold("SELECT FROM t WHERE id = $1::text::int FOR UPDATE", ids[0])
	e, a := engine(db)
	e.LockTimeout = 100 * time.Millisecond
	obsolete := db.Int(countOld)
	changed := false
	a.before = func(*pgx.Batch) error {
		if !changed {
			changed = true
			db.Do("UPDATE t SET rest = rest || 'moved' WHERE id = $1::text::int", ids[1])
			db.Do("UPDATE t SET ts = '2030-01-01' WHERE id = $1::text::int", ids[2])
		}
		return nil
	}
	result, err := e.Sweep(t.Context(), s, purge.Cursor{})
	if err != nil || result.Locked != 1 || result.TableLocked {
		t.Errorf("%+v, %v", result, err)
	}
	if a.deleted() != obsolete-2 || db.Int("SELECT count(*) FROM t WHERE id = ANY ($1::text[]::int[])", ids) != 2 {
		t.Errorf("deleted %d of %d", a.deleted(), obsolete)
	}
}

// A locked row that the owner of the lock deletes before the next search does not count as retained.
func TestLockedRowThatOthersDelete(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do("CREATE TABLE t (id int PRIMARY KEY, old bool NOT NULL, filler text)")
	db.Do(
		"INSERT INTO t SELECT i, i % 2000 = 0, repeat('x', 300) FROM generate_series(1, 60000) i; CREATE INDEX ON t " +
			"(id) WHERE old; ANALYZE t",
	)
	tx := db.Hold("DELETE FROM t WHERE id = 2000")
	e, a := engine(db)
	e.LockTimeout = 20 * time.Millisecond
	a.after = func(d purge.Delta) {
		if a.deleted()+d.Deleted == 29 { // all others
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	if result, err := e.Sweep(t.Context(), obsolete, purge.Cursor{}); err != nil || !reflect.DeepEqual(
		result, purge.Result{},
	) || a.deleted() != 29 ||
		db.Int("SELECT count(*) FROM t WHERE old") != 0 {
		t.Errorf("result %+v, error %v, deleted %d", result, err, a.deleted())
	}
}

// The index by which a condition reads other rows of the table does not find the rows of the sweep.
func TestIndexOfASubquery(t *testing.T) {
	t.Parallel()
	db, s := dated(t, 50_000, 2, "timestamptz")
	db.Do("CREATE INDEX newest ON t (parent, ts)")
	s.Older = nil
	s.Where = sqlexpr.SQL("r.ts < (SELECT n.ts FROM t AS n WHERE n.parent = r.parent AND n.ts IS NOT NULL " +
		"ORDER BY n.ts DESC OFFSET 4 LIMIT 1)")
	e, _ := engine(db)
	scan, err := e.Scan(t.Context(), s)
	if err != nil || scan.Method != purge.TableScan {
		t.Errorf("%v, %v", scan, err)
	}
}

// Failing rows, which are not searched for again, do not hide locked ones.
func TestFoundRowsThatFailOrAreLocked(t *testing.T) {
	t.Parallel()
	db, s := dated(t, 50_000, 2, "timestamptz")
	ids := db.Strings("SELECT id::text FROM t WHERE ts < '2025-01-01' ORDER BY ctid DESC LIMIT 6")
	db.Do("CREATE TABLE child (id int REFERENCES t); CREATE INDEX ON child (id)")
	db.Do("INSERT INTO child SELECT unnest($1::text[])::int", ids[2:])
	db.Hold("SELECT FROM t WHERE id = ANY ($1::text[]::int[]) FOR UPDATE", ids[:2])
	e, a := engine(db)
	e.LockTimeout = 50 * time.Millisecond
	result, err := e.Sweep(t.Context(), s, purge.Cursor{})
	if err != nil || result.Retained != (purge.Retained{Failed: 4, Kept: 4, Locked: 2}) ||
		a.scan.Method != purge.IndexScan {
		t.Errorf("%+v, %v, %v", result, err, a.scan)
	}
}
