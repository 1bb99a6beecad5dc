package purge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// onIdleServer returns an engine with several workers on an otherwise idle server, and creates a table with four rows
// per block, every other one obsolete.
func onIdleServer(t *testing.T, workers, blocks int) (*pgtest.DB, *purge.Engine, *ledger) {
	t.Helper()
	db, _ := pgtest.Private(t)
	fillBlocks(db, blocks)
	e, a := engine(db)
	e.Workers, e.Limits = workers, purge.Limits{ActiveSessions: 100}
	return db, purge.New(*e), a
}

func fillBlocks(db *pgtest.DB, blocks int) {
	db.Do(
		"DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, old bool NOT NULL, filler text); ALTER TABLE t " +
			"ALTER filler SET STORAGE PLAIN",
	)
	db.Do("INSERT INTO t SELECT i, i % 2 = 0, repeat('x', 1900) FROM generate_series(1, $1::int) i", 4*blocks)
}

func fewRows() purge.Sweep {
	s := obsolete
	s.Limit = 50
	return s
}

// Several workers delete the same rows as one, within the limit of a statement, and everything below the cursor is
// done.
func TestWorkersShareALargeTable(t *testing.T) {
	t.Parallel()
	const n = 40_000
	db, e, a := onIdleServer(t, 3, n/4) // of the four connections of the pool; the test needs one
	var checked int64
	var mu sync.Mutex
	a.after = func(d purge.Delta) {
		mu.Lock()
		defer mu.Unlock()
		if left := db.Int(
			fmt.Sprintf("SELECT count(*) FROM t WHERE old AND ctid >= '(%d,0)' AND ctid < '(%d,0)'", checked,
				d.Cursor.Place),
		); left != 0 {
			t.Errorf("%d obsolete rows are below the cursor %d", left, d.Cursor.Place)
		}
		checked = max(checked, d.Cursor.Place)
	}
	if _, err := e.Sweep(t.Context(), fewRows(), purge.Cursor{}); err != nil {
		t.Fatal(err)
	}
	if a.deleted() != n/2 || a.biggest() > 50 || db.Int("SELECT count(*) FROM t") != n/2 {
		t.Errorf("deleted %d rows, at most %d at once; %d remain", a.deleted(), a.biggest(),
			db.Int("SELECT count(*) FROM t"))
	}
}

type storedLedger struct {
	*pgtest.DB
	stop error
}

func (t storedLedger) Write(_ context.Context, b *pgx.Batch, d purge.Delta) (func(error) error, error) {
	if t.Int("SELECT COALESCE(sum(deleted), 0)::bigint FROM ledger") > 500 {
		return nil, t.stop
	}
	b.Queue("INSERT INTO ledger VALUES ($1)", d.Deleted)
	return func(err error) error { return err }, nil
}

// If one of several workers must stop, all stop, and the ledger has all committed batches.
func TestWorkersStopTogether(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	const n = 20_000
	db, e, _ := onIdleServer(t, 2, n/4)
	db.Do("CREATE TABLE ledger (deleted bigint)")
	stop := errors.New("stop")
	e.Ledger = storedLedger{db, stop}
	if _, err := e.Sweep(t.Context(), fewRows(), purge.Cursor{}); !errors.Is(err, stop) {
		t.Fatalf("got %v", err)
	}
	// The COMMIT of a worker that was stopped may still arrive: both are read in one snapshot.
	var gone, recorded int64
	row := db.QueryRow(t.Context(), "SELECT $1 - (SELECT count(*) FROM t), (SELECT sum(deleted)::bigint FROM ledger)",
		n)
	if err := row.Scan(&gone, &recorded); err != nil {
		t.Fatal(err)
	}
	if gone != recorded || gone == 0 {
		t.Errorf("%d rows were deleted, %d are in the ledger", gone, recorded)
	}
}

func (a *ledger) queuePID(b *pgx.Batch, use func(pid uint32)) {
	b.Queue("SELECT pg_backend_pid()").QueryRow(func(row pgx.Row) error {
		var pid uint32
		a.mu.Lock()
		defer a.mu.Unlock()
		defer func() { use(pid) }()
		return row.Scan(&pid)
	})
}

// A worker pauses after its batch when another session becomes active, and later continues in its chunk.
func TestWorkersPauseAtOnce(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, e, a := onIdleServer(t, 2, 2_100)
	var (
		workers []uint32 // that committed one batch after another
		others  sync.Once
		wg      sync.WaitGroup
	)
	ctx, end := context.WithCancel(t.Context())
	a.before = func(b *pgx.Batch) error {
		a.queuePID(b, func(pid uint32) { workers = append(workers, pid) })
		others.Do(func() {
			conn, err := pgx.Connect(t.Context(), db.As(campaigndb.Role)+"&application_name=application")
			if err != nil {
				t.Error(err)
				return
			}
			wg.Go(func() { _, _ = conn.Exec(ctx, "SELECT pg_sleep(600)") })
		})
		b.Queue("SELECT pg_sleep(0.04)")
		return nil
	}
	few := obsolete
	few.Limit = 8 // with two rows per block, in up to eight statements of a batch
	_, err := e.Sweep(t.Context(), few, purge.Cursor{})
	end()
	wg.Wait()
	if err != nil || a.deleted() != 4_200 {
		t.Fatalf("deleted %d rows of 4200 (%v)", a.deleted(), err)
	}
	longest, last := 0, map[uint32]int{}
	for i, worker := range workers {
		if before, known := last[worker]; known {
			longest = max(longest, i-before)
		}
		last[worker] = i
	}
	if len(last) != 2 || longest < 10 {
		t.Errorf("%d workers, and at most %d batches until one continued its chunk", len(last), longest)
	}
}

