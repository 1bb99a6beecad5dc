package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A server that is stopped while starting ends like one that is stopped later. One whose listener fails ends, too, and says so,
// instead of continuing unreachable.
func TestServingThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	for name, fails := range map[string]bool{"stopped": false, "a listener fails": true} {
		s, err := newServer(t.Context(), onFreePorts(db.URL()), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if fails {
			_ = s.http.Close()
		} else {
			stop()
		}
		if err := s.serve(ctx); fails != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Everyone's right to create objects where the role looks for its own is warned of, with what revokes it.
func TestOpenSchemaIsWarnedOf(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	for _, sql := range []string{"", "GRANT CREATE ON SCHEMA public TO PUBLIC"} {
		db.Superuser(sql)
		var log bytes.Buffer
		s, err := newServer(t.Context(), onFreePorts(db.URL()), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if err := s.serve(stopped); err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), `remedy="REVOKE CREATE ON SCHEMA public FROM PUBLIC"`) != (sql != "") {
			t.Errorf("%q: %s", sql, &log)
		}
	}
}
