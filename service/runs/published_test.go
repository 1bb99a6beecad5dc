package runs_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/userdata"
)

// If all tables are published, UPDATE and DELETE need a replica identity. The schemas can be created nevertheless, and
// existing ones are repaired.
func TestSchemaWhereAllTablesArePublished(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"new": "",
		"there before": "ALTER TABLE cleanupd.schema_version " +
			"REPLICA IDENTITY NOTHING; ALTER TABLE cleanupd.forms_schema_version REPLICA IDENTITY DEFAULT",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			conn, err := pgx.Connect(t.Context(), db.URL())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(t.Context()) }()
			migrate := func() {
				t.Helper()
				if err := store.Migrate(t.Context(), conn); err != nil {
					t.Fatal(err)
				}
				if err := userdata.Migrate(t.Context(), conn); err != nil {
					t.Fatal(err)
				}
			}
			if before != "" {
				migrate()
				db.Do(before)
			}
			db.Superuser("CREATE PUBLICATION everything FOR ALL TABLES")
			migrate()
			if missing := db.Strings(
				`SELECT relname::text FROM pg_class c WHERE relnamespace = 'cleanupd'::regnamespace AND relkind = 'r'
					AND relreplident <> 'f'
				AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary)`,
			); len(missing) > 0 {
				t.Errorf("%v have no replica identity", missing)
			}
			db.Do("UPDATE cleanupd.schema_version SET version = version")
			m, work, _ := replica(t, db, "one", nil)
			work()
			db.Do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('old', '2000-01-01')")
			run := ended(t, m, runs.Request{Tasks: []string{"sessions", "audit-trail"}})
			if run.State != store.Failed || !strings.Contains(run.Error, "ALTER TABLE") {
				t.Errorf("%s: %s", run.State, run.Error)
			}
			db.Do("ALTER TABLE XtkSessionInfo REPLICA IDENTITY FULL")
			if run := ended(t, m, runs.Request{Tasks: []string{"sessions"}}); run.State != store.Succeeded {
				t.Errorf("%s: %s", run.State, run.Error)
			}
		})
	}
}

// A run says once which publications include the service's schema. Publications of other tables do not matter.
func TestRunOfAPublishedSchema(t *testing.T) {
	t.Parallel()
	db := database(t)
	m, work, _ := replica(t, db, "one", nil)
	work()
	warned := func() (found []string) {
		for _, e := range watch(t, m, start(t, m, runs.Request{Tasks: []string{"sessions", "visitors"}}).ID) {
			if e.Code == message.SchemaPublished.Code {
				found = append(found, e.Params["publications"])
			}
		}
		return found
	}
	db.Superuser("CREATE PUBLICATION others FOR TABLE XtkAudit")
	if found := warned(); found != nil {
		t.Errorf("%q", found)
	}
	db.Superuser(`CREATE PUBLICATION "All of it" FOR ALL TABLES`)
	want := `"All of it"`
	if db.Int("SELECT current_setting('server_version_num')::int") >= 150_000 {
		db.Superuser("CREATE PUBLICATION ours FOR TABLES IN SCHEMA cleanupd")
		want += ", ours"
	}
	if found := warned(); len(found) != 1 || found[0] != want {
		t.Errorf("%q, want %q once", found, want)
	}
}
