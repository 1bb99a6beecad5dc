package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// A server and files with policies.
type policyFiles struct {
	*testing.T
	*replica
	db  *pgtest.DB
	dir string
}

func (f *policyFiles) do(args ...string) (int, string, string) {
	f.Helper()
	return f.run(f.T, "policies", args...)
}

func (f *policyFiles) file(text string) string {
	f.Helper()
	path := filepath.Join(f.dir, "policies.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
	return path
}

// Policies that change while apply asks are not overwritten.
func TestApplyOfPoliciesThatChange(t *testing.T) {
	t.Parallel()
	db := shop(t)
	f := &policyFiles{t, startServer(t, "--database-url", db.URL()), db, t.TempDir()}
	const policy = "{name: old-orders, table: orders, olderThan: {column: placed, days: 30}}"
	if code, out, errs := f.do("set", "-f", f.file(policy)); code != 0 {
		t.Fatal(out, errs)
	}
	other := f.dir + "/other.yaml"
	for name, days := range map[string]string{"old-orders": "31", "new": "32"} {
		text := "{name: " + name + ", table: orders, olderThan: {column: placed, days: " + days + "}}"
		if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		meanwhile := func() {
			if code, out, errs := f.do("set", "-f", other); code != 0 {
				t.Errorf("%d %s %s", code, out, errs)
			}
		}
		file := f.file(strings.ReplaceAll(text, days, "60"))
		code, shown := onTerminalAfter(t, meanwhile, "y", "policies", "apply", file, "--server", f.grpc)
		if code != 1 || !strings.Contains(shown, "nothing was changed: somebody else") ||
			f.db.Int("SELECT count(*) FROM cleanupd.policy WHERE rule::text LIKE '%60%'") != 0 {
			t.Errorf("%s: %d %s", name, code, shown)
		}
	}
}

// With --keep the policies are set, and nothing is deleted before a run is started.
func TestDemoOfAShopKeepsServing(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	pgtest.Empty(t)
	root, out := newRoot(), &logged{more: make(chan struct{})}
	input, keys := io.Pipe()
	root.SetArgs(strings.Fields("demo --profile none --keep --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0"))
	root.SetOut(out)
	root.SetIn(input)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(t.Context()) }()
	server := out.wait(t.Context(), `policies --server (\S+)\n[^§]*Enter or Ctrl-C`)[1]
	code, list, errs := cleanupd(t, "policies", "--server", server)
	if code != 0 || len(regexp.MustCompile(`(?m)^\S+ +yes +no +`).FindAllString(list, -1)) != 4 {
		t.Errorf("%d %s %s", code, list, errs)
	}
	code, runs, errs := cleanupd(t, "runs", "--server", server)
	if code != 0 || strings.Count(runs, "\n") != 1 {
		t.Errorf("%d %s %s", code, runs, errs)
	}
	_, _ = keys.Write([]byte("\n"))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
