// Package localpg runs a private PostgreSQL for the demo and the tests. Its files and its socket are in a temporary
// folder, which no other user of the machine can enter and which is removed at the end. If root starts it, it runs
// as another user, since PostgreSQL refuses to run as root.
package localpg

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/daemon"
)

type Server struct {
	dir      string
	remove   func() // removes dir
	bin      string
	owner    *syscall.Credential
	settings []string
	process  *daemon.Process // nil while it does not run
}

// port is a part of the name of the socket, which is in the server's own folder.
const port = "5432"

// Start starts a server. settings are added to its configuration (name=value).
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
	initdb := daemon.Command(owner, filepath.Join(bin, "initdb"), "--pgdata="+s.data(),
		"--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir = dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s, s.run(ctx)
}

// serverUser returns the user to run as if this process is root's, since PostgreSQL does not run as root.
func serverUser() (*syscall.Credential, error) { return daemon.User("postgres", "nobody") }

func makeDir(owner *syscall.Credential) (dir string, remove func(), err error) {
	return daemon.Dir("cleanupd-pg-", owner)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) run(ctx context.Context) error {
	args := []string{"-D", s.data(), "-k", s.dir, "-p", port}
	for _, setting := range append(
		[]string{
			"listen_addresses=", "fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200",
			"autovacuum=off",
		},
		s.settings...,
	) {
		args = append(args, "-c", setting)
	}
	cmd := daemon.Command(s.owner, filepath.Join(s.bin, "postgres"), args...)
	process, err := daemon.Start(ctx, "PostgreSQL", s.dir, cmd, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, s.URL("postgres", "postgres"))
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
	s.process = process
	return err
}

func (s *Server) URL(role, database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%s", role, database, url.QueryEscape(s.dir), port)
}

// Client returns a client program, such as pgbench, that connects as the superuser.
func (s *Server) Client(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Env = append(os.Environ(), "PGHOST="+s.dir, "PGUSER=postgres", "PGPORT="+port)
	return cmd
}

// Restart disconnects the sessions if fast is true; otherwise the server stops as in a crash.
func (s *Server) Restart(ctx context.Context, fast bool) error {
	signal := syscall.SIGQUIT
	if fast {
		signal = syscall.SIGINT
	}
	s.end(signal)
	return s.run(ctx)
}

func (s *Server) Crash() { s.end(syscall.SIGQUIT) }

func (s *Server) Stop() {
	s.Crash()
	s.remove()
}

func (s *Server) end(signal syscall.Signal) {
	if s.process != nil {
		s.process.End(signal)
		s.process = nil
	}
}
