package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A client in TypeScript, with types generated from the OpenAPI description, compiles, and works as described.
func TestTypeScript(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "npm", "--version").CombinedOutput(); err != nil {
		missing(t, "npm: %v\n%s", err, out)
	}
	checkout := t.TempDir()
	for _, folder := range []string{"examples/typescript", "gen"} {
		if err := os.CopyFS(filepath.Join(checkout, folder), os.DirFS(filepath.Join("..", folder))); err != nil {
			t.Fatal(err)
		}
	}
	db := audited(t)
	s := serve(t, build(t), db)
	in := func(command string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", command)
		cmd.Dir = filepath.Join(checkout, "examples", "typescript")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := in("npm ci"); err != nil {
		missing(t, "npm ci: %v\n%s", err, out)
	}
	if out, err := in("npm run build"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := in("node client.js " + s.http)
	for _, says := range []string{
		"26 tasks\n",
		"visitors: 60 days, and again 30\n",
		"audit-trail: 30 rows would be deleted\n",
		"the run is RUN_STATE_SUCCEEDED\n",
	} {
		if err != nil || !strings.Contains(out, says) {
			t.Errorf("%v: %s", err, out)
		}
	}
	if db.Int("SELECT count(*) FROM XtkAudit") != 30 || db.Int("SELECT count(*) FROM XtkOption") != 0 {
		t.Error("the example changed something")
	}
	bare := pgtest.Empty(t) // no table of the application: the run fails
	if out, err := in("node client.js " + serve(t, build(t), bare).http); err == nil {
		t.Errorf("it succeeded: %s", out)
	}
}
