package purge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

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
	e.Workers = 3 // of the four connections of the pool; the test needs one
	e.Crowded()
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
	e.Crowded()
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
