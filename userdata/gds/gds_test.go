package gds

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pipe that has replaced a folder is refused, even without a writer.
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
	folders := directories{t.Context(), root}
	if _, err := fs.ReadDir(folders, "pipe"); err == nil {
		t.Error("it was read")
	}
	if entries, err := fs.ReadDir(folders, "."); err != nil || len(entries) != 1 {
		t.Error(entries, err)
	}
}

// A search that takes too long, or whose server is stopped, fails with the reason and returns nothing.
func TestWalkThatTakesTooLong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "one"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "one.session_wfattach1"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	sessions := []string{"_wfattach1"}
	if documents, _, err := Search(t.Context(), root, sessions); err != nil || len(documents) != 1 {
		t.Fatal(documents, err)
	}
	ctx, stop := context.WithDeadlineCause(t.Context(), time.Now(), errTooSlow)
	defer stop()
	documents, _, err := Search(ctx, root, sessions)
	if !errors.Is(err, errTooSlow) || documents != nil {
		t.Error(documents, err)
	}
	if _, unreadable := NewMarkers(ctx, root, []Document{{Path: "one"}}); !errors.Is(unreadable["."], errTooSlow) {
		t.Error(unreadable)
	}
}

// A marker's name consists of a document and a session, and nothing else.
func FuzzMarker(f *testing.F) {
	for _, name := range []string{
		"", "doc", ".session", "doc.session", "doc.session_wftask12", "doc.session_wftask123", "a.session1.session2",
		".session1.session2", "doc.Session1", "doc.sessio", "a/b.session1", "..session1", "doc.session\n",
		"doc.session.session",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		guid, session, ok := ParseMarker(name)
		switch {
		case !ok && strings.Contains(name, ".session") && !strings.HasPrefix(name, ".session"):
			t.Errorf("%q is no marker", name)
		case !ok:
		case guid == "" || guid+".session"+session != name || strings.Contains(guid, ".session"):
			t.Errorf("%q is a marker of %q for session %q", name, guid, session)
		}
	})
}
