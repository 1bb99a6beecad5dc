package throttle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/purge/throttle"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type reports struct{ causes, warnings []string }

func (r *reports) Throttled(c throttle.Cause) { r.causes = append(r.causes, c.String()) }

func (r *reports) Warn(m message.Message) { r.warnings = append(r.warnings, m.Text) }

func (r *reports) Proceed(context.Context) error { return nil }

type impatient struct{ reports }

var errWaits = errors.New("the batch waits")

func (*impatient) Proceed(context.Context) error { return errWaits }

// cause returns why a batch waits, or an empty text.
func cause(t *testing.T, pool *pgxpool.Pool, limits throttle.Limits) string {
	t.Helper()
	var (
		got       impatient
		throttler throttle.Throttler
	)
	if err := throttler.Wait(t.Context(), pool, limits, &got); err != nil && !errors.Is(err, errWaits) {
		t.Fatal(err)
	}
	return strings.Join(got.causes, ", ")
}

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

// A Throttler that no longer samples the load does not assume that the server is idle.
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

// Sessions of any role count as waiting if they wait for a relation, row or transaction of this database.
func TestWaitingSessions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		role    string
		holds   string
		waits   []string // one session each
		kinds   string   // of the locks that they wait for
		counted bool
	}{
		"a relation": {
			holds: "LOCK TABLE t", waits: []string{"TABLE t", "TABLE t"}, kinds: "relation,relation", counted: true,
		},
		"a relation, hidden sessions": {
			role: "postgres", holds: "LOCK TABLE t", waits: []string{"TABLE t", "TABLE t"}, kinds: "relation,relation",
			counted: true,
		},
		"a transaction and a row": {
			holds: "UPDATE t SET i = 2", waits: []string{"UPDATE t SET i = 3", "UPDATE t SET i = 3"},
			kinds: "transactionid,tuple", counted: true,
		},
		"the transactions of others": {
			holds: "LOCK TABLE t IN ROW EXCLUSIVE MODE; LOCK TABLE u IN ROW EXCLUSIVE MODE",
			waits: []string{"CREATE INDEX CONCURRENTLY ON t (i)", "CREATE INDEX CONCURRENTLY ON u (i)"},
			kinds: "virtualxid,virtualxid",
		},
		"an object": {
			holds: "COMMENT ON SCHEMA s IS ''",
			waits: []string{"COMMENT ON SCHEMA s IS ''", "COMMENT ON SCHEMA s IS ''"},
			kinds: "object,object",
		},
		"an advisory lock": {
			holds: "SELECT pg_advisory_xact_lock(1)",
			waits: []string{"SELECT pg_advisory_xact_lock(1)", "SELECT pg_advisory_xact_lock(1)"},
			kinds: "advisory,advisory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			db.Superuser("CREATE SCHEMA s; ALTER SCHEMA s OWNER TO " + campaigndb.Role)
			db.Do("CREATE TABLE t AS SELECT 1 AS i")
			db.Do("CREATE TABLE u AS SELECT 1 AS i")
			role := c.role
			if role == "" {
				role = campaigndb.Role
			}
			holder := shop(t, db, role)
			if _, err := holder.Exec(t.Context(), "BEGIN; "+c.holds); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i, sql := range c.waits {
				conn := shop(t, db, role)
				wg.Go(func() { _, _ = conn.Exec(t.Context(), sql) })
				db.Until("SELECT (count(*) = $1)::int FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM "+
					"pg_stat_activity WHERE datname = current_database())", i+1)
			}
			kinds := db.Strings("SELECT locktype FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM " +
				"pg_stat_activity WHERE datname = current_database()) ORDER BY 1")
			if got := strings.Join(kinds, ","); got != c.kinds {
				t.Errorf("sessions wait for %s, want %s", got, c.kinds)
			}
			got := cause(t, db.Pool, throttle.Limits{WaitingSessions: 1})
			if counted := strings.HasPrefix(got, string(throttle.WaitingSessions)+": 2 "); counted != c.counted {
				t.Errorf("the cause is %q; sessions count: %t, want %t", got, counted, c.counted)
			}
			if _, err := holder.Exec(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
		})
	}
}

// Batches wait while a session that the role cannot see waits for one of our locks.
func TestHiddenSessionThatWaitsForUs(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Do("CREATE TABLE t (i int)")
	tx := db.Hold("LOCK TABLE t")
	waiting := shop(t, db, "postgres")
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = waiting.Exec(t.Context(), "TABLE t") })
	db.Until("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't'::regclass")
	if got := cause(
		t, db.Pool, throttle.Limits{ActiveSessions: 1_000},
	); got != "others wait for our locks: 1 sessions" {
		t.Errorf("the cause is %q", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func shop(t *testing.T, db *pgtest.DB, role string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.As(role)+"&application_name=shop")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
