package serve

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
)

// These limit the pool for calls; the URL cannot change them.
const (
	maxCallConnections = 8
	callTimeout        = "5s" // limits each statement
)

func callPoolConfig(config *pgxpool.Config) *pgxpool.Config {
	config = config.Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = maxCallConnections, 0, 0
	connection.Set(config.ConnConfig, map[string]string{"statement_timeout": callTimeout})
	return config
}

// sharedConnections are used by a replica in addition to one connection per worker: for the ledger of a run, its
// lease, the load of the server, notifications, VACUUM and calls. With fewer connections it is slower, and it needs
// at least minConnections.
const (
	sharedConnections = 7
	minConnections    = 2
)

// availableConnections returns how many of the wanted connections the database grants. If these are too few, it
// tries again for a while, since connections that were just closed may still count.
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

// acquireConnections returns how many connections it could open. The pool keeps them.
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
