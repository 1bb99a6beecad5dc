package throttle_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge/throttle"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// reports are what a Throttler reported.
type reports struct{ causes, warnings []string }

func (r *reports) Throttled(c throttle.Cause) { r.causes = append(r.causes, c.String()) }

func (r *reports) Warn(m message.Message) { r.warnings = append(r.warnings, m.Text) }

func (r *reports) Proceed(context.Context) error { return nil }

// A gentle run gives way to the sessions of a primary. On a standby, where nothing commits, it does not.
func TestGentleOnAStandby(t *testing.T) {
	t.Parallel()
	db, primary := pgtest.Private(t)
	server, err := primary.AsynchronousStandby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	standby, err := pgxpool.New(t.Context(), server.URL(campaigndb.Role, db.Name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Close)
	for name, c := range map[string]struct {
		pool     *pgxpool.Pool
		givesWay bool
	}{
		"primary": {db.Pool, true},
		"standby": {standby, false},
	} {
		shop, err := pgxpool.New(t.Context(), c.pool.Config().ConnString()+"&application_name=shop")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(shop.Close)
		busy, err := shop.Begin(t.Context()) // counts as active for half a second
		if err != nil {
			t.Fatal(err)
		}
		var got reports
		var throttler throttle.Throttler
		if err := throttler.Wait(t.Context(), c.pool, throttle.Limits{Gentle: true}, &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := busy.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		givesWay := slices.ContainsFunc(got.causes, func(c string) bool {
			return strings.HasPrefix(c, string(throttle.Gentle))
		})
		if givesWay != c.givesWay {
			t.Errorf("%s: reported %q, gives way: %t, want %t", name, got.causes, givesWay, c.givesWay)
		}
		if len(got.warnings) != 0 {
			t.Errorf("%s: warned %q", name, got.warnings)
		}
	}
}

// A Throttler that no longer looks at the load does not take the server for idle.
func TestIdleWithoutLimits(t *testing.T) {
	t.Parallel()
	db, _ := pgtest.Private(t)
	var throttler throttle.Throttler
	for _, c := range []struct {
		limits throttle.Limits
		idle   bool
	}{{throttle.Limits{ActiveSessions: 100}, true}, {throttle.Limits{}, false}} {
		if err := throttler.Wait(t.Context(), db.Pool, c.limits, &reports{}); err != nil {
			t.Fatal(err)
		}
		if idle := throttler.Idle(); idle != c.idle {
			t.Errorf("%+v: idle: %t, want %t", c.limits, idle, c.idle)
		}
	}
}
