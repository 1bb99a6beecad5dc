package runs

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// A run that another worker continues ends at a failed task, but not at a failed policy.
func TestClaimAfterAFailedTask(t *testing.T) {
	t.Parallel()
	for kind, ends := range map[rules.Kind]bool{rules.BuiltIn: true, rules.Policy: false, rules.External: true} {
		c := newClaim(&store.Claim{}, []store.ClaimedTask{
			{Name: "a", Kind: kind.String(), State: cleanup.Failed},
			{Name: "b", Kind: rules.Policy.String(), State: cleanup.Pending},
		})
		if c.failed != ends || !c.unmet["a"] || len(c.todo) != 1 {
			t.Errorf("%s: failed %t, want %t; unmet %v, to do %q", kind, c.failed, ends, c.unmet, c.todo)
		}
	}
}

// Nothing is committed for a run that another replica has claimed, whether a batch has counts to write or only asks to
// proceed.
func TestNothingIsCommittedForAnother(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for name, d := range map[string]purge.Delta{"counts": {Deleted: 1}, "question": {}} {
		a := &attempt{
			m:     New(Config{Pool: db.Pool}),
			claim: &claim{Claim: &store.Claim{Epoch: store.Epoch{RunID: uuid.New(), Number: 1}}},
			task:  taskProgress{written: time.Now()},
		}
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "CREATE TABLE left_behind ()"); err != nil {
			t.Fatal(err)
		}
		if err := (&purge.Engine{Ledger: a}).Commit(t.Context(), tx, d); !errors.Is(err, store.ErrFenced) {
			t.Errorf("%s: got %v, want %v", name, err, store.ErrFenced)
		}
		_ = tx.Rollback(t.Context())
		if db.Int("SELECT count(*) FROM pg_class WHERE relname = 'left_behind'") != 0 {
			t.Fatalf("%s: it was committed", name)
		}
	}
}

// A replica does not end a run that another one has claimed.
func TestNobodyEndsAnothersRun(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	run := insertRun(t, db)
	m := New(Config{Pool: db.Pool})
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := m.finish(t.Context(), tx, store.Epoch{RunID: run.UUID(), Number: 7}, outcome{State: store.Succeeded})
		return err
	})
	if !errors.Is(err, store.ErrFenced) {
		t.Errorf("got %v, want %v", err, store.ErrFenced)
	}
	if after, err := store.GetRun(
		t.Context(), db.Pool, run.UUID(),
	); err != nil || after.State != store.Queued || after.FailedTask() != "" ||
		after.Results[0].State != cleanup.Pending {
		t.Errorf("the run is %+v, %v", after, err)
	}
}

// A task that ends locks its run first, as PauseRun and ResumeRun do: otherwise they can deadlock.
func TestEndOfATaskLocksTheRunFirst(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	run := insertRun(t, db)
	var e store.Epoch
	if err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) (err error) {
		e, err = store.BeginEpoch(t.Context(), tx, run.UUID())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	pause, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pause.Rollback(t.Context()) }()
	if _, _, err := store.LockRun(t.Context(), pause, e.RunID); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		ended <- pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			return store.FinishTask(t.Context(), tx, e, tasks.Names()[0], cleanup.Outcome{State: cleanup.Succeeded})
		})
	}()
	db.Until("SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))",
		pause.Conn().PgConn().PID())
	_, err = pause.Exec(t.Context(), "SELECT FROM cleanupd.task WHERE run_id = $1 FOR UPDATE NOWAIT", e.RunID)
	if err != nil {
		t.Errorf("the task is locked while it waits for its run: %v", err)
	}
	if err := pause.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if state := db.Strings(
		"SELECT state FROM cleanupd.task WHERE name = $1", tasks.Names()[0],
	); state[0] != "SUCCEEDED" {
		t.Errorf("the task is %s", state[0])
	}
}

// rows_expected is reported until more rows than that have been deleted.
func TestWhatIsExpected(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		expected, done int64
		told           *int64
	}{{-1, 0, nil}, {0, 0, new(int64(0))}, {10, 4, new(int64(10))}, {10, 10, new(int64(10))}, {10, 11, nil}} {
		c := &taskProgress{task: "sessions", expected: test.expected, progress: store.Progress{RowsDeleted: test.done}}
		e, _ := c.report(true)
		if got := e.Progress.RowsExpected; (got == nil) != (test.told == nil) || (got != nil && *got != *test.told) {
			t.Errorf("%d of %d: %v", test.done, test.expected, got)
		}
	}
	c := &taskProgress{task: "policy/orders", expected: 10}
	c.add(purge.Delta{Deleted: 5, Cascaded: 3, Updated: 7, Space: []purge.Space{
		{Rows: 5}, {Rows: 3, Cascaded: 3}, {Updated: 7, Cascaded: 7},
	}}, false)
	if e, _ := c.report(true); e.Progress.RowsExpected == nil || *e.Progress.RowsExpected != 17 {
		t.Errorf("5 rows of 10, and 7 that foreign keys updated: %v expected", e.Progress.RowsExpected)
	}
}

func insertRun(t *testing.T, db *pgtest.DB) (run *store.Run) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) (err error) {
		run, err = store.InsertRun(t.Context(), tx, store.NewRun{
			Slots:    store.DeletingSlots,
			Pipeline: tasks.Pipeline,
			Chosen:   tasks.Names(),
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return run
}

func migrated(tb testing.TB) *pgtest.DB {
	db := pgtest.Empty(tb)
	conn, err := db.Acquire(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Release()
	if err := store.Migrate(tb.Context(), conn.Conn()); err != nil {
		tb.Fatal(err)
	}
	return db
}
