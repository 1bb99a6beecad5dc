package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// newContexts gives the test a folder for contexts, and returns the path of their file.
func newContexts(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", folder)
	return filepath.Join(folder, "cleanupd", "contexts.yaml")
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
