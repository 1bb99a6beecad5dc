// Package daemon runs the private database servers of the demo and the tests. They run in temporary folders, as
// another user if this process runs as root, and end with this process.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cleanupd/cleanupd/internal/tempdir"
)

// maxParent is the longest path, in bytes, of a folder in which a server's folder still has room for the path of a
// socket.
const maxParent = 64

// Dir creates a folder that belongs to owner, or to this process's user if owner is nil. It is in the temporary folder,
// or in /tmp if a server could not open a socket there.
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

// reachable reports whether the user may enter the folder; nil means this process's user.
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

// Command returns a program that runs as owner and ends with this process.
func Command(owner *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = processAttributes(owner)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	return cmd
}

// startTimeout is how long a server may take until it answers.
const startTimeout = time.Minute

type Process struct {
	cmd  *exec.Cmd
	done chan error // receives the reason why it ended
}

// Start starts a server and waits until ping succeeds. Its log goes to a file in dir. Errors call the server by
// name.
func Start(ctx context.Context, name, dir string, cmd *exec.Cmd, ping func(context.Context) error) (*Process, error) {
	// another user may own the folder
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		pingErr := ping(ctx)
		if pingErr == nil {
			return p, nil
		}
		select {
		case exit := <-p.done:
			text, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("%s ended at its start (%w): %s", name, exit, text)
		case <-ctx.Done():
			p.End(syscall.SIGQUIT)
			return nil, fmt.Errorf("%s does not answer: %w", name, errors.Join(ctx.Err(), pingErr))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// End sends the signal, and kills the program if that does not end it within ten seconds.
func (p *Process) End(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}
