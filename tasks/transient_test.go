package tasks_test

import (
	"context"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

type onError struct {
	state string
	do    func()
}

func (onError) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (o onError) TraceQueryEnd(_ context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	if sqlstate.Of(q.Err) == o.state {
		o.do()
	}
}

// A transient error before the first task is retried, with a warning.
func TestTransientErrorBeforeTheFirstTask(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO XtkReject (iRejectId, tsLog) VALUES (1, '2000-01-01')")
	locked := db.Hold("LOCK TABLE XtkOption IN ACCESS EXCLUSIVE MODE")
	config, err := pgxpool.ParseConfig(db.URL() + "&lock_timeout=50")
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = onError{pgerrcode.LockNotAvailable, func() { _ = locked.Rollback(context.Background()) }}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	j := mustRun(t, db, func(c *cleanup.Config) { c.Pool = pool }, "import-rejects")
	j.checkDeleted(t, "import-rejects", 1)
	j.checkLog(t, "WARNING", "the catalog")
}
