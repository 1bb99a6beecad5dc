package tempdir

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const childIn = "CLEANUPD_TEMPDIR_CHILD"

// A child process makes a folder, prints its name, and waits to be killed, at most until its standard input ends.
func TestMain(m *testing.M) {
	if parent := os.Getenv(childIn); parent != "" {
		dir, remove, err := New(parent, "x-")
		if err != nil {
			panic(err)
		}
		defer remove()
		fmt.Println(dir)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	os.Exit(m.Run())
}

func exists(t *testing.T, dir string) bool {
	t.Helper()
	_, err := os.Stat(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestRemove(t *testing.T) {
	dir, remove, err := New(t.TempDir(), "x-")
	if err != nil {
		t.Fatal(err)
	}
	if !exists(t, dir) {
		t.Fatal("no folder was made")
	}
	remove()
	if exists(t, dir) {
		t.Error("the folder is still there")
	}
}

// The folder of a process that was killed is removed by the next New; that of a living process, and folders of others,
// are kept.
func TestSweep(t *testing.T) {
	parent := t.TempDir()
	other := filepath.Join(parent, "x-other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childIn+"="+parent)
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the child printed no folder: ", lines.Err())
	}
	for _, alive := range []bool{true, false} {
		if !alive {
			_ = child.Process.Kill()
			_ = child.Wait()
		}
		_, remove, err := New(parent, "x-")
		if err != nil {
			t.Fatal(err)
		}
		defer remove()
		if got := exists(t, lines.Text()); got != alive {
			t.Errorf("alive %t: the child's folder exists: %t", alive, got)
		}
		if !exists(t, other) {
			t.Error("a folder without a lock file was removed")
		}
	}
}
