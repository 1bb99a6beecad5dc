package sqlstate_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

func TestSQLState(t *testing.T) {
	t.Parallel()
	wrapped := fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: pgerrcode.LockNotAvailable})
	for err, want := range map[error]string{nil: "", errors.New("another"): "", wrapped: pgerrcode.LockNotAvailable} {
		if got := sqlstate.Of(err); got != want {
			t.Errorf("of %v: %q, want %q", err, got, want)
		}
		if got := sqlstate.Is(err, pgerrcode.QueryCanceled, pgerrcode.LockNotAvailable); got != (want != "") {
			t.Errorf("%v is one of two: %t", err, got)
		}
	}
	if sqlstate.Is(wrapped, pgerrcode.QueryCanceled) {
		t.Error("it is another one")
	}
}
