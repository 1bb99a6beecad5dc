package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

func throughPool(t *testing.T, db *pgtest.DB, databaseURL string) (printed, logged string) {
	t.Helper()
	db.Do("INSERT INTO XtkSessionInfo SELECT i::text, 'x', '2000-01-01' FROM generate_series(1, 5000) i")
	r := startServer(t, "--database-url", databaseURL)
	code, stdout, stderr := r.run(t, suite.Size(suite.Long, "run --task sessions", "run"))
	if logged = r.log.String(); code != 0 || db.Int("SELECT count(*) FROM XtkSessionInfo") != 0 {
		t.Errorf("%d: %s%s\n%s", code, stdout, stderr, logged)
	}
	if n := db.For("postgres").Int("SELECT max(failed_attempts) FROM cleanupd.run"); n != 0 {
		t.Errorf("%d failed attempts: %s", n, stdout)
	}
	return stdout, logged
}

// A pool in session mode with its stock configuration works, though it rejects most settings in the first message.
func TestAPoolInSessionMode(t *testing.T) {
	t.Parallel()
	db := campaign(t)
	throughPool(t, db, pgtest.Bouncer(t, db)+"&lock_timeout=7s&work_mem=8MB")
}

// If a pool, a role or a URL allows only few connections, a run does without optional work, and the log says so.
func TestFewConnections(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(t *testing.T, db *pgtest.DB) string{
		"two of a pool": func(t *testing.T, db *pgtest.DB) string {
			return pgtest.Bouncer(t, db, "default_pool_size = 2")
		},
		"four of a pool": func(t *testing.T, db *pgtest.DB) string {
			return pgtest.Bouncer(t, db, "default_pool_size = 4")
		},
		"two of a role": func(t *testing.T, db *pgtest.DB) string {
			role := db.Role("few")
			db.Superuser(fmt.Sprintf("GRANT neolane TO %[1]s; GRANT CREATE ON DATABASE %[2]s TO %[1]s; ALTER ROLE "+
				"%[1]s CONNECTION LIMIT 2", role, db.Name))
			return db.As(role)
		},
		"pool_max_conns": func(_ *testing.T, db *pgtest.DB) string { return db.URL() + "&pool_max_conns=2" },
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "pool_max_conns")
			t.Parallel()
			db := campaign(t)
			printed, logged := throughPool(t, db, address(t, db))
			if !strings.Contains(logged, "few connections") {
				t.Errorf("it is not logged: %s", logged)
			}
			if strings.HasPrefix(name, "two") && !strings.Contains(printed, "no connection is free for VACUUM") {
				t.Errorf("it is not told: %s", printed)
			}
		})
	}
}

// Poolers and settings with which a run cannot work are refused at the start, with the reason.
func TestPoolsThatWillNotDo(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	for name, c := range map[string]struct {
		settings []string
		more     string
		code     int
		problem  string
	}{
		"transaction mode":    {[]string{"pool_mode = transaction"}, "", 1, "behind a pooler in transaction mode"},
		"transaction mode, 1": {[]string{"pool_mode = transaction", "default_pool_size = 1"}, "", 1, "pooler"},
		"statement mode":      {[]string{"pool_mode = statement"}, "", 1, "statement pooling"},
		"one connection":      {[]string{"default_pool_size = 1"}, "", 1, "two connections"},
		"options":             {nil, "&options=-c%20lock_timeout%3D1s", 1, "options"},
		"simple protocol":     {nil, "&default_query_exec_mode=simple_protocol", 2, "simple_protocol is not supported"},
		"exec":                {nil, "&default_query_exec_mode=exec", 2, "exec is not supported"},
		"an unknown setting":  {nil, "&lock_timeuot=1s", 1, "lock_timeuot"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "transaction mode", "one connection", "options", "exec")
			t.Parallel()
			code, _, stderr := cleanupd(t, "serve", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
				"--database-url", pgtest.Bouncer(t, pgtest.Empty(t), c.settings...)+c.more)
			if code != c.code || !strings.Contains(stderr, c.problem) {
				t.Errorf("%d: %s", code, stderr)
			}
		})
	}
}

// The error about a standby differs from the one about a primary that is set to be read-only.
func TestReadOnlyServers(t *testing.T) {
	t.Parallel()
	db, server := pgtest.Private(t)
	standby, err := server.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	db.Reset()
	db.Superuser("ALTER ROLE neolane SET default_transaction_read_only = on")
	for address, problem := range map[string]string{
		db.URL(): "default_transaction_read_only is on", standby.URL("postgres", db.Name): "is a standby",
	} {
		if code, _, stderr := cleanupd(
			t, "serve", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--database-url", address,
		); code != 1 ||
			!strings.Contains(stderr, problem) {
			t.Errorf("%d: %s", code, stderr)
		}
	}
}
