package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Errors are logged with the hint of the server.
func TestLogOfErrors(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := (&logConfig{format: format}).newLogger(&out, slog.LevelInfo)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("failed", "error", fmt.Errorf("wrapped: %w", &pgconn.PgError{Message: "no", Hint: "ask"}), "rows", 1)
		if got := out.String(); !strings.Contains(got, "hint: ask") {
			t.Errorf("the log in %s is %q, want the hint", format, got)
		}
	}
}
