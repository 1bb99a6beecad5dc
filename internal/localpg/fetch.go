package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cleanupd/cleanupd/internal/daemon"
)

// cacheDir returns, for root, a folder that the server's user can enter.
func cacheDir(owner *syscall.Credential) (string, error) {
	if owner == nil {
		dir, err := os.UserCacheDir()
		return filepath.Join(dir, "cleanupd"), err
	}
	const dir = "/var/cache/cleanupd"
	return dir, errors.Join(
		os.MkdirAll(dir, 0o755), os.Chown(dir, int(owner.Uid), int(owner.Gid)),
	) //nolint:gosec // programs are not secret
}

// fetch downloads PostgreSQL with a separate program of this module, which runs as the server's user. So only those
// who need a download link the packages for it. Its progress goes to stderr.
func fetch(owner *syscall.Credential, cache string) (string, error) {
	module, err := output(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/cleanupd/cleanupd"))
	if err != nil {
		return "", err
	}
	dir, remove, err := makeDir(owner)
	if err != nil {
		return "", err
	}
	defer remove()
	program := filepath.Join(dir, "fetch")
	if _, err := output(
		exec.Command("go", "-C", module, "build", "-o", program, "./internal/localpg/fetch"),
	); err != nil {
		return "", err
	}
	download := daemon.Command(owner, program, cache)
	download.Dir, download.Stderr = dir, os.Stderr
	said, err := download.Output()
	text := strings.TrimSpace(string(said))
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", errors.New(text)
	}
	return text, err
}

// output returns the command's output without the last newline. Its error contains the standard error.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
