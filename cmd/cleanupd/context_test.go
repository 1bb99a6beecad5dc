package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// newContexts gives the test a folder for contexts, and returns the path of their file.
func newContexts(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", folder)
	return filepath.Join(folder, "cleanupd", "contexts.yaml")
}

// A context has the address of a server and the names of files, but no token. Commands use the one of --context, or the
// current one, unless a server is given; a flag or a variable replaces one of its settings.
func TestContexts(t *testing.T) {
	file := newContexts(t)
	db := pgtest.Campaign(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("let me in\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startServer(t, "--database-url", db.URL(), "--token-file", tokenFile(t, "viewer", "let-me-in"))
	do := func(command string) (int, string, string) { return cleanupd(t, strings.Fields(command)...) }
	want := func(command string, code int, parts ...string) {
		t.Helper()
		got, out, errs := do(command)
		for _, part := range parts {
			if !strings.Contains(out+errs, part) {
				t.Errorf("%s: %q is not in %s%s", command, part, out, errs)
			}
		}
		if got != code {
			t.Errorf("%s: status %d: %s%s", command, got, out, errs)
		}
	}
	want("context", 0, "CONTEXT")
	want("context add prod --server "+r.grpc+" --token-file "+token, 2, "one token")
	if err := os.WriteFile(token, []byte("let-me-in\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("context add prod", 2, "--server is required")
	want("context add prod --server nonsense", 2, "HOST:PORT")
	want("context add two/words --server "+r.grpc, 2, "not a name")
	want("context add prod --server "+r.grpc+" --token-file /nowhere", 2, "/nowhere")
	want("context add prod --server db.example:1 --token-file "+token, 2, "plain text")
	want("context use prod", 2, `no context "prod"`)
	want("context add prod --server "+r.grpc+" --token-file "+token, 0, "added", "cleanupd context use prod")
	text, err := os.ReadFile(file)
	info, statErr := os.Stat(file)
	if err != nil || statErr != nil || info.Mode().Perm() != 0o600 || strings.Contains(string(text), "let-me-in") {
		t.Fatalf("%v %v %v: %s", err, statErr, info.Mode(), text)
	}
	if others, _ := os.ReadDir(filepath.Dir(file)); len(others) != 1 {
		t.Errorf("%d files are left in its folder", len(others))
	}

	// whether or not a server listens at the default address
	if _, _, errs := do("runs"); !strings.Contains(
		errs, "Server 127.0.0.1:9090, the default: no context is in use (cleanupd context use NAME).\n",
	) {
		t.Error(errs)
	}
	want("runs --server "+r.grpc, 1, "credentials")
	want("runs --context prod", 0, "RUN")
	want("runs --context test", 2, `no context "test"`, "prod")
	want("context use prod", 0, "current one")
	if code, out, errs := do("runs"); code != 0 || errs != "" {
		t.Errorf("%d %s %s", code, out, errs)
	}
	want("context add test --server 127.0.0.1:1", 0, "added")
	want("context", 0, "*  prod", r.grpc, "127.0.0.1:1", token)
	want("context list -o json", 0, `"current":"prod"`, `"tokenFile":"`+token+`"`)
	want("runs", 0, "Server "+r.grpc+" of the context prod.")
	want("runs --context test", 1, "cannot reach 127.0.0.1:1")
	want("runs --context prod --server 127.0.0.1:1", 1, "cannot reach 127.0.0.1:1", "its token is not sent")
	want("runs --server 127.0.0.1:1", 1, "cannot reach 127.0.0.1:1")
	want("run --task sessions", 1, "needs the role")
	t.Setenv("CLEANUPD_TOKEN", "another-one")
	want("runs", 1, "credentials")
	t.Setenv("CLEANUPD_TOKEN", "let-me-in")
	t.Setenv("CLEANUPD_CONTEXT", "test")
	want("runs", 1, "cannot reach 127.0.0.1:1")
	t.Setenv("CLEANUPD_SERVER", "127.0.0.1:2")
	want("context add other --server 127.0.0.1:3", 0)
	want("context", 0, "127.0.0.1:3")
	want("runs --context prod", 1, "cannot reach 127.0.0.1:2", "Server 127.0.0.1:2, as given, not "+r.grpc)
	want("context remove prod", 0, "removed")
	want("context remove prod", 2, "there are other, test")

	for _, broken := range []string{
		"contexts: [", "current: prod", "contexts: {a: {}}", "contexts: {a: {server: x, token: secret}}",
	} {
		if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		want("runs --context a", 2, "mend or remove it: "+file)
		want("context add prod --server 127.0.0.1:1", 2, "mend or remove it: "+file)
	}
	want("runs --server "+r.grpc+" --context=", 2, "mend or remove it")
}

// Commands that change contexts at once all succeed, and a link to the file stays one.
func TestContextsAtOnce(t *testing.T) {
	link := newContexts(t)
	file := filepath.Join(t.TempDir(), "real.yaml")
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(link), 0o700), os.WriteFile(file, []byte("contexts: {}\n"), 0o600),
		os.Symlink(file, link),
	); err != nil {
		t.Fatal(err)
	}
	var commands sync.WaitGroup
	const many = 10
	for i := range many {
		commands.Go(func() {
			code, out, errs := cleanupd(t, "context", "add", fmt.Sprintf("c%d", i), "--server", "127.0.0.1:9090")
			if code != 0 {
				t.Errorf("status %d: %s%s", code, out, errs)
			}
		})
	}
	commands.Wait()
	text, err := os.ReadFile(file)
	info, linkErr := os.Lstat(link)
	if err != nil || linkErr != nil || info.Mode()&os.ModeSymlink == 0 ||
		strings.Count(string(text), "server:") != many {
		t.Errorf("%v %v %v: %s", err, linkErr, info, text)
	}
}

// --database-url wins over a server that a variable or a context names, and is an error beside a typed one.
func TestDatabaseURLBesideServer(t *testing.T) {
	newContexts(t)
	db := pgtest.Empty(t)
	runs := func(args ...string) string {
		_, _, errs := cleanupd(t, append([]string{"runs", "--database-url", db.URL()}, args...)...)
		return errs
	}
	if code, _, errs := cleanupd(t, "context", "add", "prod", "--server", "127.0.0.1:1"); code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := cleanupd(t, "context", "use", "prod"); code != 0 {
		t.Fatal(errs)
	}
	const own, either = "no service has run on this database yet", "give either a server"
	if errs := runs(); !strings.Contains(errs, own) {
		t.Errorf("beside a context: %s", errs)
	}
	for _, flag := range []string{"--server=127.0.0.1:1", "--context=prod"} {
		if errs := runs(flag); !strings.Contains(errs, either) {
			t.Errorf("beside %s: %s", flag, errs)
		}
	}
	t.Setenv("CLEANUPD_SERVER", "127.0.0.1:1")
	t.Setenv("CLEANUPD_CONTEXT", "prod")
	if errs := runs(); !strings.Contains(errs, own) {
		t.Errorf("beside variables: %s", errs)
	}
	if errs := runs("--server", "127.0.0.1:2"); !strings.Contains(errs, either) {
		t.Errorf("beside a flag and variables: %s", errs)
	}
}
