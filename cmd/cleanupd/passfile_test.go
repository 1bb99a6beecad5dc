package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// The password of each database may be in a file, which a URL or PGPASSFILE names, instead of in the URL. It may be
// changed while the service is running.
func TestPasswordFile(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db, _ := pgtest.Private(t)
	db.Superuser(`ALTER ROLE neolane PASSWORD 'open sesame';
		DO $$ BEGIN
			EXECUTE format('COPY (VALUES (''local all postgres trust''), (''local all all scram-sha-256'')) TO %L',
				current_setting('hba_file'));
		END $$;
		SELECT pg_reload_conf()`)
	for end := time.Now().Add(time.Minute); ; { // until the server has reloaded it
		if code, _, errs := cleanupd(t, "migrate", "--database-url", db.URL()); code == 1 &&
			strings.Contains(errs, "password") {
			break
		} else if time.Now().
			After(end) {
			t.Fatalf("%d %s", code, errs)
		}
	}
	file := filepath.Join(t.TempDir(), "pgpass")
	if err := os.WriteFile(
		file,
		[]byte(
			"# host:port:database:user:password\n*:*:other:neolane:wrong\nlocalhost:*:campaign:neolane:open sesame\n"),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	program := func(passfile string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "PGPASSFILE="+passfile)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{
		{"migrate", "--database-url"},
		{"migrate", "--forms-database-url"},
		{"audit", "--database-url"},
	} {
		if code, out, errs := cleanupd(t, append(args, db.URL()+"&passfile="+file)...); code != 0 {
			t.Errorf("%v: %d %s %s", args, code, out, errs)
		}
		if out, err := program(file, append(args, db.URL())...); err != nil {
			t.Errorf("%v with PGPASSFILE: %v %s", args, err, out)
		}
		if out, err := program("/nowhere", append(args, db.URL())...); err == nil || !strings.Contains(
			out, args[1]+": the password file: open /nowhere",
		) ||
			strings.Count(out, "\n") != 1 {
			t.Errorf("%v with a file that is not there: %v %s", args, err, out)
		}
	}
	r := startServer(t, "--database-url", db.URL()+"&passfile="+file)
	db.Superuser(
		"ALTER ROLE neolane PASSWORD 'rotated'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename " +
			"= 'neolane'",
	)
	if err := os.WriteFile(file, []byte("*:*:campaign:neolane:rotated\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; {
		code, out, errs := r.run(t, "run --task sessions")
		if code == 0 && strings.Contains(out, "succeeded") {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("after the password was changed: %d %s %s", code, out, errs)
		}
	}
}
