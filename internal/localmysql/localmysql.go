// Package localmysql runs a private MariaDB server for the demo and the tests. The server's files and socket are in a
// temporary folder, which is removed at the end.
package localmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/cleanupd/cleanupd/internal/daemon"
)

// ErrNoServer reports that MariaDB is not installed.
var ErrNoServer = errors.New("no MariaDB was found: install it (Debian and Ubuntu: apt-get install mariadb-server)")

// Server is a running server.
type Server struct {
	dir    string
	remove func() // removes dir
	cmd    *exec.Cmd
	done   chan error
}

// startTimeout limits how long a server may take until it answers.
const startTimeout = 60 * time.Second

// Start creates the files of a server and starts it with additional options (--name=value).
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
	init := daemon.Command(
		owner,
		install,
		append(
			[]string{
				"--no-defaults",
				"--datadir=" + data,
				"--auth-root-authentication-method=normal",
				"--skip-test-db",
				"--skip-name-resolve",
			},
			settings...)...)
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
	cmd.Dir, cmd.Env = dir, append(cmd.Env, ownTemp)
	// the folder is another user's
	logFile, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = logFile.Close() }()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	s.cmd, s.done = cmd, done
	return s, s.await(ctx)
}

// find returns the path of a program, on the PATH or where it usually is.
func find(name, usual string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(usual)
}

// await waits until the server answers.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	db, err := sql.Open("mysql", s.Config("root", "").FormatDSN())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case exit := <-s.done:
			s.cmd = nil
			output, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("MariaDB ended at its start (%w): %s", exit, output)
		case <-ctx.Done():
			return fmt.Errorf("MariaDB does not answer: %w", errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) socket() string { return filepath.Join(s.dir, "socket") }

// Config returns how to connect to a database as a user.
func (s *Server) Config(user, database string) *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = user, "unix", s.socket(), database
	c.Logger = &mysql.NopLogger{}
	return c
}

// URL returns the address of a database for a user.
func (s *Server) URL(user, database string) string {
	return fmt.Sprintf("mysql://%s@/%s?socket=%s", user, database, url.QueryEscape(s.socket()))
}

// Stop stops the server immediately and removes its files.
func (s *Server) Stop() {
	if s.cmd != nil {
		daemon.End(s.cmd, s.done, syscall.SIGKILL)
	}
	s.remove()
}
