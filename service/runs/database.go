package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/readiness"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// awaitedStates are the SQLSTATEs of errors that no task causes and that pass when the database recovers. The texts
// say what is waited for.
var awaitedStates = map[string]string{
	pgerrcode.DiskFull:               "the disk of the database server is full",
	pgerrcode.TooManyConnections:     "no connection to the database is free",
	pgerrcode.ReadOnlySQLTransaction: "the database is read-only",
	pgerrcode.CannotConnectNow:       "the database server is starting up or shutting down",
}

// errStandby says that a COMMIT took too long because it waits for a synchronous standby.
var errStandby = errors.New("the commit waits for a synchronous standby (SyncRep)")

// awaited returns the reason to wait after an error; "" if there is none.
func awaited(err error) string {
	var connect *pgconn.ConnectError
	switch cause := awaitedStates[sqlstate.Of(err)]; {
	case sqlstate.LibraryMissing(err):
		return "PostgreSQL was upgraded under the running server, and must be restarted"
	case cause != "":
		return cause
	case errors.Is(err, errStandby):
		return errStandby.Error()
	case errors.Is(err, connection.ErrStandby):
		return connection.ErrStandby.Error()
	case errors.Is(err, connection.ErrReadOnly):
		return connection.ErrReadOnly.Error()
	case errors.As(err, &connect), errors.Is(err, connection.ErrCredentials):
		return "no connection to the database can be opened"
	}
	return ""
}

const (
	// probeTimeout limits a write that finds out whether the database can be written.
	probeTimeout = 1500 * time.Millisecond
	// trustWrites is for how long a successful write replaces that of the probe, at most a third of the lease. It is
	// short, because the database may begin to wait for a standby at any time.
	trustWrites = 5 * time.Second
)

// database runs short transactions, and keeps track of whether the database can be written.
type database struct {
	pool  *pgxpool.Pool
	log   *slog.Logger
	trust time.Duration
	// timeout limits short transactions. It leaves part of the lease for finding out whether a claim was committed if
	// its COMMIT was not answered.
	timeout time.Duration

	check readiness.Check
	wrote atomic.Int64 // when a synchronous COMMIT was last answered, in Unix nanoseconds
}

func newDatabase(pool *pgxpool.Pool, lease time.Duration, log *slog.Logger) *database {
	return &database{
		pool:    pool,
		log:     log,
		trust:   min(trustWrites, lease/3),
		timeout: min(store.Timeout, lease/2),
	}
}

// waitsForStandby selects whether a session of this role in this database has been waiting for a synchronous standby
// for longer than $1.
const waitsForStandby = `SELECT EXISTS (SELECT FROM pg_stat_get_activity(NULL) WHERE wait_event = 'SyncRep'
	AND state_change < clock_timestamp() - $1::interval
	AND usesysid = (SELECT oid FROM pg_roles WHERE rolname = current_user) AND datid = (SELECT oid FROM pg_database
		WHERE datname = current_database()))`

// within runs do with a time limit. If do takes too long, or exceeds lock_timeout, because a COMMIT waits for a
// standby, the error wraps errStandby. That has to be checked while do still runs, because a COMMIT that is cut off
// stops waiting and takes effect.
func (d *database) within(ctx context.Context, limit time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	seen := make(chan bool, 1)
	look := time.AfterFunc(limit/2, func() {
		var waits bool
		_ = d.pool.QueryRow(ctx, waitsForStandby, limit/4).Scan(&waits)
		seen <- waits
	})
	err := do(ctx)
	tooLong := err != nil && (ctx.Err() != nil || sqlstate.Is(err, pgerrcode.LockNotAvailable))
	if look.Stop() || !tooLong || !<-seen {
		return err
	}
	return fmt.Errorf("%w: %w", errStandby, err)
}

// write is like within, for a transaction with a synchronous COMMIT. If it succeeds, the database can be written.
func (d *database) write(ctx context.Context, limit time.Duration, do func(ctx context.Context) error) error {
	err := d.within(ctx, limit, do)
	if err == nil {
		d.wrote.Store(time.Now().UnixNano())
	}
	return err
}

// checkWritable fails while the database cannot be written, or lacks the service's schema. Its error may be shown
// to any caller.
func (d *database) checkWritable(ctx context.Context) error {
	return d.check.Get(func(last error) error {
		err := d.probe(context.WithoutCancel(ctx))
		var now error
		if err != nil {
			now = errors.New(cmp.Or(awaited(err), "the database does not answer"))
		}
		switch {
		case now == nil && last != nil:
			d.log.Info("the database can be written again")
		case now != nil && (last == nil || last.Error() != now.Error()):
			d.log.Warn("the database cannot be written", "reason", now, "error", err)
		}
		return now
	})
}

// probe writes a few bytes of WAL that belong to no table, unless another write was answered recently.
func (d *database) probe(ctx context.Context) error {
	b := &pgx.Batch{}
	b.Queue(store.WriteProbe)
	send := func(ctx context.Context) error { return d.pool.SendBatch(ctx, b).Close() }
	if time.Since(time.Unix(0, d.wrote.Load())) < d.trust {
		return d.within(ctx, probeTimeout, send)
	}
	b.Queue("SELECT pg_logical_emit_message(true, 'cleanupd', '')")
	return d.write(ctx, probeTimeout, send)
}
