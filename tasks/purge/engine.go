package purge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/tasks/purge/throttle"
)

// countBlocks is how many blocks a statement that only counts reads: 32 MiB.
const countBlocks = 4096

// Delta is what one batch did. Cursor says where the sweep continues after it.
type Delta struct {
	Deleted int64
	Updated int64
	Dropped int64
	// Recorded is how many rows Also wrote about those that were deleted.
	Recorded int64
	// Statements is how many statements changed rows, and Largest the most rows that one of them touched.
	Statements, Largest int64
	// Space is what the batch did to tables whose size is to be reported.
	Space  []Space
	Cursor Cursor
	// Begun is when the batch began; zero: unknown.
	Begun time.Time
}

// Space is a table that a batch changed, or that is about to be vacuumed.
type Space struct {
	Relation string // quoted, with its schema
	Root     string // that of the table that it is, or is a part of
	Rows     int64  // deleted
	Updated  int64
	// TableBytes and IndexBytes are its size before the batch; 0: its current size.
	TableBytes, IndexBytes int64
}

// Empty reports whether the batch changed nothing.
func (d Delta) Empty() bool { return d.Deleted == 0 && d.Updated == 0 && d.Dropped == 0 }

// Cursor is the block that a sweep has reached: all blocks below it are done. It is void once the table is rewritten
// (VACUUM FULL), which Filenode shows. The zero Cursor is the beginning, where a sweep by index always starts.
type Cursor struct {
	Unit     string `json:"unit,omitempty"` // the caller's name for the sweep
	Filenode uint32 `json:"filenode,omitempty"`
	Place    int64  `json:"place,omitempty"` // a block; a key where the sweep goes by one
	// Pending is what Settle has to settle first; nil: nothing.
	Pending *Pending `json:"pending,omitempty"`
	// Before is what earlier sweeps of the caller left, and Left what this one left below the place.
	Before   Retained `json:"before,omitzero"`
	Retained Retained `json:"left,omitzero"`
}

// TotalRetained is all that was left up to the cursor.
func (c Cursor) TotalRetained() Retained { return c.Before.Plus(c.Retained) }

// Limits configure the load above which a batch waits before it begins.
type Limits = throttle.Limits

// Throttle explains why a batch waits.
type Throttle = throttle.Cause

// Reasons lists all the reasons for which a batch may wait.
var Reasons = throttle.Reasons

// DefaultTarget is how long a batch should take by default.
const DefaultTarget = 50 * time.Millisecond

// Settings configure batches.
type Settings struct {
	// MaxRows caps every sweep's limit; 0: no cap.
	MaxRows int
	// Target is how long a batch should take on the server before its COMMIT; 0: DefaultTarget.
	Target time.Duration
	// Workers is how many batches of one sweep may run at once, if the table is large and they do not hinder each
	// other; 0: 1.
	Workers int
	// Limits are what a batch waits for.
	Limits Limits
	// LockTimeout is how long a statement waits for a lock; 0: 2 seconds.
	LockTimeout time.Duration
}

// Ledger is the caller's account of what batches do, written in their transactions. It is called concurrently if there
// are several workers.
type Ledger interface {
	// Write queues the statements that write the account of a batch. They are sent with its COMMIT, so that their locks
	// are held no longer than that takes; if one of them fails, nothing is committed. settled is called with how that
	// went; its error ends the sweep, and so does that of Write, before the batch is committed.
	Write(ctx context.Context, b *pgx.Batch, d Delta) (settled func(error) error, err error)
}

// Recorder is told what an engine does, and may stop it. It is called concurrently if there are several workers.
type Recorder interface {
	// ScanMethod reports how the rows of a sweep are found.
	ScanMethod(way string)
	// Throttled reports why the next batch waits, or that it no longer does.
	Throttled(throttle Throttle)
	// Retried reports the SQLSTATE that causes a retry.
	Retried(state string)
	// Warn reports what an operator should know.
	Warn(message string)
	// Proceed fails when the sweep must stop. It is called while a batch waits, and before a retry.
	Proceed(ctx context.Context) error
}

// nobody is a Recorder that lets an engine go on.
type nobody struct{}

func (nobody) ScanMethod(string) {}

func (nobody) Throttled(Throttle) {}

func (nobody) Retried(string) {}

func (nobody) Warn(string) {}

func (nobody) Proceed(context.Context) error { return nil }

// Engine runs sweeps. It must be made by New, and may be copied.
type Engine struct {
	Settings
	Pool *pgxpool.Pool
	// Ledger keeps account of what batches do.
	Ledger Ledger
	// Recorder is told what the engine does; nil: nobody is.
	Recorder Recorder
	// StatementTimeout is how long a statement may take before its batch is halved; 0: 30 seconds.
	StatementTimeout time.Duration
	// Lock is an advisory lock that every batch shares until it ends, so that a successor can wait for the last one;
	// 0: none.
	Lock int64
	// Durable makes batches commit synchronously. Otherwise a crash of the server may undo the last ones, rows and
	// account together, which does no harm if both are in one database.
	Durable bool
	// FlushStats makes each batch flush its statistics when it ends; otherwise they may arrive even after a VACUUM, and
	// contradict it. It needs PostgreSQL 15.
	FlushStats bool

	throttler  *throttle.Throttler
	findAtOnce int // 0: foundAtOnce
}

// New returns an engine whose copies share their samples of the server's load.
func New(e Engine) *Engine {
	e.throttler = &throttle.Throttler{}
	if e.Recorder == nil {
		e.Recorder = nobody{}
	}
	return &e
}

// Wait waits while the server's load exceeds the limits. It must be called outside of transactions.
func (e *Engine) Wait(ctx context.Context) error {
	return e.throttler.Wait(ctx, e.Pool, e.Limits, e.Recorder)
}

// Spend counts deleted or updated rows towards RowsPerSecond.
func (e *Engine) Spend(rows int64) { e.throttler.Spend(rows, e.Limits.RowsPerSecond) }

// MaxAttempts is how often a batch is tried that meets a transient error, by SQLSTATE. Each try waits for its locks.
var MaxAttempts = map[string]int{
	pgerrcode.SerializationFailure: 8, pgerrcode.DeadlockDetected: 8, pgerrcode.LockNotAvailable: 3,
	pgerrcode.UniqueViolation: 8, // a new id that someone else took in between
}

// errPersists says that an error which should be transient was not.
var errPersists = errors.New("tried again and again")

// Retry runs a batch, and again after transient errors, with random exponential backoff. what names it for people.
func (e *Engine) Retry(ctx context.Context, what string, batch func() error) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 5*time.Second
	for try := 1; ; try++ {
		err := batch()
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || MaxAttempts[pgErr.Code] == 0 || errors.Is(err, errPersists) {
			return err
		}
		if try >= MaxAttempts[pgErr.Code] {
			if e.Lock != 0 && pgErr.Code == pgerrcode.LockNotAvailable {
				if who := advisory.Squatted(ctx, e.Pool, e.Lock, true); who != nil {
					err = who // in place of the SQLSTATE, by which rows would be passed over as locked
				}
			}
			return fmt.Errorf("%w (%d times): %w", errPersists, try, err)
		}
		e.Recorder.Warn(
			fmt.Sprintf("%s: %s; it is tried %d times at most", what, Message(err), MaxAttempts[pgErr.Code]),
		)
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
