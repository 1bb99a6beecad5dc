package purge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Several workers take what one would, no more at once than they may, and whatever the cursor says is done is done.
func TestWorkersShareALargeTable(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do("CREATE TABLE t (id int PRIMARY KEY, old bool NOT NULL, filler text); ALTER TABLE t ALTER filler SET STORAGE PLAIN")
	const n = 40_000 // four a block: 80 MiB
	db.Do("INSERT INTO t SELECT i, i % 2 = 0, repeat('x', 1900) FROM generate_series(1, $1::int) i", n)
	e, a := engine(db)
	e.Workers = 4
	a.after = func(d purge.Delta) {
		if left := db.Int(fmt.Sprintf("SELECT count(*) FROM t WHERE old AND ctid < '(%d,0)'", d.Cursor.Place)); left != 0 {
			t.Errorf("%d obsolete rows stand below the cursor %d", left, d.Cursor.Place)
		}
	}
	s := obsolete
	s.Limit = 50
	if _, err := e.Run(t.Context(), s, purge.Cursor{}); err != nil {
		t.Fatal(err)
	}
	if a.deleted() != n/2 || a.biggest() > 50 || db.Int("SELECT count(*) FROM t") != n/2 {
		t.Errorf("deleted %d rows, at most %d at once; %d are left", a.deleted(), a.biggest(), db.Int("SELECT count(*) FROM t"))
	}
}

// One of several workers that is to stop stops all, and what was committed is accounted for.
func TestWorkersStopTogether(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do("CREATE TABLE t (id int PRIMARY KEY, old bool NOT NULL, filler text); ALTER TABLE t ALTER filler SET STORAGE PLAIN")
	db.Do("INSERT INTO t SELECT i, true, repeat('x', 3900) FROM generate_series(1, 20000) i")
	e, a := engine(db)
	e.Workers = 2
	stop := errors.New("stop")
	commit := e.Commit
	e.Commit = func(ctx context.Context, tx pgx.Tx, d purge.Delta) error {
		if a.deleted() > 500 {
			return stop
		}
		return commit(ctx, tx, d)
	}
	s := obsolete
	s.Limit = 50
	if _, err := e.Run(t.Context(), s, purge.Cursor{}); !errors.Is(err, stop) {
		t.Fatalf("got %v", err)
	}
	if gone := 20_000 - db.Int("SELECT count(*) FROM t"); gone != a.deleted() || gone == 0 {
		t.Errorf("%d rows went, %d are accounted for", gone, a.deleted())
	}
}

// dated makes a table of n rows, of which the part in percent is old, and the sweep of these.
func dated(t *testing.T, n, part int, dateType string) (*pgtest.DB, purge.Sweep) {
	t.Helper()
	db := pgtest.Empty(t)
	db.Do("CREATE TABLE t (id int PRIMARY KEY, parent int NOT NULL, ts " + dateType + ", rest text); CREATE INDEX ON t (ts); CREATE INDEX ON t (parent)")
	db.Do("INSERT INTO t SELECT i, i / 100, CASE WHEN hashint4(i) % 100 BETWEEN 1 - $2::int AND 0 THEN '2020-01-01'::timestamptz + i * interval '1 s' WHEN i % 7 > 0 THEN '2030-01-01' END, repeat('x', 200) FROM generate_series(1, $1::int) i", n, part*2)
	db.Do("ANALYZE t")
	cutoff := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	return db, purge.Sweep{Unit: "1", Name: "t", Relation: `"public"."t"`, Where: "r.ts < $1::timestamptz", Args: []any{cutoff}, Limit: 100,
		Along: &purge.Along{Column: "ts", Dates: true, To: cutoff.UnixMicro() + 1}}
}

// along is the column that the batches walked along.
func (a *account) along() string {
	for _, d := range a.batches {
		if d.Cursor.Along != "" {
			return d.Cursor.Along
		}
	}
	return ""
}

