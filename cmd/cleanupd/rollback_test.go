package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// The next version has one more migration.
func nextVersion(t *testing.T, migration string) (program string) {
	t.Helper()
	folder, err := filepath.Abs("../../service/runs/store/migrations")
	if err != nil {
		t.Fatal(err)
	}
	known, err := filepath.Glob(folder + "/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "next.sql"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{
		"Replace": map[string]string{filepath.Join(folder, fmt.Sprintf("%03d_next.sql", len(known)+1)): file},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{file: migration, overlay: string(replace)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program = filepath.Join(dir, "next")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// A version and the next one share a database: a run that one has started is finished by the other, with exact counts,
// when the program is updated and when it is rolled back. A version refuses a schema only if the schema lacks something
// that the version needs.
func TestRollingUpdateAndRollback(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	pgtest.Empty(t) // skips where there is no PostgreSQL
	const adds = "ALTER TABLE cleanupd.run ADD note text NOT NULL DEFAULT ''; ALTER TABLE cleanupd.task ADD note " +
		"text; CREATE TABLE cleanupd.note (run_id uuid REFERENCES cleanupd.run)"
	this := os.Args[0]
	next := nextVersion(t, adds)
	for name, programs := range map[string][2]string{"update": {this, next}, "rollback": {next, this}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := campaign(t)
			release := db.Sessions(2000)
			first := startProgram(t, programs[0], "--database-url", db.URL())
			id := detach(t, first, "sessions", "audit-trail")
			untilDeleting(db)
			second := startProgram(t, programs[1], "--database-url", db.URL())
			if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			release()
			if err := first.cmd.Wait(); err != nil {
				t.Errorf("the first server ended with %v", err)
			}
			if db.Int("SELECT count(*) FROM XtkSessionInfo") == 0 {
				t.Fatal("the run was through before its server was stopped")
			}
			code, out, errs := second.run(t, "runs watch", id)
			if code != 0 || !regexp.MustCompile(`\nsessions +succeeded +2,000 `).MatchString(out) ||
				db.Int("SELECT count(*) FROM XtkSessionInfo") != 0 {
				t.Errorf("%d %s %s", code, out, errs)
			}
		})
	}
	t.Run("too old", func(t *testing.T) {
		t.Parallel()
		db := campaign(t)
		removes := nextVersion(t,
			"ALTER TABLE cleanupd.run DROP trace_parent; UPDATE cleanupd.schema_version SET oldest = version + 1")
		if out, err := exec.Command(removes, "migrate", "--database-url", db.URL()).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		for _, command := range []string{"serve --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0", "migrate"} {
			if code, out, errs := cleanupd(
				t, append(strings.Fields(command), "--database-url", db.URL())...,
			); code != 1 ||
				!strings.Contains(errs, "use a newer one") {
				t.Errorf("%s: %d %s %s", command, code, out, errs)
			}
		}
	})
}
