package store

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A table that another session keeps locked is not measured, and the transaction continues with its own timeouts.
func TestMeasuringALockedTable(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	var run *Run
	if err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) (err error) {
		run, err = InsertRun(t.Context(), tx, NewRun{
			Slots:    DeletingSlots,
			Pipeline: tasks.Pipeline,
			Chosen:   []string{"sessions"},
		})
		return err
	}); err != nil {
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
		events, err := Measure(t.Context(), tx, run.UUID(), "sessions")
		if err != nil || locked != (len(events) == 1 && events[0].Level == message.Warning) {
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
