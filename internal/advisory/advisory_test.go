package advisory_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// An error names another role's session that holds a lock, with its process and role; a session of the same role is a
// replica.
func TestSquatted(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	mallory := db.Role("mallory")
	late := &pgconn.PgError{Code: pgerrcode.LockNotAvailable}
	for _, lock := range []int64{1, -1, 0x636c65616e757064, -0x636c65616e757064} {
		replica := db.Hold("SELECT pg_advisory_xact_lock($1)", lock+1)
		db.For(mallory).Hold("SELECT pg_advisory_xact_lock($1::int, $2::int)", lock>>32, int32(lock)) // another one
		if err := advisory.Squatted(t.Context(), db, lock, false); err != nil {
			t.Errorf("a free lock: %v", err)
		}
		if err := advisory.Squatted(t.Context(), db, lock+1, false); err != nil {
			t.Errorf("a replica's lock: %v", err)
		}
		if err := replica.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		pid := db.For(mallory).Hold("SELECT pg_advisory_xact_lock($1)", lock).Conn().PgConn().PID()
		told := fmt.Sprintf(`process %d of the role %q`, pid, mallory)
		if err := advisory.Squatted(t.Context(), db, lock, false); err == nil || !strings.Contains(err.Error(), told) {
			t.Errorf("%v, want %s", err, told)
		}
		if err := advisory.Squatted(t.Context(), db, lock, true); err == nil || !strings.Contains(err.Error(), told) {
			t.Errorf("%v, want %s", err, told)
		}
		db.For(mallory).Hold("SELECT pg_advisory_xact_lock_shared($1)", lock+100)
		if alone, shared := advisory.Squatted(t.Context(), db, lock+100, false), advisory.Squatted(
			t.Context(), db, lock+100, true,
		); alone == nil ||
			shared != nil {
			t.Errorf("one that is shared: %v, %v", alone, shared)
		}
		if err := advisory.Explain(t.Context(), db, lock, late); !errors.Is(err, late) ||
			!strings.Contains(err.Error(), told) {
			t.Errorf("%v, want %s", err, told)
		}
		if err := advisory.Explain(t.Context(), db, lock, errors.ErrUnsupported); !errors.Is(
			err, errors.ErrUnsupported,
		) ||
			strings.Contains(err.Error(), "process") {
			t.Errorf("another error: %v", err)
		}
	}
}
