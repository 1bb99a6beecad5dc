// Package daemon runs the private database servers of the demo and the tests: as another user if this process is root's, in temporary
// folders, and not longer than this process.
package daemon

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Dir creates a folder for a server's files.
func Dir(prefix string, owner *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil || owner == nil {
		return dir, err
	}
	return dir, os.Chown(dir, int(owner.Uid), int(owner.Gid))
}

// Command is a program that is run as a user, and ends with this process.
func Command(owner *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = processAttributes(owner)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	return cmd
}

// End ends a program by a signal, or by force if that takes too long; done tells when it has ended.
func End(cmd *exec.Cmd, done <-chan error, signal syscall.Signal) {
	_ = cmd.Process.Signal(signal)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		<-done
	}
}
