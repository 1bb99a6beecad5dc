package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/message"
)

// MaxAttempts is how often a batch with a transient error is tried, by SQLSTATE. Each attempt waits for its locks.
var MaxAttempts = map[string]int{
	pgerrcode.SerializationFailure: 8, pgerrcode.DeadlockDetected: 8, pgerrcode.LockNotAvailable: 3,
	pgerrcode.UniqueViolation: 8, // another session took a new id in between
}

var errPersists = errors.New("still failing after retries")

// Retry repeats a batch after transient errors, with random exponential backoff. name identifies the batch in messages.
func (e *Engine) Retry(ctx context.Context, name string, batch func() error) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 5*time.Second
	for attempt := 1; ; attempt++ {
		err := batch()
		var pgErr *pgconn.PgError
		// without a SQLSTATE the connection is lost, and with it the batch: the run goes on in a new epoch (runs/worker.go)
		if !errors.As(err, &pgErr) || MaxAttempts[pgErr.Code] == 0 || errors.Is(err, errPersists) {
			return err
		}
		maxAttempts := MaxAttempts[pgErr.Code]
		if attempt >= maxAttempts {
			if e.Lock != 0 && pgErr.Code == pgerrcode.LockNotAvailable {
				if squatter := advisory.Squatted(ctx, e.Pool, e.Lock, true); squatter != nil {
					err = squatter // without the SQLSTATE, which would make the sweep skip rows as locked
				}
			}
			return fmt.Errorf("%w (%d times): %w", errPersists, attempt, err)
		}
		e.Recorder.Warn(message.BatchRetried.With("object", name, "error", Message(err), "attempts", maxAttempts))
		e.Recorder.Retried(pgErr.Code)
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := e.Recorder.Proceed(ctx); err != nil {
			return err
		}
	}
}

// settings returns the settings of batches as SQL, each with set, which is SET or SET LOCAL. The idle timeout keeps
// a frozen worker from holding its locks forever.
func (e *Engine) settings(set string) string {
	all := []string{
		fmt.Sprintf("lock_timeout = %d", cmp.Or(e.LockTimeout, 2*time.Second).Milliseconds()),
		fmt.Sprintf("statement_timeout = %d", cmp.Or(e.StatementTimeout, 30*time.Second).Milliseconds()),
		"idle_in_transaction_session_timeout = '10s'", "jit = off",
		"max_parallel_workers_per_gather = 0", // the other cores are the application's
		// parents without an index are hashed if they fit, otherwise scanned for each row
		"work_mem = '64MB'",
		"idle_session_timeout = 0", // between batches a worker may have to wait
		// for the bounds of partitions: other styles abbreviate time zones ambiguously
		"datestyle = 'ISO'",
	}
	if !e.Durable {
		all = append(all, "synchronous_commit = "+cmp.Or(e.SynchronousCommit, "off"))
	}
	return set + " " + strings.Join(all, "; "+set+" ")
}

// prologue returns the SELECT with which each batch begins: it calls the given functions, and those that the engine
// needs. It is empty if there are none.
func (e *Engine) prologue(calls ...string) string {
	if e.FlushStats {
		calls = append(calls, "pg_stat_force_next_flush()")
	}
	if e.Lock != 0 {
		calls = append(calls, fmt.Sprintf("pg_advisory_xact_lock_shared(%d)", e.Lock))
	}
	if calls == nil {
		return ""
	}
	return "SELECT " + strings.Join(calls, ", ")
}

// session is a connection for many batches, one after another. The statements that begin a batch are sent together,
// and so are those that end it.
type session struct {
	engine *Engine
	conn   *pgxpool.Conn
	reads  time.Duration // how long a statement that reads much of a table may take; 0 means the usual timeout
	blocks int64         // how many blocks the table has that is read
}

const followTimeout = 30 * time.Minute

// session opens a session, which the caller must end.
func (e *Engine) session(ctx context.Context) (*session, error) {
	conn, err := e.Pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{engine: e, conn: conn}
	if _, err := conn.Exec(ctx, e.settings("SET")); err != nil {
		s.end(ctx)
		return nil, err
	}
	return s, nil
}

// end resets the connection and releases it. If the connection cannot be reset, end closes it.
func (s *session) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := connection.Reset(ctx, s.conn.Conn()); err != nil {
		_ = s.conn.Conn().Close(ctx)
	}
	s.conn.Release()
}

// Statements of a batch use generic plans, since planning a statement takes as long as deleting a few hundred rows.
// Their plans must not depend on their parameters.
const genericPlans = "set_config('plan_cache_mode', 'force_generic_plan', true)"

// begin begins a transaction and runs the queued statements. The caller must end the transaction even if begin
// fails.
func (s *session) begin(ctx context.Context, queue func(b *pgx.Batch), calls ...string) (pgx.Tx, error) {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{BeginQuery: beginSQL})
	if sql := s.engine.prologue(calls...); sql != "" {
		b.Queue(sql)
	}
	queue(b)
	results := s.conn.SendBatch(ctx, b)
	err := results.Close()
	return &transaction{Tx: results.Tx(), release: func() {}}, err
}

// prepareReading prepares the session for statements that each read much of a table. They are planned for their
// parameters. In large tables they are JIT-compiled above a certain cost, unless JIT is off on the server; for small
// ones, compiling takes seconds if the planner has no statistics. Compiling the steps of a recursion takes gigabytes of
// memory, and longer than it saves; inlining takes longer than it saves, too.
func (s *session) prepareReading(ctx context.Context) error {
	sql := "SET plan_cache_mode = force_custom_plan"
	switch {
	case s.reads > 0:
		sql += fmt.Sprintf("; SET statement_timeout = %d", s.reads.Milliseconds())
	case s.blocks >= countBlocks:
		sql += "; RESET jit; SET jit_above_cost = 50000; SET jit_optimize_above_cost = 50000; " +
			"SET jit_inline_above_cost = -1"
	}
	_, err := s.conn.Exec(ctx, sql)
	return err
}
