package tasks_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

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
