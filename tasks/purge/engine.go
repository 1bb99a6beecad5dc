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
)

// countBlocks is how many blocks one statement of a count looks at, which deletes nothing: 32 MiB.
const countBlocks = 4096

// Delta is what one batch did. Cursor says where the sweep goes on after it.
type Delta struct {
	Deleted int64
	Updated int64
	Dropped int64
	// Statements is how many statements did it, and Largest the most rows that one of them touched.
	Statements, Largest int64
	// Space is what the batch did to tables whose size is to be told.
	Space  []Space
	Cursor Cursor
	// Begun is when the batch began; zero: it is not told.
	Begun time.Time
}

// Space is a table that a batch deleted rows from, or that is about to be vacuumed.
type Space struct {
	Relation string // quoted, with its schema
	Rows     int64  // deleted
	// TableBytes and IndexBytes are its size before; 0: as it is now.
	TableBytes, IndexBytes int64
}

// Empty tells whether the batch changed nothing.
func (d Delta) Empty() bool { return d.Deleted == 0 && d.Updated == 0 && d.Dropped == 0 }

// Cursor is the block that a sweep has come to: all below it is done. It means nothing after the table was rewritten
// (VACUUM FULL), which Filenode shows. The zero Cursor is the beginning, where a sweep that an index led always is.
type Cursor struct {
	Unit     string `json:"unit,omitempty"` // the caller's name for the sweep
	Filenode uint32 `json:"filenode,omitempty"`
	Place    int64  `json:"place,omitempty"`
}

// DefaultTarget is how long a batch should take where nothing else is said.
const DefaultTarget = 50 * time.Millisecond

// Settings are how batches are to be.
type Settings struct {
	// MaxRows caps every sweep's limit; 0: no cap.
	MaxRows int
	// Target is how long a batch should take at the server before its COMMIT; 0: DefaultTarget.
	Target time.Duration
	// Workers is how many batches of one sweep may be at work at once, where the table is large and they do not hinder each
	// other; 0: 1.
	Workers int
	// Limits are what a batch waits for.
	Limits Limits
}

// Engine runs sweeps. It may be copied. One with Limits is made by New.
type Engine struct {
	Settings
	Pool *pgxpool.Pool
	// Commit writes the batch's account in its transaction and commits it. An error ends the sweep. Several workers call
	// it at once.
	Commit func(ctx context.Context, tx pgx.Tx, d Delta) error
	// LockTimeout is how long a statement waits for a lock; 0: 2 seconds.
	LockTimeout time.Duration
	// StatementTimeout is how long a statement may take before its batch is halved; 0: 30 seconds.
	StatementTimeout time.Duration
	// Lock is an advisory lock that every batch shares until it ends, so that a successor can wait for the last one;
	// 0: none.
	Lock int64
	// Durable has every batch wait until the disk has it. Otherwise a crash of the server may bring the last ones back, rows
	// and account together, which is as good where all is in one database.
	Durable bool
	// CountAtOnce has the server's statistics know of a batch when it ends, rather than some time later, after VACUUM even,
	// which they would contradict; it takes PostgreSQL 15.
	CountAtOnce bool
	// Way is told how the rows of a sweep are found; nil: it is not.
	Way func(way string)
	// Throttled is told why a batch waits, and an empty reason when it goes on; it is needed where there are Limits.
	Throttled func(reason string)
	// Proceed fails when nothing more is to be done; it is asked while a batch waits, where it is needed, and before one is tried
	// again; nil: it is not.
	Proceed func(ctx context.Context) error
	// Retried is told the SQLSTATE for which something is tried again; nil: it is not.
	Retried func(state string)
	// Warn is told what an operator should know, such as a batch that is tried again.
	Warn func(message string)

	manners    *manners
	findAtOnce int // 0: foundAtOnce
}

// New returns an engine, whose copies look at the server together.
func New(e Engine) *Engine {
	e.manners = &manners{}
	return &e
}

// Tries is how often a batch is tried that met what passes by itself, by SQLSTATE. A lock has been waited for each time.
var Tries = map[string]int{
	pgerrcode.SerializationFailure: 8, pgerrcode.DeadlockDetected: 8, pgerrcode.LockNotAvailable: 3,
	pgerrcode.UniqueViolation: 8, // a new id that someone else took in between
}

// errPersists says that something which should pass by itself did not.
var errPersists = errors.New("tried again and again")

// Retry runs a batch again after what passes by itself, after a random and growing pause. what names it for a person.
func (e *Engine) Retry(ctx context.Context, what string, batch func() error) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 5*time.Second
	for try := 1; ; try++ {
		err := batch()
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || Tries[pgErr.Code] == 0 || errors.Is(err, errPersists) {
			return err
		}
		if try >= Tries[pgErr.Code] {
			return fmt.Errorf("%w (%d times): %w", errPersists, try, err)
		}
		e.Warn(fmt.Sprintf("%s: %s (SQLSTATE %s); it is tried %d times at most", what, pgErr.Message, pgErr.Code, Tries[pgErr.Code]))
		if e.Retried != nil {
			e.Retried(pgErr.Code)
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return ctx.Err()
		}
		if e.Proceed != nil {
			if err := e.Proceed(ctx); err != nil {
				return err
			}
		}
	}
}
