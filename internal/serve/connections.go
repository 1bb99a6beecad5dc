package serve

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
)

// callConns is how many connections there are for callers' calls, and callTimeout how long a statement of one may take,
// whatever the URL says.
const (
	maxCallConnections = 8
	callTimeout        = "5s"
)

// forCalls is the configuration of the pool for callers' calls.
func callPoolConfig(config *pgxpool.Config) *pgxpool.Config {
	config = config.Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = maxCallConnections, 0, 0
	connection.Set(config.ConnConfig, map[string]string{"statement_timeout": callTimeout})
	return config
}

// enough is how many connections a replica can do with, besides one for each worker: for the account of a run, its
// lease and the load of the server, for notifications, VACUUM and callers. fewest is how many it needs.
const (
	connectionsBesideWorkers = 7
	minConnections           = 2
)

// room returns how many connections the database grants to a pool, up to the number wanted. Connections that were just
// closed may still count there for a moment: where there are too few it asks again.
func availableConnections(ctx context.Context, pool *pgxpool.Pool, wanted int) int {
	ctx, cancel := context.WithTimeout(ctx, flags.ConnectTimeout/2)
	defer cancel()
	n := 0
	for {
		if n = max(n, acquireConnections(ctx, pool, wanted)); n >= minConnections {
			return n
		}
		select {
		case <-ctx.Done():
			return n
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// granted returns how many connections the database grants to a pool at this moment. The pool keeps them.
func acquireConnections(ctx context.Context, pool *pgxpool.Pool, wanted int) int {
	acquired := make([]*pgxpool.Conn, wanted)
	var wg sync.WaitGroup
	for i := range acquired {
		wg.Go(func() { acquired[i], _ = pool.Acquire(ctx) })
	}
	wg.Wait()
	n := 0
	for _, conn := range acquired {
		if conn != nil {
			n++
			conn.Release()
		}
	}
	return n
}
