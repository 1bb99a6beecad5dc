package runs

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Nothing is committed for a run that another replica has by now, whether a batch writes an account or only asks to
// proceed.
func TestNothingIsCommittedForAnother(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for name, d := range map[string]purge.Delta{"account": {Deleted: 1}, "question": {}} {
		j := &journal{m: &Manager{pool: db.Pool}, claim: &claim{id: uuid.NewString(), epoch: 1}, written: time.Now()}
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "CREATE TABLE left_behind ()"); err != nil {
			t.Fatal(err)
		}
		if err := (&purge.Engine{Ledger: j}).Commit(t.Context(), tx, d); !errors.Is(err, errFenced) {
			t.Errorf("%s: got %v, want %v", name, err, errFenced)
		}
		_ = tx.Rollback(t.Context())
		if db.Int("SELECT count(*) FROM pg_class WHERE relname = 'left_behind'") != 0 {
			t.Fatalf("%s: it was committed", name)
		}
	}
}

// A replica does not end a run that another one has by now.
func TestNobodyEndsAnothersRun(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	m := New(Config{Pool: db.Pool})
	run, err := m.Start(t.Context(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := m.finish(t.Context(), tx, run.ID, 7, outcome{state: Succeeded})
		return err
	})
	if !errors.Is(err, errFenced) {
		t.Errorf("got %v, want %v", err, errFenced)
	}
	if after, err := m.Get(
		t.Context(),
		run.ID,
	); err != nil || after.State != Queued || after.FailedTask() != "" ||
		after.Results[0].State != pipeline.Pending {
		t.Errorf("the run is %+v, %v", after, err)
	}
}

// A table that someone keeps locked is not measured, and the transaction continues with its own timeouts.
func TestMeasuringALockedTable(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	run, err := New(Config{Pool: db.Pool}).Start(t.Context(), Request{Tasks: []string{"sessions"}})
	if err != nil {
		t.Fatal(err)
	}
	db.Do("CREATE TABLE emptied ()")
	db.Do(`INSERT INTO cleanupd.space (run_id, task, relation, rows_deleted, table_bytes_before, index_bytes_before)
		VALUES ($1::text::uuid, 'sessions', 'emptied', 1, 1, 1)`, run.ID)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, locked := range []bool{false, true} {
		if locked {
			db.Hold("LOCK TABLE emptied")
		}
		events, err := measure(t.Context(), tx, run.ID, "sessions")
		if err != nil || locked != (len(events) == 1 && events[0].Level == severity.Warning) {
			t.Errorf("locked: %t: %+v, %v", locked, events, err)
		}
		var waits string
		if err := tx.QueryRow(t.Context(), "SELECT current_setting('lock_timeout') || ' ' || "+
			"current_setting('statement_timeout')").
			Scan(&waits); err != nil ||
			waits != "0 0" {
			t.Errorf("locked: %t: afterwards %s, %v", locked, waits, err)
		}
	}
}

// rows_expected is reported as long as no more rows are gone.
func TestWhatIsExpected(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		expected, done int64
		told           *int64
	}{{-1, 0, nil}, {0, 0, new(int64(0))}, {10, 4, new(int64(10))}, {10, 10, new(int64(10))}, {10, 11, nil}} {
		j := &journal{expected: test.expected, progress: Progress{RowsDeleted: test.done}}
		if got := j.snapshot().RowsExpected; (got == nil) != (test.told == nil) || (got != nil && *got != *test.told) {
			t.Errorf("%d of %d: %v", test.done, test.expected, got)
		}
	}
}
