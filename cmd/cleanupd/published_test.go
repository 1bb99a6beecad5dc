package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// If all tables, or all of the schema, are published, nothing is created before the subscribers have the tables, since
// replication to a subscriber without them would stop.
func TestSchemaThatWouldBePublished(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, server := pgtest.Private(t)
	db.Superuser("ALTER SYSTEM SET wal_level = logical")
	if err := server.Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	db.Reset()
	db.Superuser("CREATE PUBLICATION \"every table\" FOR ALL TABLES; ALTER TABLE XtkSessionInfo REPLICA IDENTITY FULL")
	subscriber, _ := pgtest.Private(t)
	superuser := server.URL("postgres", db.Name)
	subscriber.Superuser("CREATE SUBSCRIPTION s CONNECTION '" + superuser + "' PUBLICATION \"every table\"")
	db.Do("INSERT INTO XtkSessionInfo (sKey) VALUES ('a')")
	subscriber.Until("SELECT count(*) FROM XtkSessionInfo WHERE sKey = 'a'")

	for _, args := range [][]string{
		{"migrate", "--database-url", db.URL()},
		{"migrate", "--forms-database-url", db.URL()},
		{"serve", "--database-url", db.URL(), "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"},
		{"adopt", "--database-url", db.URL(), "--instance", "x", "--yes"},
	} {
		code, _, errs := cleanupd(t, args...)
		if code == 0 || !strings.Contains(errs, `"every table"`) || !strings.Contains(errs, "cleanupd schema") {
			t.Errorf("%v: %d %s", args, code, errs)
		}
	}
	if db.Int("SELECT count(*) FROM pg_namespace WHERE nspname = 'cleanupd'") != 0 {
		t.Error("the schema is there")
	}
	_, sql, _ := cleanupd(t, "schema")
	psql := exec.CommandContext(t.Context(), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", subscriber.URL())
	psql.Stdin = strings.NewReader(sql)
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, database := range []string{"--database-url", "--forms-database-url"} {
		code, _, errs := cleanupd(t, "migrate", database, db.URL(), "--allow-published-schema")
		if code != 0 {
			t.Fatalf("%d %s", code, errs)
		}
	}
	db.Do("INSERT INTO XtkSessionInfo (sKey) VALUES ('b')")
	subscriber.Until("SELECT count(*) FROM XtkSessionInfo WHERE sKey = 'b'")
	columns := "SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns " +
		"WHERE table_schema = 'cleanupd' ORDER BY 1"
	if got, want := subscriber.Strings(columns), db.Strings(columns); strings.Join(got, "\n") != strings.Join(
		want, "\n",
	) {
		t.Errorf("%v, not %v", got, want)
	}
	if code, _, errs := cleanupd(t, "migrate", "--database-url", db.URL()); code != 0 { // nothing is left to create
		t.Errorf("%d %s", code, errs)
	}
}
