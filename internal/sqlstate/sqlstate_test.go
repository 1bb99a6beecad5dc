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
	for state, want := range map[string]bool{
		pgerrcode.RaiseException:                          true,
		pgerrcode.ForeignKeyViolation:                     true,
		pgerrcode.DivisionByZero:                          true,
		pgerrcode.WithCheckOptionViolation:                true,
		pgerrcode.TriggeredDataChangeViolation:            true,
		pgerrcode.TransactionIntegrityConstraintViolation: true,
		"45000":                          true,
		pgerrcode.SerializationFailure:   false,
		pgerrcode.LockNotAvailable:       false,
		pgerrcode.QueryCanceled:          false,
		pgerrcode.DiskFull:               false,
		pgerrcode.InsufficientPrivilege:  false,
		pgerrcode.UndefinedColumn:        false,
		pgerrcode.ReadOnlySQLTransaction: false,
		pgerrcode.AdminShutdown:          false,
		pgerrcode.DataCorrupted:          false,
		"":                               false,
	} {
		if got := sqlstate.OfRow(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: state})); got != want {
			t.Errorf("%q may be of a row: %t", state, got)
		}
	}
	if sqlstate.Is(wrapped, pgerrcode.QueryCanceled) {
		t.Error("it is another one")
	}
}

// The text of an error has the hint of the server, however it is wrapped.
func TestText(t *testing.T) {
	t.Parallel()
	hinted := &pgconn.PgError{Severity: "ERROR", Message: "no", Code: pgerrcode.RaiseException, Hint: "ask"}
	for want, err := range map[string]error{
		"ERROR: no (SQLSTATE P0001); hint: ask":          hinted,
		"wrapped: ERROR: no (SQLSTATE P0001); hint: ask": fmt.Errorf("wrapped: %w", hinted),
		"ERROR: no (SQLSTATE P0001)": &pgconn.PgError{
			Severity: "ERROR", Message: "no", Code: pgerrcode.RaiseException,
		},
		"another": errors.New("another"),
	} {
		if got := sqlstate.Text(err); got != want {
			t.Errorf("the text is %q, want %q", got, want)
		}
	}
}
