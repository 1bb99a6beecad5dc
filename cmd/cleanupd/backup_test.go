package main

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// The application's role cannot read the schema of a service with a role of its own. The service says so, and backups
// work again once its advice is followed.
func TestBackupsByTheApplication(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, server := pgtest.Private(t)
	if r := startServer(t, "--database-url", db.URL()); strings.Contains(r.log.String(), "pg_dump") {
		t.Errorf("with the application's role: %s", r.log)
	}
	db.Do("DROP SCHEMA cleanupd CASCADE")
	if r := startServer(t, "--database-url", server.URL("postgres", db.Name)); !strings.Contains(
		r.log.String(), "pg_dump -N cleanupd",
	) {
		t.Errorf("no warning: %s", r.log)
	}
	db.Superuser("DROP SCHEMA cleanupd CASCADE")
	const dry = "run --dry-run --task sessions"
	for i, command := range []string{dry, "policies list", dry} { // without a server, once
		args := append(strings.Fields(command), "--database-url", server.URL("postgres", db.Name))
		if code, _, errs := cleanupd(t, args...); code != 0 || strings.Contains(errs, "pg_dump -N cleanupd") != (i == 0) {
			t.Errorf("%s: %d %s", command, code, errs)
		}
	}
	for _, command := range []string{"pg_dump -f /dev/null", "vacuumdb --analyze-only"} {
		for exclude, works := range map[string]bool{"": false, " -N cleanupd": true} {
			args := strings.Fields(command + exclude)
			out, err := server.Client(t.Context(), args[0], append(args[1:], db.URL())...).CombinedOutput()
			if args[0] == "vacuumdb" && works && strings.Contains(string(out), "invalid option") { // before version 16
				continue
			}
			if (err == nil) != works {
				t.Errorf("%v: %v %s", args, err, out)
			}
		}
	}
}
