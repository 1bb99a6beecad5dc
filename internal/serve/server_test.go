package serve

import (
	"context"
	"log/slog"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A server that is stopped while it starts ends like one that is stopped later. A server whose listener fails ends with
// an error, instead of continuing unreachable.
func TestServingThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	for name, fails := range map[string]bool{"stopped": false, "a listener fails": true} {
		s, err := New(t.Context(), ConfigOnFreePorts(db.URL()), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if fails {
			_ = s.HTTP.Close()
		} else {
			stop()
		}
		if err := s.Serve(ctx); fails != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
