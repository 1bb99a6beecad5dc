package serve

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A warning is logged for a superuser if others own tables, without calling functions that the owners created.
func TestSuperuserIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role   string
		warned int
	}{{"postgres", 1}, {"neolane", 0}} {
		db := pgtest.Campaign(t)
		db.Do(
			"CREATE FUNCTION same(name, name) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''planted''; END'; " +
				"CREATE OPERATOR = (FUNCTION = same, LEFTARG = name, RIGHTARG = name)",
		)
		pool := db.For(c.role).Pool
		if _, err := pool.Exec(t.Context(), "SET search_path = public, pg_catalog"); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		if err := warnOfSuperuser(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), pool); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "connected as a superuser"); n != c.warned {
			t.Errorf("%s: %s", c.role, &log)
		}
	}
}

// The owners of tables that a run changes may create objects. Before anything is granted, so may the owner of a schema
// who has tables in it. A warning names others.
func TestApplicationMayCreateObjects(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	service, shop, clerk := db.Role("service"), db.Role("shop"), db.Role("clerk")
	db.Superuser(`REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE TABLE orders (id int); CREATE TABLE visits (id int);
		ALTER SCHEMA public OWNER TO ` + shop + "; ALTER TABLE orders OWNER TO " + shop)
	pool := db.For(service).Pool
	for _, c := range []struct{ superuser, want string }{
		{"SELECT", ""},
		{
			"GRANT CREATE ON SCHEMA public TO " + clerk + "; ALTER TABLE visits OWNER TO " + clerk,
			"REVOKE CREATE ON SCHEMA public FROM " + clerk,
		},
		{"GRANT DELETE ON visits TO " + service, ""},
		{"ALTER TABLE orders OWNER TO " + clerk, "ALTER SCHEMA public OWNER TO NEW_OWNER"},
	} {
		db.Superuser(c.superuser)
		var log bytes.Buffer
		if err := warnOfOpenSchemas(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), pool, "nmsdelivery"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), c.want) || (c.want == "") != (log.Len() == 0) {
			t.Errorf("%s: %s", c.superuser, &log)
		}
	}
}

// A warning is logged for each owner whose code would gain access to tables of others, but not for an owner who has the
// service's rights on them anyway.
func TestOwnersAreWarnedOf(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	service, owner := db.Role("service"), db.Role("mallory")
	db.Do("CREATE TABLE log (id int); CREATE TABLE vip (id int); GRANT SELECT ON vip TO " + service)
	db.Superuser("ALTER TABLE log OWNER TO " + owner)
	pool := db.For(service).Pool
	for _, c := range []struct{ superuser, want string }{
		{"SELECT", ""}, // a run changes no table of that owner
		{
			"GRANT SELECT, DELETE ON log TO " + service,
			"code owned by " + owner + " on public.log run with the service's rights, including its rights on tables of neolane",
		},
		{"GRANT SELECT ON vip TO " + owner, ""},
		// rows that were restored into a schema of the service do not belong to others
		{
			"CREATE SCHEMA back AUTHORIZATION " + service + "; SET ROLE " + service + "; CREATE TABLE back.log (id int)",
			"its rights on tables of " + service,
		},
		{"COMMENT ON TABLE back.log IS 'rows of public.log'", ""},
	} {
		db.Superuser(c.superuser)
		var log bytes.Buffer
		if err := warnOfOwners(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), pool); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), c.want) || (c.want == "") != (log.Len() == 0) {
			t.Errorf("%s: %s", c.superuser, &log)
		}
	}
}

// A publication that has the tables of the service is named when the server starts.
func TestPublishedSchemaIsWarnedOf(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("CREATE SCHEMA cleanupd; CREATE TABLE cleanupd.run (id int PRIMARY KEY)")
	for _, publication := range []string{"", `CREATE PUBLICATION "All of it" FOR ALL TABLES`} {
		if publication != "" {
			db.Superuser(publication)
		}
		var log bytes.Buffer
		if err := warnOfPublishedSchema(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), db.Pool); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "SCHEMA_PUBLISHED") &&
			strings.Contains(log.String(), "All of it"); got !=
			(publication != "") {
			t.Errorf("%q: %s", publication, &log)
		}
	}
}
