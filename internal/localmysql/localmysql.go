// Package localmysql runs a private MariaDB server for the demo and the tests. The server's files and socket are in a
// temporary folder, which is removed at the end.
package localmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/cleanupd/cleanupd/internal/daemon"
)

// ErrNoServer means that no MariaDB is installed.
var ErrNoServer = errors.New("MariaDB not found: install it (on Debian and Ubuntu: apt-get install mariadb-server)")

type Server struct {
	dir     string
	remove  func() // removes dir
	process *daemon.Process
}

// Start starts a server. settings are additional options (--name=value).
func Start(ctx context.Context, settings ...string) (s *Server, err error) {
	install, installErr := exec.LookPath("mariadb-install-db")
	program, programErr := find("mariadbd", "/usr/sbin/mariadbd")
	if errors.Join(installErr, programErr) != nil {
		return nil, ErrNoServer
	}
	owner, err := daemon.User("mysql", "nobody")
	if err != nil {
		return nil, err
	}
	dir, remove, err := daemon.Dir("cleanupd-mysql-", owner)
	if err != nil {
		return nil, err
	}
	s = &Server{dir: dir, remove: remove}
	half := s
	defer func() {
		if err != nil {
			half.Stop()
		}
	}()
	data := filepath.Join(dir, "data")
	ownTemp := "TMPDIR=" + dir // a server deletes temporary tables at its start, even of another server
	init := daemon.Command(owner, install, append([]string{
		"--no-defaults",
		"--datadir=" + data,
		"--auth-root-authentication-method=normal",
		"--skip-test-db",
		"--skip-name-resolve",
	}, settings...)...)
	init.Dir, init.Env = dir, append(init.Env, ownTemp)
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	cmd := daemon.Command(owner, program, append([]string{
		"--no-defaults",
		"--datadir=" + data,
		"--socket=" + s.socket(),
		"--skip-networking",
		"--skip-name-resolve",
		"--pid-file=" + filepath.Join(dir, "pid"),
		"--innodb-flush-log-at-trx-commit=0",
		"--innodb-buffer-pool-size=64M",
		"--innodb-doublewrite=0",
		"--max-connections=200",
	}, settings...)...)
	cmd.Env = append(cmd.Env, ownTemp)
	db, err := sql.Open("mysql", s.Config("root", "").FormatDSN())
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	s.process, err = daemon.Start(ctx, "MariaDB", dir, cmd, db.PingContext)
	return s, err
}

func find(name, usual string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(usual)
}

func (s *Server) socket() string { return filepath.Join(s.dir, "socket") }

func (s *Server) Config(user, database string) *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = user, "unix", s.socket(), database
	c.Logger = &mysql.NopLogger{}
	return c
}

func (s *Server) URL(user, database string) string {
	return fmt.Sprintf("mysql://%s@/%s?socket=%s", user, database, url.QueryEscape(s.socket()))
}

func (s *Server) Stop() {
	if s.process != nil {
		s.process.End(syscall.SIGKILL)
	}
	s.remove()
}
