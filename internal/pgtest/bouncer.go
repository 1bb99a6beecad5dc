package pgtest

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
)

// owner returns the name of the only user who may enter the folder of the socket.
func owner(t testing.TB, dir string) string {
	t.Helper()
	var is syscall.Stat_t
	if err := syscall.Stat(dir, &is); err != nil {
		return "nobody" // dir is not a folder
	}
	u, err := user.LookupId(strconv.FormatUint(uint64(is.Uid), 10))
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

// Bouncer starts PgBouncer and returns its URL for the application's role. settings are lines of its configuration
// (name = value) that differ from the default. If PgBouncer is not installed, the test is skipped; in CI it fails.
func Bouncer(t testing.TB, db *DB, settings ...string) string {
	t.Helper()
	program := "/usr/sbin/pgbouncer"
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("pgbouncer"); err != nil && os.Getenv("CI") == "" {
			t.Skip("PgBouncer is not installed")
		} else if err != nil {
			t.Fatal(err)
		}
	}
	config, err := pgx.ParseConfig(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "cleanupd-bouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const port = "6432" // names the socket in dir: a port of TCP that is free might be taken before PgBouncer has it
	users, ini := filepath.Join(dir, "users"), filepath.Join(dir, "ini")
	text := fmt.Sprintf(
		"[databases]\n* = host=%s port=%d\n[pgbouncer]\nlisten_addr =\nlisten_port = %s\nunix_socket_dir = %s\n"+
			"auth_type = trust\nauth_file = %s\n",
		config.Host, config.Port, port, dir, users,
	)
	for _, line := range settings {
		text += line + "\n"
	}
	if err := os.WriteFile(ini, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", campaigndb.Role, ""), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{ini}
	if os.Geteuid() == 0 { // PgBouncer does not run as root, and makes its socket in dir
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-u", owner(t, config.Host))
	}
	var said bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stderr, cmd.Stdout = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("PgBouncer: %s", &said)
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL."+port))
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(campaigndb.Role),
		Path:     "/" + db.Name,
		RawQuery: url.Values{"host": {dir}, "port": {port}}.Encode(),
	}
	return u.String()
}
