package runs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// pollEvery is how often a replica looks whether the schedule is due, and, should a notification have been missed,
// whether a run waits.
const pollEvery = 2 * time.Second

// grace is how long a stopping replica lets the statement at work go on.
const grace = 10 * time.Second

// maxSetbacks is how often in a row a run may be taken up again without having come further. Then the task at work
// fails: it may be what brings the database, or the replica, down.
const maxSetbacks = 10

// Work takes runs and works on them until the context ends; then it lets the batches at work finish and gives
// their runs back. Beside that it keeps the schedule and forgets old runs.
func (m *Manager) Work(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.every(ctx, min(pruneEvery, m.history), "forget old runs", m.prune) })
	if m.keepSchedule {
		wg.Go(func() { m.every(ctx, pollEvery, "keep the schedule", m.keep) })
	}
	for ctx.Err() == nil {
		c, err := m.take(ctx)
		if err == nil && c != nil {
			m.setAtWork(c.id, true)
			wg.Go(func() {
				defer m.setAtWork(c.id, false)
				m.work(ctx, c)
			})
			continue
		}
		if err != nil && ctx.Err() == nil {
			m.log.Warn("cannot look for runs", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-time.After(pollEvery):
		}
	}
}

func (m *Manager) setAtWork(id string, atWork bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if atWork {
		m.atWork[id] = true
	} else {
		delete(m.atWork, id)
	}
}

