package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/serve"
)

// A warning names the roles that may create objects in schemas that the service's role uses, and the remedy. The role
// itself, superusers and the application are trusted.
func TestOpenSchemaIsWarnedOf(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	clerk, least := db.Role("clerk"), leastRole(t, db)
	db.Superuser("REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT CREATE ON SCHEMA public TO neolane, " + least)
	for _, test := range []struct{ sql, remedy string }{
		{"", ""},
		{"GRANT CREATE ON SCHEMA cleanupd TO " + clerk, "REVOKE CREATE ON SCHEMA cleanupd FROM " + clerk},
		{
			"REVOKE CREATE ON SCHEMA cleanupd FROM " + clerk + "; GRANT CREATE ON SCHEMA public TO " + clerk,
			"REVOKE CREATE ON SCHEMA public FROM " + clerk,
		},
		{"GRANT CREATE ON SCHEMA public TO PUBLIC", "REVOKE CREATE ON SCHEMA public FROM PUBLIC"},
		{
			"REVOKE CREATE ON SCHEMA public FROM PUBLIC, " + clerk + "; ALTER SCHEMA public OWNER TO " + clerk,
			"ALTER SCHEMA public OWNER TO NEW_OWNER",
		},
		{"ALTER SCHEMA public OWNER TO postgres; GRANT neolane TO " + clerk, ""}, // it may do everything anyway
	} {
		db.Superuser(test.sql)
		var log bytes.Buffer
		s, err := serve.New(t.Context(), serve.ConfigOnFreePorts(db.As(least)),
			slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if err := s.Serve(stopped); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "could run code"); (test.remedy == "" && n > 0) ||
			(test.remedy != "" && (n != 1 || !strings.Contains(log.String(), `remedy="`+test.remedy+`"`))) {
			t.Errorf("%q: %s", test.sql, &log)
		}
	}
}

// The error of a migration that waits for a lock names the role that holds it.
func TestSquattedSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	mallory := db.Role("mallory")
	pid := db.For(mallory).Hold("SELECT pg_advisory_xact_lock(x'636c65616e757064'::bigint)").Conn().PgConn().PID()
	told := fmt.Sprintf("process %d of the role %q", pid, mallory)
	if code, out, errs := cleanupd(t, "migrate", "--database-url", db.URL()+"&lock_timeout=100ms"); code != 1 ||
		!strings.Contains(errs, told) {
		t.Errorf("%d %s %s, want %s", code, out, errs, told)
	}
}