// All workers run while the server is otherwise idle, and one while others are active, even if the role cannot see
// them.
func TestWorkersPauseWhileOthersAreActive(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	const blocks = 4_000
	db, e, a := onIdleServer(t, 2, blocks)
	var workers map[uint32]bool
	a.before = func(b *pgx.Batch) error {
		a.queuePID(b, func(pid uint32) { workers[pid] = true })
		return nil
	}
	idle := func(*pgx.Conn, context.Context) {}
	for _, test := range []struct {
		name, role string
		workers    int
		seen       string // the condition of its row in pg_stat_activity when the sweep begins
		run        func(conn *pgx.Conn, ctx context.Context)
	}{
		{"an idle session", campaigndb.Role, 2, "state = 'idle' AND state_change < now() - interval '1 s'", idle},
		{
			"a session in a statement",
			campaigndb.Role,
			1,
			"state = 'active' AND state_change < now() - interval '1 s'",
			func(conn *pgx.Conn, ctx context.Context) { _, _ = conn.Exec(ctx, "SELECT pg_sleep(600)") },
		},
		{
			"a session between statements",
			campaigndb.Role,
			1,
			"state = 'idle' AND query = 'SELECT 1'",
			func(conn *pgx.Conn, ctx context.Context) {
				ticker := time.NewTicker(50 * time.Millisecond)
				defer ticker.Stop()
				for ctx.Err() == nil {
					_, _ = conn.Exec(ctx, "SELECT 1")
					select {
					case <-ticker.C:
					case <-ctx.Done():
					}
				}
			},
		},
		{"a session that may not be seen", "postgres", 1, "state IS NULL", idle},
	} {
		conn, err := pgx.Connect(t.Context(), db.As(test.role)+"&application_name=application")
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { test.run(conn, ctx) })
		fillBlocks(db, blocks)
		db.Until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'application' AND " + test.seen)
		workers = map[uint32]bool{}
		if _, err := purge.New(*e).Sweep(t.Context(), fewRows(), purge.Cursor{}); err != nil {
			t.Fatal(err)
		}
		end()
		wg.Wait()
		_ = conn.Close(t.Context()) // here, so that it is open until now
		db.Superuser("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'application'")
		if left := db.Int("SELECT count(*) FROM t WHERE old"); len(workers) != test.workers || left != 0 {
			t.Errorf("%s: %d workers, want %d; %d rows remain", test.name, len(workers), test.workers, left)
		}
	}
}

// A panic in any of the workers is the error of the sweep: the others end, and the next sweep has all connections.
func TestWorkerThatPanics(t *testing.T) {
	t.Parallel()
	db, e, a := onIdleServer(t, 3, 2_000)
	var batches atomic.Int64
	a.before = func(*pgx.Batch) error {
		if batches.Add(1) > 5 { // then several workers run
			panic("PLANTED")
		}
		return nil
	}
	if _, err := e.Sweep(t.Context(), fewRows(), purge.Cursor{}); err == nil ||
		!strings.Contains(err.Error(), "internal error (panic)") {
		t.Error(err)
	}
	a.before = nil
	if _, err := e.Sweep(t.Context(), fewRows(), purge.Cursor{}); err != nil ||
		db.Int("SELECT count(*) FROM t WHERE old") != 0 {
		t.Errorf("%v; %d rows remain", err, db.Int("SELECT count(*) FROM t WHERE old"))
	}
}

// Several workers skip failing rows at the same time, each over its own session.
func TestWorkersSkipFailingRows(t *testing.T) {
	t.Parallel()
	db, e, a := onIdleServer(t, 3, 2_100)
	failing := suite.Size[int64](suite.Long, 42, 210) // of 8,400 rows, half of which are obsolete
	db.Do(fmt.Sprintf("CREATE TABLE poison AS SELECT id FROM t WHERE id %% %d = 0; CREATE UNIQUE INDEX ON poison (id); ",
		8_400/failing) + poison["a trigger"])
	result, err := e.Sweep(t.Context(), fewRows(), purge.Cursor{})
	if err != nil || result.Retained != (purge.Retained{Failed: failing}) || a.deleted() != 4_200-failing {
		t.Errorf("deleted %d rows, result %+v, error %v", a.deleted(), result, err)
	}
	if n := db.Int(exactlyPoison); n != 0 {
		t.Errorf("%d rows are wrong", n)
	}
}
