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
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/internal/severity"
)

// lookEvery is how often a replica looks for an erasure that nobody works on.
const lookEvery = 2 * time.Second

// Work carries out erasures, this replica's own and those that others left, until the context ends.
func (d *Database) Work(ctx context.Context, log *slog.Logger) {
	pause := backoff.NewExponentialBackOff()
	pause.MaxInterval = 10 * time.Second
	for ctx.Err() == nil {
		wait := lookEvery
		err := rescue.Call(func() error { return d.workOnce(ctx, log) })
		rescue.Log(log, "look for erasures", err)
		if err != nil && ctx.Err() == nil {
			log.Warn("an erasure is interrupted; it is taken up again", "error", err)
			wait = pause.NextBackOff()
		} else {
			pause.Reset()
		}
		select {
		case <-ctx.Done():
		case <-d.wake:
		case <-time.After(wait):
		}
	}
}

// workOnce carries out each erasure that has not ended and that no other replica works on, which would hold a lock as
// long as its connection lives. An erasure that is interrupted does not hold up the next ones.
func (d *Database) workOnce(ctx context.Context, log *slog.Logger) error {
	if err := d.Own(ctx); err != nil {
		return err
	}
	ids, err := collect(
		ctx,
		d.Record,
		pgx.RowTo[string],
		`SELECT id::text FROM cleanupd.erasure WHERE forms = $1 AND (state = 'RUNNING'
		OR state = 'PURGING' AND heartbeat < clock_timestamp() - $2::bigint * interval '1 microsecond') ORDER BY id`,
		d.Forms.identity,
		(forsaken * d.Lease).Microseconds(),
	)
	if err != nil || len(ids) == 0 {
		return err
	}
	if err := d.Held(ctx); err != nil {
		return err
	}
	var problems error
	for _, id := range ids {
		if err := d.carryOut(ctx, id, log); err != nil {
			problems = errors.Join(problems, fmt.Errorf("erasure %s: %w", id, err))
		}
	}
	return problems
}

// carryOut does what an erasure has left to do. If that panics the erasure fails, so that it does not panic again at
// every replica.
func (d *Database) carryOut(ctx context.Context, id string, log *slog.Logger) error {
	err := rescue.Call(func() error { return d.hold(ctx, id, (*erasure).alone) })
	var panicked *rescue.Panic
	if !errors.As(err, &panicked) {
		return err
	}
	rescue.Log(log, "erasure "+id, err)
	return d.hold(ctx, id, func(e *erasure, ctx context.Context) error { return e.abandon(ctx, panicked) })
}

// forsaken is how many leases the erasure of a run may be silent before it is ended, if another worker does not take
// the run up.
const forsaken = 20

// errForsaken is why such an erasure stops.
var errForsaken = &stopError{errors.New("the run that it is of did not go on")}

// alone is run where nobody waits for it.
func (e *erasure) alone(ctx context.Context) error {
	if e.purge != nil {
		e.stop = errForsaken
	}
	err := e.run(ctx)
	if held := (*heldError)(nil); errors.As(err, &held) && e.Held(ctx) != nil {
		err = errors.Join(err, e.tell(ctx, logged(severity.Info, held.Error()+"; the erasure continues then")))
	}
	return err
}

// hold works on an erasure while holding its lock; it does nothing if another replica has it, or the erasure has ended.
func (d *Database) hold(ctx context.Context, id string, work func(*erasure, context.Context) error) (err error) {
	conn, err := d.Record.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	key := fnv.New64a()
	_, _ = key.Write([]byte(id)) // never fails
	var mine bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(key.Sum64())).Scan(&mine); err != nil {
		return err
	}
	if !mine {
		return errors.Join(
			advisory.Squatted(ctx, conn, int64(key.Sum64()), false),
			d.depose(ctx, conn, id, int64(key.Sum64())),
		)
	}
	defer func() {
		_, unlockErr := conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock_all()")
		if unlockErr != nil { // it must not return to the pool with the locks
			unlockErr = errors.Join(unlockErr, conn.Conn().Close(context.WithoutCancel(ctx)))
		}
		err = errors.Join(err, unlockErr)
	}()
	e := &erasure{Database: d, id: id, conn: conn}
	var ended bool
	if err := conn.QueryRow(ctx, "SELECT state NOT IN ('RUNNING', 'PURGING'), sweep, purge FROM cleanupd.erasure "+
		"WHERE id = $1::text::uuid", id).
		Scan(&ended, &e.isSweep, &e.purge); err != nil ||
		ended {
		return err
	}
	if _, err := conn.Exec(ctx, heartbeat, id); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	beating, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { d.beat(beating, id) })
	if err := errors.Join(e.take(ctx), e.catchUp(ctx)); err != nil {
		return err
	}
	return work(e, ctx)
}

const heartbeat = "UPDATE cleanupd.erasure SET heartbeat = clock_timestamp() WHERE id = $1::text::uuid"

// beat says that this replica is alive while it works on an erasure, whatever statement is running. If that cannot be
// written, the next beat may be, or another replica takes over.
func (d *Database) beat(ctx context.Context, id string) {
	ticker := time.NewTicker(d.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_, _ = d.Record.Exec(ctx, heartbeat, id)
		}
	}
}

// depose ends the session that holds an erasure's lock if its replica has been silent for longer than a lease: a frozen
// one keeps its connection. What it had begun there is rolled back, and its next statement fails.
func (d *Database) depose(ctx context.Context, conn *pgxpool.Conn, id string, lock int64) error {
	_, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM ("+advisory.Holders+`) AS h
		WHERE EXISTS (SELECT FROM cleanupd.erasure WHERE id = $2::text::uuid
			AND heartbeat < clock_timestamp() - $3::bigint * interval '1 microsecond')`, lock, id, d.Lease.Microseconds())
	return err
}
