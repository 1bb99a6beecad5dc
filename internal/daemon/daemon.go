// Package daemon runs the private database servers of the demo and the tests: as another user if this process is
// root's, in temporary folders, and not longer than this process.
package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cleanupd/cleanupd/internal/tempdir"
)

// maxParent is the longest path in which a server's folder still has room for the path of a socket, in bytes.
const maxParent = 64

// Dir creates a folder for a server's files that belongs to owner, or to this process's user if owner is nil, and
// returns a function that removes it. It is made in the temporary folder, or in /tmp if a server could not open a
// socket there.
func Dir(prefix string, owner *syscall.Credential) (dir string, remove func(), err error) {
	parent := os.TempDir()
	if len(parent) > maxParent || !reachable(parent, owner) {
		parent = "/tmp"
	}
	dir, remove, err = tempdir.New(parent, prefix)
	if err != nil || owner == nil {
		return dir, remove, err
	}
	if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}

// reachable reports whether a user may enter a folder; nil is this process's user.
func reachable(dir string, user *syscall.Credential) bool {
	for ; user != nil; dir = filepath.Dir(dir) {
		var stat syscall.Stat_t
		if err := syscall.Stat(dir, &stat); err != nil {
			return false
		}
		enter := uint32(0o001)
		if stat.Uid == user.Uid {
			enter = 0o100
		} else if stat.Gid == user.Gid {
			enter = 0o010
		}
		if uint32(stat.Mode)&enter == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return true
}

// Command returns a command that runs as a user, and ends with this process.
func Command(owner *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = processAttributes(owner)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	return cmd
}

// End ends a program by a signal, or by force if that takes too long; done is closed when it has ended.
func End(cmd *exec.Cmd, done <-chan error, signal syscall.Signal) {
	_ = cmd.Process.Signal(signal)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		<-done
	}
}
