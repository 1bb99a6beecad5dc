package tasks_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Errors of these classes mean that the server is unusable. They do not fail a task, with any code of the class.
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
			t.Errorf("%s: %t", state, got)
		}
	}
}
