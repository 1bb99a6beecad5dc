package localpg

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/daemon"
)

// Standby starts a synchronous standby, which may be promoted. It restarts the primary.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	return s.standby(ctx, "synchronous_standby_names=*")
}

// AsynchronousStandby starts a standby for which no COMMIT waits.
func (s *Server) AsynchronousStandby(ctx context.Context) (*Server, error) { return s.standby(ctx) }

// standby restarts the primary with these settings.
func (s *Server) standby(ctx context.Context, settings ...string) (standby *Server, err error) {
	dir, remove, err := makeDir(s.owner)
	if err != nil {
		return nil, err
	}
	standby = &Server{dir: dir, remove: remove, bin: s.bin, owner: s.owner, settings: slices.Clone(s.settings)}
	half := standby
	defer func() {
		if err != nil {
			half.Stop()
		}
	}()
	s.end(syscall.SIGINT)
	if out, err := daemon.Command(s.owner, "cp", "-R", "-p", s.data(), standby.data()).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy the server: %w\n%s", err, out)
	}
	if out, err := daemon.Command(s.owner, "touch", filepath.Join(standby.data(), "standby.signal")).
		CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	s.settings = append(s.settings, settings...)
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	if err := standby.run(ctx); err != nil {
		return nil, err
	}
	return standby, standby.CatchUp(ctx, s)
}

// CatchUp makes the standby receive all that the primary has written and will write.
func (s *Server) CatchUp(ctx context.Context, primary *Server) error {
	return s.receive(ctx, fmt.Sprintf("host=%s port=%s user=postgres", primary.dir, port))
}

// FallBehind waits until the standby has what the primary has committed so far, and then stops it from receiving
// more.
func (s *Server) FallBehind(ctx context.Context, primary *Server) error {
	const flushed = "SELECT pg_current_wal_flush_lsn()::text"
	var position string
	if err := primary.do(
		ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, flushed).Scan(&position) },
	); err != nil {
		return err
	}
	if err := s.until(ctx, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", position); err != nil {
		return err
	}
	if err := s.receive(ctx, ""); err != nil {
		return err
	}
	return s.until(ctx, "SELECT count(*) = 0 FROM pg_stat_wal_receiver")
}

func (s *Server) Promote(ctx context.Context) error { return s.until(ctx, "SELECT pg_promote()") }

// receive takes the connection string of the primary; "" stops the standby from receiving.
func (s *Server) receive(ctx context.Context, primary string) error {
	return s.do(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "ALTER SYSTEM SET primary_conninfo = '"+primary+"'"); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "SELECT pg_reload_conf()")
		return err
	})
}

func (s *Server) until(ctx context.Context, question string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.do(ctx, func(conn *pgx.Conn) error {
		for {
			var answer bool
			if err := conn.QueryRow(ctx, question, args...).Scan(&answer); err != nil || answer {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

func (s *Server) do(ctx context.Context, what func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return what(conn)
}
