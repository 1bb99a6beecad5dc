package userdata

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

type claimConfig struct {
	// Record is the service's own database, with the record of erasures.
	Record *pgxpool.Pool
	Forms  *forms.Database
	// Lease is how long a replica may be silent before any other replica may take over its erasure.
	Lease time.Duration
	// Held fails while everything is on hold, so that nothing may be erased.
	Held func(ctx context.Context) error
}

// Erasure is an erasure that this replica works on. Its connection holds the erasure's advisory lock and also does
// the work, so that the work ends when the lock is lost.
type erasure struct {
	record
	state
	claimConfig
	conn  *pgxpool.Conn
	epoch int64 // the epoch of this replica in the Forms database
}

// Do locks the erasure for this replica and calls work. It does nothing if another replica works on the erasure, or
// if the erasure has ended.
func (c claimConfig) do(ctx context.Context, id string, work func(ctx context.Context, e *erasure) error) (err error) {
	conn, err := c.Record.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	e := &erasure{record: record{ID: id, FormsID: c.Forms.Identity()}, claimConfig: c, conn: conn}
	lock := lockOf(id)
	var locked bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", lock).Scan(&locked); err != nil {
		return err
	}
	if !locked {
		return errors.Join(advisory.Squatted(ctx, conn, lock, false), e.depose(ctx, lock))
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), advisory.UnlockTimeout)
		defer cancel()
		_, unlockErr := conn.Exec(ctx, "SELECT pg_advisory_unlock_all()")
		if unlockErr != nil { // the connection must not return to the pool with locks
			unlockErr = errors.Join(unlockErr, conn.Conn().Close(ctx))
		}
		err = errors.Join(err, unlockErr)
	}()
	if e.state, err = e.readState(ctx, conn); err != nil || e.Ended {
		return err
	}
	if err := e.beat(ctx, conn); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	beating, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { e.keepBeating(beating) })
	e.epoch, err = e.Forms.TakeOver(ctx, id)
	if err := errors.Join(err, e.catchUp(ctx)); err != nil {
		return err
	}
	return work(ctx, e)
}

func lockOf(id string) int64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(id)) // never fails
	return int64(hash.Sum64())
}

// keepBeating records heartbeats, also while a statement is running. If one cannot be recorded, the next one may be;
// otherwise another replica takes the erasure over.
func (e *erasure) keepBeating(ctx context.Context) {
	ticker := time.NewTicker(e.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = e.beat(ctx, e.Record)
		}
	}
}

// depose ends the session that holds the erasure's lock if its replica has been silent for longer than a lease, since a
// frozen replica keeps its connection. The transaction of that session is rolled back, and its next statement fails.
func (e *erasure) depose(ctx context.Context, lock int64) error {
	_, err := e.conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM ("+advisory.Holders+`) AS h
		WHERE EXISTS (SELECT FROM cleanupd.erasure WHERE id = $2::text::uuid
			AND heartbeat < clock_timestamp() - $3::bigint * interval '1 microsecond')`,
		lock, e.ID, e.Lease.Microseconds())
	return err
}

// Transact runs fn in a transaction of the service's own database, and again after transient errors.
func (e *erasure) transact(ctx context.Context, fn func(tx pgx.Tx) error) error {
	options := pgx.TxOptions{BeginQuery: fmt.Sprintf(
		"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = '10min'",
		forms.LockTimeout.Milliseconds())}
	return forms.Retry(ctx, forms.MaxTries, isTransient, func() error {
		return pgx.BeginTxFunc(ctx, e.conn, options, fn)
	})
}

func (e *erasure) report(ctx context.Context, events ...Event) error {
	return e.transact(ctx, func(tx pgx.Tx) error { return e.appendEvents(ctx, tx, events...) })
}

// Finish ends the erasure. It counts as failed if failed is true, if an item has failed, or if documents are left.
func (e *erasure) finish(ctx context.Context, failed bool) error {
	return e.transact(ctx, func(tx pgx.Tx) error { return e.end(ctx, tx, failed) })
}

// Abandon ends the erasure as failed because of a problem, although it is not complete.
func (e *erasure) abandon(ctx context.Context, problem error) error {
	return e.transact(ctx, func(tx pgx.Tx) error {
		if err := e.failUnsettledItems(ctx, tx); err != nil {
			return err
		}
		if err := e.appendEvents(
			ctx, tx,
			errorf(
				"the erasure ended early; items that are not reported as erased are retained, or their state is unknown: %v",
				problem),
		); err != nil {
			return err
		}
		return e.end(ctx, tx, true)
	})
}

// Interrupts reports whether the problem interrupts all work on the erasure, because a database is lost, another
// replica has taken over, or everything is on hold. Other problems concern single items.
func (e *erasure) interrupts(ctx context.Context, problem error) bool {
	return ctx.Err() != nil || e.Forms.Lost(problem) || errors.Is(problem, errTaken) ||
		errors.As(problem, new(*heldError))
}
