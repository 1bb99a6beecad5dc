package serve

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
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

// At its start, a server logs its database, its role there, and its settings.
func TestStartIsLogged(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	c := ConfigOnFreePorts(db.URL())
	c.runs.Instance, c.runs.KeepSchedule = "production", true
	var log strings.Builder
	s, err := New(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Serve(ctx); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		` msg="starting cleanupd" version=`, " instance=production\n",
		` msg="connected to the database" host=`, " name=" + db.Name + " server_version=",
		` msg="role in the database" name=` + campaigndb.Role + " superuser=false\n",
		` msg="schedule settings" kept=true enabled=true next_run_time=2`,
		` msg="access settings" tls=false authentication=none console=true` + "\n",
		` msg="notification settings" target=none` + "\n",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
}
