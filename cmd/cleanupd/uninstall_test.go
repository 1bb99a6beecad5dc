package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// The script for uninstalling removes what the scripts for installing and the service have made, and nothing else.
func TestUninstall(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := pgtest.Campaign(t)
	role := db.Name + "_service"
	runRoleScripts(t, db, role)
	const tables = "SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
	before := db.Int(tables)
	r := startServer(t, "--database-url", db.As(role))
	if code, _, errs := r.run(t, "run --task audit-trail --task work-tables"); code != 0 {
		t.Fatal(errs)
	}
	uninstall := func(role string) (string, error) {
		return psql(t, db, "uninstall.sql", "postgres", "-v", "role="+role)
	}
	exists := func() bool {
		return db.Int("SELECT count(*) FROM pg_namespace, pg_roles WHERE nspname = 'cleanupd' AND rolname = $1",
			role) == 1
	}
	refuses := func(when, role, want string) {
		t.Helper()
		if out, err := uninstall(role); err == nil || !strings.Contains(out, want) || !exists() {
			t.Errorf("%s: %v\n%s", when, err, out)
		}
	}
	refuses("while the service runs", role, "is connected to "+db.Name+": stop the service first")
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait()
	db.Until("SELECT (count(*) = 0)::int FROM pg_stat_activity WHERE usename = $1", role)
	refuses("with the role of the application", campaigndb.Role, "so it may not be a role of the service alone")
	refuses("with another name", "nobody_of_this_name", "there is no role")
	db.Superuser("CREATE VIEW public.report AS SELECT id FROM cleanupd.run")
	refuses("with a view that depends on it", role, "report")
	db.Superuser("DROP VIEW public.report; CREATE TABLE public.theirs (); ALTER TABLE public.theirs OWNER TO " + role)
	refuses("with a table of the role", role, "owns the table public.theirs")
	db.Superuser("DROP TABLE public.theirs")
	db.Superuser("CREATE TABLE cleanupd_trash.rows_1 (); ALTER TABLE cleanupd_trash.rows_1 OWNER TO " + role)
	refuses("with something in the trash", role, "restore or purge")
	db.Superuser("DROP TABLE cleanupd_trash.rows_1")
	if out, err := uninstall(role); err != nil || exists() {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := db.Int("SELECT count(*) FROM pg_roles WHERE rolname = $1", role); n != 0 {
		t.Error("the role remains")
	}
	if n := db.Int(tables); n != before {
		t.Errorf("the application has %d tables, want %d", n, before)
	}
}