// every does something at once and then again and again, until the context ends.
func (m *Manager) every(ctx context.Context, pause time.Duration, what string, do func(context.Context) error) {
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			m.log.Warn("cannot "+what, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// work carries a run out and ends it. What the database does meanwhile is outlived: the run is taken up again after its
// last committed batch, as by another replica, so that it does not matter what became of the one that was cut off.
func (m *Manager) work(ctx context.Context, c *claim) {
	log := m.log.With("run_id", c.id)
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = m.lease/50, m.lease, 2
	for c != nil {
		log.Info("working on the run", "dry_run", c.dryRun, "epoch", c.epoch)
		if c.setbacks <= 1 {
			pause.Reset()
		}
		err := c.traced(ctx, func(ctx context.Context) error { return m.attempt(ctx, c) })
		switch {
		case err == nil:
			log.Info("the run has ended")
			return
		case errors.Is(err, errFenced) || ctx.Err() != nil:
			log.Warn("left the run", "reason", err)
			m.release(ctx, c)
			return
		}
		log.Warn("set back", "reason", err)
		m.pool.Reset() // other connections may be as bad, or lead to a server that is no longer the primary
		c = m.retake(ctx, c, err, pause, log)
	}
}

// retake claims a run again that the database set back; nil when another replica has it, or this one is to stop.
func (m *Manager) retake(ctx context.Context, c *claim, reason error, pause backoff.BackOff, log *slog.Logger) *claim {
	for {
		select {
		case <-ctx.Done():
			log.Warn("left the run", "reason", errHandover)
			m.release(ctx, c)
			return nil
		case <-time.After(pause.NextBackOff()):
		}
		again, err := m.claim(ctx, setBack, tasks.Explain(reason), c.id, c.epoch)
		if err == nil {
			if again == nil {
				log.Warn("left the run", "reason", errFenced)
			}
			return again
		}
		log.Warn("cannot take the run up again", "error", err)
	}
}

// attempt carries a run out and ends it, or says what came between.
func (m *Manager) attempt(ctx context.Context, c *claim) error {
	working, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	defer context.AfterFunc(ctx, func() { // what a stopping replica has at work may finish, within the grace
		time.AfterFunc(grace, func() { lose(errHandover) })
	})()
	j := &journal{m: m, claim: c, stopping: ctx.Done()}
	var wg sync.WaitGroup
	beside, stop := context.WithCancel(untraced(working))
	wg.Go(func() { m.renew(beside, c, lose) })
	wg.Go(func() { j.tell(beside) })
	err := m.execute(working, c, j)
	stop()
	wg.Wait()
	if cause := context.Cause(working); cause != nil {
		return cause
	}
	if errors.Is(err, tasks.ErrLost) {
		return err
	}
	o := outcomeOf(err, j.stop)
	if c.gaveUp && o.state != Cancelled {
		o.cause = CauseUnavailable
	}
	var run *Run
	err = pgx.BeginFunc(working, m.pool, func(tx pgx.Tx) (err error) { run, err = m.finish(working, tx, c.id, c.epoch, o); return err })
	if err == nil {
		m.metrics.runEnded(run)
	}
	return err
}

func (m *Manager) execute(ctx context.Context, c *claim, j *journal) error {
	if c.setbacks > maxSetbacks && len(c.todo) > 0 {
		if err := c.giveUp(ctx, j); errors.Is(err, tasks.ErrStopped) {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: %w", tasks.ErrLost, err)
		}
	}
	if c.failed && !c.continueOnError { // there is only the run's end left
		return nil
	}
	var todo []tasks.Task
	for _, name := range c.todo {
		i := slices.IndexFunc(tasks.Pipeline, func(t tasks.Task) bool { return t.Name == name })
		if i < 0 {
			return fmt.Errorf("this version does not know the task %s", name)
		}
		todo = append(todo, tasks.Pipeline[i])
	}
	if c.epoch > 1 { // there was a worker before
		if err := m.outlast(ctx, c); err != nil {
			return fmt.Errorf("%w: %w", tasks.ErrLost, err)
		}
	}
	return tasks.Run(ctx, tasks.Config{Pool: m.pool, Lock: c.lock(), Now: c.referenceTime, DryRun: c.dryRun, ContinueOnError: c.continueOnError,
		Todo: todo, Cursor: c.cursor, Succeeded: c.succeeded, Settings: m.settings, MidSourcing: m.midSourcing, RelatedListTables: m.relatedListTables}, j)
}

// giveUp fails the task at work, or the next one, after too many setbacks.
func (c *claim) giveUp(ctx context.Context, j *journal) error {
	if err := j.TaskStarted(ctx, c.todo[0]); err != nil {
		return err
	}
	if err := j.TaskFinished(ctx, tasks.Failed, fmt.Sprintf("given up after %d setbacks without progress, the last one: %s", c.setbacks, c.reason)); err != nil {
		return err
	}
	c.failed, c.gaveUp, c.todo, c.cursor = true, true, c.todo[1:], purge.Cursor{}
	return nil
}

// lock is the advisory lock that the run's batches share: the random part of its id.
func (c *claim) lock() int64 {
	id := uuid.MustParse(c.id)
	return int64(binary.BigEndian.Uint64(id[8:]))
}

// holders are the server's processes that hold an advisory lock.
const holders = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pid <> pg_backend_pid()
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	AND classid::bigint = $1::bigint >> 32 & 4294967295 AND objid::bigint = $1::bigint & 4294967295`

// outlast ends the batch that the worker before may have open still, and waits until it has ended: its rows would be
// taken for someone else's. A connection that was cut off is noticed by the server only after its statement, and a
// frozen worker's batch would last until it is idle for too long.
func (m *Manager) outlast(ctx context.Context, c *claim) error {
	// It is enough to wait where this role may not end the other's.
	_, _ = m.pool.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM ("+holders+") AS h", c.lock())
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(%d)", c.lock()))
		return err
	})
}

// renew keeps the lease, whatever statement is at work, and ends the work when it can not.
func (m *Manager) renew(ctx context.Context, c *claim, lose context.CancelCauseFunc) {
	ticker := time.NewTicker(m.lease / 3)
	defer ticker.Stop()
	until := time.Now().Add(m.lease)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asked := time.Now()
		attempt, cancel := context.WithTimeout(ctx, m.lease/3)
		tag, err := m.pool.Exec(attempt, `UPDATE cleanupd.run SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
			WHERE id = $1::text::uuid AND epoch = $2 AND state = 'RUNNING'`, c.id, c.epoch, m.lease.Microseconds())
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && tag.RowsAffected() == 0:
			lose(errFenced)
			return
		case err == nil:
			until = asked.Add(m.lease)
		case time.Now().After(until):
			lose(fmt.Errorf("the lease could not be renewed: %w", err))
			return
		}
	}
}

// release gives a run's lease back at once, so that no replica waits for it to run out. When that can not be
// done, it runs out. A run that another replica has is left alone.
func (m *Manager) release(ctx context.Context, c *claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE cleanupd.run SET lease_until = clock_timestamp(), holder = '' WHERE id = $1::text::uuid AND epoch = $2 AND state = 'RUNNING'", c.id, c.epoch); err != nil {
			return err
		}
		return notify(ctx, tx, c.id, 0)
	})
}
