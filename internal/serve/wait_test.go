package serve

import (
	"log/slog"
	"testing"
	"time"
)

// Connecting to a MySQL database that does not answer is retried until the timeout.
func TestMySQLIsWaitedFor(t *testing.T) {
	t.Parallel()
	tries := 0
	err := waitForDatabase(t.Context(), slog.New(slog.DiscardHandler), time.Second, func() error {
		tries++
		setup, err := (&FormsConfig{DatabaseURL: "mysql://forms:PLANTED@127.0.0.1:1/forms"}).check()
		if err == nil {
			_, err = setup.open(t.Context(), nil, nil, false)
		}
		return err
	})
	if err == nil || tries < 2 {
		t.Errorf("tried %d times: %v", tries, err)
	}
}
