package runs

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Of a run that is another's by now nothing is committed, whether a batch has an account to write or only asks.
func TestNothingIsCommittedForAnother(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := Migrate(t.Context(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]purge.Delta{"account": {Deleted: 1}, "question": {}} {
		j := &journal{m: &Manager{pool: db.Pool}, claim: &claim{id: uuid.NewString(), epoch: 1}, written: time.Now()}
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "CREATE TABLE left_behind ()"); err != nil {
			t.Fatal(err)
		}
		if err := j.Commit(t.Context(), tx, d); !errors.Is(err, errFenced) {
			t.Errorf("%s: got %v, want %v", name, err, errFenced)
		}
		_ = tx.Rollback(t.Context())
		if db.Int("SELECT count(*) FROM pg_class WHERE relname = 'left_behind'") != 0 {
			t.Fatalf("%s: it was committed", name)
		}
	}
}
