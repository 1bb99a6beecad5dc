package purge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// windowBlocks is how many blocks of the heap (8 KiB each) one statement looks at: about 1 MiB, small enough that
// repeating a window which held more rows than the limit costs nothing against deleting them.
const windowBlocks = 128

// countBlocks is the window of a count, which deletes nothing and repeats nothing: 32 MiB.
const countBlocks = 4096

// Delta is what one batch did. Cursor says where the sweep goes on after it.
type Delta struct {
	Deleted int64
	Updated int64
	Dropped int64
	Cursor  Cursor
}

// Empty tells whether the batch changed nothing.
func (d Delta) Empty() bool { return d.Deleted == 0 && d.Updated == 0 && d.Dropped == 0 }

// Cursor is the place a sweep has come to: all windows below Block are done. Blocks mean nothing after the table
// was rewritten (VACUUM FULL), which Filenode shows. The zero Cursor is the beginning.
type Cursor struct {
	Unit     string `json:"unit,omitempty"` // the caller's name for the sweep
	Filenode uint32 `json:"filenode,omitempty"`
	Block    int64  `json:"block,omitempty"`
}

// Engine runs sweeps. It may be copied.
type Engine struct {
	Pool *pgxpool.Pool
	// Commit writes the batch's account in its transaction and commits it. An error ends the sweep.
	Commit func(ctx context.Context, tx pgx.Tx, d Delta) error
	// MaxRows caps every sweep's limit; 0: no cap.
	MaxRows int
	// LockTimeout is how long a statement waits for a lock; 0: 2 seconds.
	LockTimeout time.Duration
	// StatementTimeout is how long a statement may take before its batch is halved; 0: 30 seconds.
	StatementTimeout time.Duration
	// Lock is an advisory lock that every batch shares until it ends, so that a successor can wait for the last one;
	// 0: none.
	Lock int64
	// Warn is told what an operator should know, such as a batch that is tried again.
	Warn func(message string)
}

// Begin opens a batch's transaction. A worker that freezes in it must not hold locks for ever, hence the idle
// timeout; a scan must meet the blocks in their order, hence no synchronized one.
func (e *Engine) Begin(ctx context.Context) (pgx.Tx, error) {
	begin := fmt.Sprintf(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d;`+
		` SET LOCAL idle_in_transaction_session_timeout = '10s'; SET LOCAL jit = off`,
		orDefault(e.LockTimeout, 2*time.Second).Milliseconds(), orDefault(e.StatementTimeout, 30*time.Second).Milliseconds())
	if e.Lock != 0 {
		begin += fmt.Sprintf("; SELECT pg_advisory_xact_lock_shared(%d)", e.Lock)
	}
	return e.Pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// attempts is how often a batch that met a lock, a deadlock or a serialization failure is tried.
const attempts = 3

// Retry runs a batch again, with growing pauses, after what passes by itself.
func (e *Engine) Retry(ctx context.Context, batch func() error) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = 100 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err := batch()
		if !passes(err) || attempt == attempts {
			return err
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SQL states the engine has an answer to.
const (
	serializationFailure  = "40001"
	deadlockDetected      = "40P01"
	lockNotAvailable      = "55P03"
	uniqueViolation       = "23505" // a new id that someone else took in between
	insufficientPrivilege = "42501"
	queryCanceled         = "57014" // by statement_timeout, since nobody else cancels our statements
)

func passes(err error) bool {
	return hasState(err, serializationFailure) || hasState(err, deadlockDetected) || hasState(err, lockNotAvailable) ||
		hasState(err, uniqueViolation)
}

func hasState(err error, state string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == state
}
