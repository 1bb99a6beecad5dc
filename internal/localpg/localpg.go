// Package localpg runs a private PostgreSQL for the demo and the tests: in its own temporary folder, with a socket
// there, which no other user of the machine reaches, removed at the end. Started by root it runs as another user, since
// PostgreSQL refuses to run as root.
package localpg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/daemon"
)

// Server is a running PostgreSQL.
type Server struct {
	dir      string
	remove   func() // removes dir
	bin      string
	owner    *syscall.Credential
	settings []string
	cmd      *exec.Cmd
	done     chan error
}

// port is that of the socket, whose folder is the server's own.
const port = "5432"

// startTimeout is how long a server may take until it answers.
const startTimeout = 60 * time.Second

// Start creates a cluster and starts it. settings are added to its configuration (name=value).
func Start(ctx context.Context, settings ...string) (*Server, error) {
	owner, err := serverUser()
	if err != nil {
		return nil, err
	}
	bin, err := findBinaries(owner)
	if err != nil {
		return nil, err
	}
	return start(ctx, bin, owner, settings...)
}

// start creates a cluster and starts it, with the programs in a folder, as a user.
func start(ctx context.Context, bin string, owner *syscall.Credential, settings ...string) (s *Server, err error) {
	dir, remove, err := makeDir(owner)
	if err != nil {
		return nil, err
	}
	s = &Server{dir: dir, remove: remove, bin: bin, owner: owner, settings: settings}
	half := s
	defer func() {
		if err != nil {
			half.Stop()
		}
	}()
	initdb := daemon.Command(
		owner,
		filepath.Join(bin, "initdb"),
		"--pgdata",
		s.data(),
		"--username",
		"postgres",
		"--auth",
		"trust",
		"--encoding",
		"UTF8",
		"--locale",
		"C",
		"--no-sync",
		"--no-instructions",
	)
	initdb.Dir = dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s, s.run(ctx)
}

// serverUser returns the user that PostgreSQL runs as if this process runs as root.
func serverUser() (*syscall.Credential, error) { return daemon.User("postgres", "nobody") }

// makeDir creates a folder for the server's files, and returns a function that removes it.
func makeDir(owner *syscall.Credential) (dir string, remove func(), err error) {
	return daemon.Dir("cleanupd-pg-", owner)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// run starts the server and waits until it answers.
func (s *Server) run(ctx context.Context) error {
	args := []string{
		"-D",
		s.data(),
		"-k",
		s.dir,
		"-p",
		port,
		"-c",
		"listen_addresses=",
		"-c",
		"fsync=off",
		"-c",
		"synchronous_commit=off",
		"-c",
		"full_page_writes=off",
		"-c",
		"max_connections=200",
		"-c",
		"autovacuum=off",
	}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	cmd := daemon.Command(s.owner, filepath.Join(s.bin, "postgres"), args...)
	cmd.Dir = s.dir
	// the folder is another user's
	logFile, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	cmd.Stderr, cmd.Stdout = logFile, logFile
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	s.cmd, s.done = cmd, done
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres", "postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case exit := <-done:
			s.cmd = nil
			said, _ := os.ReadFile(logFile.Name())
			return fmt.Errorf("PostgreSQL ended at its start (%w): %s", exit, said)
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL does not answer: %w", errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// URL returns the address of a database for a role.
func (s *Server) URL(role, database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%s", role, database, url.QueryEscape(s.dir), port)
}

// Client returns a client program of PostgreSQL, such as pgbench, that connects to this server as the superuser.
func (s *Server) Client(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Env = append(os.Environ(), "PGHOST="+s.dir, "PGUSER=postgres", "PGPORT="+port)
	return cmd
}

// Restart stops the server, after disconnecting its sessions (fast) or as by a crash, and starts it again.
func (s *Server) Restart(ctx context.Context, fast bool) error {
	signal := syscall.SIGQUIT
	if fast {
		signal = syscall.SIGINT
	}
	s.end(signal)
	return s.run(ctx)
}

// Crash stops the server immediately, without a clean shutdown.
func (s *Server) Crash() { s.end(syscall.SIGQUIT) }

// Stop stops the server immediately and removes its files.
func (s *Server) Stop() {
	s.Crash()
	s.remove()
}

// end stops the server, by force if that takes too long.
func (s *Server) end(signal syscall.Signal) {
	if s.cmd == nil {
		return
	}
	daemon.End(s.cmd, s.done, signal)
	s.cmd = nil
}
