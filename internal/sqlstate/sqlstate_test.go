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

// An error with any code of certain classes means that the server is unusable. It does not fail a task.
func TestLost(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]bool{
		"08006": true,
		"08999": true,
		"53100": true,
		"53999": true,
		"57P01": true,
		"57P99": true,
		"58030": true,
		"58P99": true,
		"25006": true, "25P03": true, "57014": false, "42501": false, "25001": false, "P0001": false,
	} {
		if got := sqlstate.Lost(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: state})); got != want {
			t.Errorf("%s: got %t, want %t", state, got, want)
		}
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
