package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/readiness"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// awaited are the errors that say what the database has to be waited for, by SQLSTATE. They are no fault of a task.
var awaited = map[string]string{
	pgerrcode.DiskFull:               "the disk of the database server is full",
	pgerrcode.TooManyConnections:     "no connection to the database is free",
	pgerrcode.ReadOnlySQLTransaction: "the database is read-only",
	pgerrcode.CannotConnectNow:       "the database server is starting up or shutting down",
}

// errStandby says that a COMMIT was waited for which waits for a synchronous standby itself.
var errStandby = errors.New("the commit waits for a synchronous standby (SyncRep)")

// waitsFor is what has to be waited for after an error; empty: the error is none that says so.
func waitsFor(err error) string {
	var connect *pgconn.ConnectError
	switch what := awaited[sqlstate.Of(err)]; {
	case what != "":
		return what
	case errors.Is(err, errStandby):
		return errStandby.Error()
	case errors.Is(err, connection.ErrStandby):
		return connection.ErrStandby.Error()
	case errors.Is(err, connection.ErrReadOnly):
		return connection.ErrReadOnly.Error()
	case errors.As(err, &connect):
		return "no connection to the database can be opened"
	}
	return ""
}

// stalled asks whether a session of this role has been waiting for a synchronous standby for some microseconds.
const stalled = `SELECT EXISTS (SELECT FROM pg_stat_get_activity(NULL) WHERE wait_event = 'SyncRep'
	AND state_change < clock_timestamp() - $1::bigint * interval '1 microsecond'
	AND usesysid = (SELECT oid FROM pg_roles WHERE rolname = current_user) AND datid = (SELECT oid FROM pg_database
		WHERE datname = current_database()))`

// within does something under a time limit. If it took too long, or longer than lock_timeout, because a COMMIT waits
// for a standby, its error wraps errStandby. That only shows while it lasts: a COMMIT that is given up waits no longer,
// and stands.
func (m *Manager) within(ctx context.Context, limit time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	seen := make(chan bool, 1)
	look := time.AfterFunc(limit/2, func() {
		var is bool
		_ = m.pool.QueryRow(ctx, stalled, (limit / 4).Microseconds()).Scan(&is)
		seen <- is
	})
	err := do(ctx)
	tooLong := err != nil && (ctx.Err() != nil || sqlstate.Is(err, pgerrcode.LockNotAvailable))
	if look.Stop() || !tooLong || !<-seen {
		return err
	}
	return fmt.Errorf("%w: %w", errStandby, err)
}

// writeTimeout is how long a write may take that tells whether the database can be written, trustWrites for how long
// another write that was answered tells it, or a third of the lease if that is shorter: a silent replica may have
// waited for a standby since.
const (
	writeTimeout = 1500 * time.Millisecond
	trustWrites  = 5 * time.Second
)

// pulse is what is known about whether the database can be written.
type pulse struct {
	readiness.Check
	wrote atomic.Int64 // when a synchronous COMMIT was last answered, in Unix nanoseconds
}

// answered records a synchronous COMMIT.
func (p *pulse) answered() { p.wrote.Store(time.Now().UnixNano()) }

// writable fails while the database takes no writes, or lacks the service's schema. Its error is for everyone.
func (m *Manager) writable(ctx context.Context) error {
	return m.pulse.Get(func(last error) error {
		err := m.write(context.WithoutCancel(ctx))
		var now error
		if err != nil {
			now = errors.New(cmp.Or(waitsFor(err), "the database does not answer"))
		}
		switch {
		case now == nil && last != nil:
			m.log.Info("the database can be written again")
		case now != nil && (last == nil || last.Error() != now.Error()):
			m.log.Warn("the database can not be written", "reason", now, "error", err)
		}
		return now
	})
}

// write writes a few bytes of WAL, of no table, unless another write was answered lately.
func (m *Manager) write(ctx context.Context) error {
	b := &pgx.Batch{}
	b.Queue("UPDATE cleanupd.run SET epoch = epoch WHERE false") // fails where it is read-only
	if time.Since(time.Unix(0, m.pulse.wrote.Load())) >= min(trustWrites, m.lease/3) {
		b.Queue("SELECT pg_logical_emit_message(true, 'cleanupd', '')")
	}
	err := m.within(ctx, writeTimeout, func(ctx context.Context) error { return m.pool.SendBatch(ctx, b).Close() })
	if err == nil && b.Len() > 1 {
		m.pulse.answered()
	}
	return err
}

// Ready fails while nothing can be written to the database, or a run waits here until it can; its error says what is
// waited for, and is for everyone. It asks the database once a second at most.
func (m *Manager) Ready(ctx context.Context) error {
	if err := m.writable(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, what := range m.atWork {
		if what != "" {
			return fmt.Errorf("run %s waits: %s", id, what)
		}
	}
	return nil
}

// waits records what one of this replica's runs waits for; empty: for nothing any more.
func (m *Manager) waits(id, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.atWork[id] = what
}
