package tasks_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

type statements struct {
	mu   sync.Mutex
	sent []string
	args map[string][]any
}

func (s *statements) add(sql string, args []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.args == nil {
		s.args = map[string][]any{}
	}
	s.sent, s.args[sql] = append(s.sent, sql), args
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.add(q.SQL, q.Args)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	s.add(q.SQL, q.Args)
}

func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// trace returns another pool of a database, whose statements are recorded.
func (s *statements) trace(t *testing.T, db *pgtest.DB) *pgxpool.Pool {
	t.Helper()
	c := db.Config().Copy()
	c.ConnConfig.Tracer = s
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (s *statements) with(text string) (n int) {
	for _, sql := range s.sent {
		if strings.Contains(sql, text) {
			n++
		}
	}
	return n
}

// Tasks that run right after each other read the catalog once. The parents of each task are read once per run.
func TestPlansAreMadeOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	var s statements
	pool := s.trace(t, db)
	for _, dryRun := range []bool{true, false} {
		s.sent = nil
		mustRun(t, db, func(c *cleanup.Config) { c.Pool, c.DryRun = pool, dryRun })
		t.Logf("a run of all tasks on an empty database, dry: %t, sent %d statements", dryRun, len(s.sent))
		if read := s.with("has_any_column_privilege"); read > 10 { // it is read again after a second
			t.Errorf("the catalog was read %d times, want at most 10", read)
		}
		if sets := s.with("<> 0 ORDER BY 1"); sets != 4 {
			t.Errorf("the parents of 4 tasks were read %d times, want 4", sets)
		}
	}
}
