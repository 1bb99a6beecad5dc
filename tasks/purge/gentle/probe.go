package gentle

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// probeSQL commits a transaction that changes no table and waits until it is durable, as the application's commits do.
const probeSQL = "SELECT pg_logical_emit_message(true, 'cleanupd', '')"

func Probe(ctx context.Context, pool *pgxpool.Pool) (time.Duration, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	begun := time.Now()
	_, err = conn.Exec(ctx, probeSQL)
	return time.Since(begun), err
}