// Where little goes an index is walked; where much goes, or no index helps, the table is swept. All that is obsolete
// goes either way.
func TestTheWayIsChosen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		n, part  int
		dateType string
		change   string
		want     string
	}{
		{"little", 50_000, 2, "timestamptz", "", "ts"},
		{"little of a small table", 20_000, 2, "timestamptz", "", ""},
		{"much", 50_000, 50, "timestamptz", "", ""},
		{"no index", 50_000, 2, "timestamptz", "DROP INDEX t_ts_idx", ""},
		{"an index of the rest", 50_000, 2, "timestamptz", "DROP INDEX t_ts_idx; CREATE INDEX ON t (ts) WHERE ts > '2029-01-01'", ""},
		{"no time zone", 50_000, 2, "timestamp", "", ""},
		{"older than all dates", 50_000, 2, "timestamptz", "UPDATE t SET ts = '-infinity' WHERE id = 1", ""},
		{"many of one date", 50_000, 2, "timestamptz", "UPDATE t SET ts = '2021-01-01' WHERE id <= 5000", "ts"},
		{"nothing", 50_000, 0, "timestamptz", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db, s := dated(t, c.n, c.part, c.dateType)
			if c.change != "" {
				db.Do(c.change)
			}
			obsolete := db.Int("SELECT count(*) FROM t WHERE ts < '2025-01-01'")
			e, a := engine(db)
			e.Workers = 3
			if _, err := e.Run(t.Context(), s, purge.Cursor{}); err != nil {
				t.Fatal(err)
			}
			if left := db.Int("SELECT count(*) FROM t WHERE ts < '2025-01-01'"); left != 0 || a.deleted() != obsolete || a.biggest() > 100 {
				t.Errorf("%d obsolete rows are left; deleted %d of %d, at most %d at once", left, a.deleted(), obsolete, a.biggest())
			}
			if a.along() != c.want {
				t.Errorf("it went along %q, want %q", a.along(), c.want)
			}
		})
	}
}

func TestAWalkGoesOnFromItsCursor(t *testing.T) {
	t.Parallel()
	db, s := dated(t, 50_000, 2, "timestamptz")
	e, a := engine(db)
	stop := errors.New("stop")
	commit := e.Commit
	e.Commit = func(ctx context.Context, tx pgx.Tx, d purge.Delta) error {
		if a.deleted() > 300 {
			return stop
		}
		return commit(ctx, tx, d)
	}
	if _, err := e.Run(t.Context(), s, purge.Cursor{}); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	last := a.batches[len(a.batches)-1].Cursor
	done := db.Int("SELECT id FROM t WHERE ts > '2029-01-01' ORDER BY id LIMIT 1")
	db.Do("UPDATE t SET ts = '2019-01-01' WHERE id = $1", done) // below the cursor: for the next run
	obsolete := db.Int("SELECT count(*) FROM t WHERE ts < '2025-01-01'")
	before := a.deleted()
	e.Commit = commit
	if _, err := e.Run(t.Context(), s, last); err != nil {
		t.Fatal(err)
	}
	if a.deleted()-before != obsolete-1 || db.Int("SELECT count(*) FROM t WHERE ts < '2025-01-01'") != 1 {
		t.Errorf("deleted %d of %d rows", a.deleted()-before, obsolete-1)
	}
}

// Rows of few parents are found by the index on their link.
func TestAWalkAlongALink(t *testing.T) {
	t.Parallel()
	db, s := dated(t, 50_000, 2, "timestamptz")
	s.Where, s.Args, s.Along = "r.parent IN (SELECT unnest($1::bigint[]))", []any{[]int64{3, 77, 450}}, &purge.Along{Column: "parent", From: 3, To: 451}
	e, a := engine(db)
	if _, err := e.Run(t.Context(), s, purge.Cursor{}); err != nil {
		t.Fatal(err)
	}
	if a.deleted() != 300 || a.along() != "parent" || db.Int("SELECT count(*) FROM t WHERE parent IN (3, 77, 450)") != 0 {
		t.Errorf("deleted %d rows along %q", a.deleted(), a.along())
	}
}
