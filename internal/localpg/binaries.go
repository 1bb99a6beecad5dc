package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ErrNoPostgres means that no PostgreSQL could be found or downloaded. It says what to install.
var ErrNoPostgres = errors.New(
	"no PostgreSQL 14 or later was found: install it (Debian and Ubuntu: apt-get install postgresql; macOS: brew " +
		"install postgresql@17)",
)

// oldest is the first major version with TID range scans.
const oldest = 14

// findBinaries returns the folder of initdb and postgres: the one that the environment names, one of this machine,
// or one that it downloads.
func findBinaries(owner *syscall.Credential) (string, error) {
	if dir := os.Getenv("TEST_POSTGRES_BIN"); dir != "" {
		major, err := version(dir)
		if err == nil && major < oldest {
			err = fmt.Errorf("it is version %d, not %d or later", major, oldest)
		}
		if err != nil {
			return "", fmt.Errorf("TEST_POSTGRES_BIN: %w", err)
		}
		return dir, nil
	}
	for _, dir := range candidates() {
		if major, err := version(dir); err == nil && major >= oldest {
			return dir, nil
		}
	}
	cache, err := cacheDir(owner)
	if err != nil {
		return "", err
	}
	dir, err := fetch(owner, cache)
	if err != nil {
		return "", fmt.Errorf("%w (fetching one failed: %s)", ErrNoPostgres, err.Error())
	}
	return dir, nil
}

// candidates returns folders that may have the programs, the most likely ones first.
func candidates() []string {
	var dirs []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
	} {
		found, _ := filepath.Glob(pattern)
		slices.Reverse(found) // the newest first
		dirs = append(dirs, found...)
	}
	return dirs
}

// version returns the major version. It fails if the folder lacks one of the programs.
func version(dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, err
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.18 (Debian …)
	if len(fields) < 3 {
		return 0, fmt.Errorf("%s/postgres --version says %q", dir, out)
	}
	major, _, _ := strings.Cut(fields[2], ".")
	return strconv.Atoi(major)
}
