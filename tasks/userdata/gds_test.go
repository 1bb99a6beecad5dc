package userdata

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe that has replaced a folder is refused, though nobody writes to it.
func TestPipeInAFoldersPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.ReadDir(directories{root}, "pipe"); err == nil {
		t.Error("it was read")
	}
	if entries, err := fs.ReadDir(directories{root}, "."); err != nil || len(entries) != 1 {
		t.Error(entries, err)
	}
}
