package userdata

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// workInterval is how often a replica looks for erasures that no replica works on.
const workInterval = 2 * time.Second

// Wake makes Work look for erasures now.
func (m *Manager) Wake() {
	select {
	case m.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// Work carries out erasures, including abandoned ones, until the context ends.
func (m *Manager) Work(ctx context.Context, log *slog.Logger) {
	if m.OnlyWoken {
		select {
		case <-ctx.Done():
		case <-m.wake:
		}
	}
	pause := backoff.NewExponentialBackOff()
	pause.MaxInterval = 10 * time.Second
	for ctx.Err() == nil {
		wait := workInterval
		err := failure.Catch(func() error { return m.workOnce(ctx, log) })
		failure.LogPanic(log, "look for erasures", err)
		if err != nil && ctx.Err() == nil {
			log.Warn("could not work on erasures; will retry", "error", err)
			wait = pause.NextBackOff()
		} else {
			pause.Reset()
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-time.After(wait):
		}
	}
}

// workOnce carries out each erasure that has not ended, unless another replica works on it. If one is interrupted,
// the next ones are still carried out.
func (m *Manager) workOnce(ctx context.Context, log *slog.Logger) error {
	if err := m.Own(ctx); err != nil {
		return err
	}
	ids, err := m.unfinished(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	if err := m.Held(ctx); err != nil {
		return err
	}
	var problems error
	for _, id := range ids {
		if err := m.carryOut(ctx, id, log); err != nil {
			problems = errors.Join(problems, fmt.Errorf("erasure %s: %w", id, err))
		}
	}
	return problems
}

// Any replica may take over an erasure whose run has been silent for abandonedAfter leases.
const abandonedAfter = 20

// unfinished returns erasures that any replica may work on: those that users requested, and those of purges that
// were abandoned by their runs.
func (m *Manager) unfinished(ctx context.Context) ([]string, error) {
	rows, _ := m.Record.Query(
		ctx,
		`SELECT id::text FROM cleanupd.erasure WHERE forms_id = $1 AND (state = 'RUNNING'
		OR state = 'PURGING' AND heartbeat < clock_timestamp() - $2::bigint * interval '1 microsecond') ORDER BY id`,
		m.Forms.Identity(), (abandonedAfter * m.Lease).Microseconds(),
	)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// carryOut carries out an erasure. If that panics, the erasure fails, so that it does not panic again on every
// replica.
func (m *Manager) carryOut(ctx context.Context, id string, log *slog.Logger) error {
	err := failure.Catch(func() error { return m.claim(ctx, id, func(e *erasure) error { return e.run(ctx) }) })
	var panicked *failure.Panic
	if !errors.As(err, &panicked) {
		return err
	}
	failure.LogPanic(log, "erasure "+id, err)
	return m.claim(ctx, id, func(e *erasure) error { return e.abandon(ctx, panicked) })
}

// errRunAbandoned stops the erasure of a purge whose run was not continued.
var errRunAbandoned = errors.New("its run was not continued")

// erasure is an erasure that this replica works on. Its connection holds the erasure's advisory lock and also does
// the work, so that the work ends when the lock is lost.
type erasure struct {
	*Manager
	record
	isSweep bool
	purge   *criteria // nil if a user requested the erasure
	conn    *pgxpool.Conn
	epoch   int64 // the epoch of this replica in the Forms database
}

// claim locks the erasure for this replica and calls work. It does nothing if another replica works on the erasure, or
// if the erasure has ended.
func (m *Manager) claim(ctx context.Context, id string, work func(e *erasure) error) (err error) {
	conn, err := m.Record.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	e := &erasure{Manager: m, record: record{id: id, formsID: m.Forms.Identity()}, conn: conn}
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
	var ended bool
	if err := conn.QueryRow(ctx, "SELECT state NOT IN ('RUNNING', 'PURGING'), sweep, purge FROM cleanupd.erasure "+
		"WHERE id = $1::text::uuid", id).Scan(&ended, &e.isSweep, &e.purge); err != nil || ended {
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
	e.epoch, err = m.Forms.TakeOver(ctx, id)
	if err := errors.Join(err, e.catchUp(ctx)); err != nil {
		return err
	}
	return work(e)
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

func (e *erasure) beat(ctx context.Context, db execer) error {
	_, err := e.exec(ctx, db, "UPDATE cleanupd.erasure SET heartbeat = clock_timestamp() WHERE id = $1::text::uuid")
	return err
}

// depose ends the session that holds the erasure's lock if its replica has not renewed it for longer than a lease,
// since a frozen replica keeps its connection. The transaction of that session is rolled back, and its next statement
// fails.
func (e *erasure) depose(ctx context.Context, lock int64) error {
	_, err := e.conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM ("+advisory.Holders+`) AS h
		WHERE EXISTS (SELECT FROM cleanupd.erasure WHERE id = $2::text::uuid
			AND heartbeat < clock_timestamp() - $3::bigint * interval '1 microsecond')`,
		lock, e.id, e.Lease.Microseconds())
	return err
}

// run carries out a sweep or an erasure that a user requested. It stops the erasure of a purge, whose run has abandoned
// it.
func (e *erasure) run(ctx context.Context) (err error) {
	switch {
	case e.isSweep:
		var failed bool
		if failed, err = e.sweep(ctx); err == nil {
			err = e.finish(ctx, failed)
		}
	case e.purge != nil:
		err = e.stop(ctx, errRunAbandoned)
	default:
		_, err = e.erase(ctx, nil)
	}
	if held := (*heldError)(nil); errors.As(err, &held) && e.Held(ctx) != nil {
		err = errors.Join(err, e.report(ctx, infof("%v; the erasure will then be resumed", held)))
	}
	return err
}

// transact runs fn in a transaction of the service's own database, and again after transient errors.
func (e *erasure) transact(ctx context.Context, fn func(tx pgx.Tx) error) error {
	options := pgx.TxOptions{BeginQuery: fmt.Sprintf(
		"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = '10min'",
		forms.LockTimeout.Milliseconds())}
	return forms.Retry(ctx, forms.MaxTries, isTransient, func() error {
		return pgx.BeginTxFunc(ctx, e.conn, options, fn)
	})
}

// isTransient reports whether a transaction of the record may succeed when it is tried again.
func isTransient(err error) bool {
	return sqlstate.Is(err, pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected, pgerrcode.LockNotAvailable)
}

// record is the service's own record of an erasure of one Forms database.
type record struct{ id, formsID string }

// execer is a pool, a connection or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func (e record) exec(ctx context.Context, db execer, sql string, args ...any) (int64, error) {
	tag, err := db.Exec(ctx, sql, append([]any{e.id}, args...)...)
	return tag.RowsAffected(), err
}

func (e *erasure) report(ctx context.Context, events ...Event) error {
	return e.transact(ctx, func(tx pgx.Tx) error { return e.appendEvents(ctx, tx, events...) })
}

// finish ends the erasure. It counts as failed if failed is true, if an item has failed, or if documents are left.
func (e *erasure) finish(ctx context.Context, failed bool) error {
	return e.transact(ctx, func(tx pgx.Tx) error { return e.end(ctx, tx, failed) })
}

// end does nothing if the erasure has already ended.
func (e *erasure) end(ctx context.Context, tx pgx.Tx, failed bool) error {
	n, err := e.exec(ctx, tx, `UPDATE cleanupd.erasure AS e SET end_time = clock_timestamp(), state = CASE WHEN $2
		OR EXISTS (SELECT FROM cleanupd.erasure_item WHERE erasure_id = e.id AND state <> 'DONE')
		OR EXISTS (SELECT FROM cleanupd.erasure_session WHERE erasure_id = e.id)
		THEN 'FAILED' ELSE 'SUCCEEDED' END WHERE id = $1::text::uuid AND state IN ('RUNNING', 'PURGING')`, failed)
	if err != nil || n == 0 {
		return err
	}
	return e.appendEvents(ctx, tx, Event{Ended: true})
}

// abandon ends the erasure as failed because of a problem, although it is not complete.
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

// errTaken means that another replica works on the erasure and has already recorded this change.
var errTaken = errors.New("another replica is working on the erasure")

// interrupts reports whether the problem interrupts all work on the erasure, because a database is lost, another
// replica has taken over, or everything is on hold. Other problems concern single items.
func (e *erasure) interrupts(ctx context.Context, problem error) bool {
	return ctx.Err() != nil || e.Forms.Lost(problem) || errors.Is(problem, errTaken) ||
		errors.As(problem, new(*heldError))
}
