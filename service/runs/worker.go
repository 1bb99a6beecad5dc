package runs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// pollEvery is how often a replica looks for a run by itself, should a notification have been missed.
const pollEvery = 2 * time.Second

// grace is how long a stopping replica lets the statement at work go on.
const grace = 10 * time.Second

// claim is a run that this replica holds.
type claim struct {
	id              string
	epoch           int64
	dryRun          bool
	continueOnError bool
	referenceTime   time.Time
	chosen          []string // the names of its tasks, in order
	todo            []string // those still to be done
	succeeded       map[string]bool
	failed          bool // a task of it has
	cursor          purge.Cursor
}

// position is a task's place among the chosen ones, from 1.
func (c *claim) position(name string) int { return slices.Index(c.chosen, name) + 1 }

// Work takes runs and works on them until the context ends; then it lets the batches at work finish and gives
// their runs back.
func (m *Manager) Work(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		c, err := m.take(ctx)
		if err == nil && c != nil {
			wg.Go(func() { m.work(ctx, c) })
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

// take claims a run that is queued, or whose replica has fallen silent; nil when there is none.
func (m *Manager) take(ctx context.Context) (c *claim, err error) {
	err = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		got := &claim{}
		var first bool
		err := tx.QueryRow(ctx, `
			WITH waiting AS (SELECT id, state = 'QUEUED' AS first FROM cleanupd.run
				WHERE state = 'QUEUED' OR state = 'RUNNING' AND lease_until < clock_timestamp()
				ORDER BY create_time LIMIT 1 FOR UPDATE SKIP LOCKED)
			UPDATE cleanupd.run r SET state = 'RUNNING', epoch = epoch + 1, lease_until = clock_timestamp() + $1::bigint * interval '1 microsecond', holder = $2,
				start_time = COALESCE(start_time, now()), reference_time = COALESCE(reference_time, now())
			FROM waiting WHERE r.id = waiting.id
			RETURNING r.id::text, epoch, dry_run, continue_on_error, reference_time, first`, m.lease.Microseconds(), m.replica).
			Scan(&got.id, &got.epoch, &got.dryRun, &got.continueOnError, &got.referenceTime, &first)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		// Waits for a batch of the worker before that is just being committed. A dry run has no cursor: the task at
		// work is counted again from its beginning.
		if _, err := tx.Exec(ctx, `UPDATE cleanupd.task SET epoch = $2, rows_deleted = CASE WHEN $3 AND state = 'RUNNING' THEN 0 ELSE rows_deleted END,
			rows_updated = CASE WHEN $3 AND state = 'RUNNING' THEN 0 ELSE rows_updated END, tables_dropped = CASE WHEN $3 AND state = 'RUNNING' THEN 0 ELSE tables_dropped END
			WHERE run_id = $1::text::uuid`, got.id, got.epoch, got.dryRun); err != nil {
			return err
		}
		if err := got.loadTasks(ctx, tx); err != nil {
			return err
		}
		if first {
			run, err := get(ctx, tx, got.id)
			if err != nil {
				return err
			}
			if err := appendEvents(ctx, tx, got.id, got.epoch, Event{Kind: RunStarted, Run: run}); err != nil {
				return err
			}
		}
		c = got
		return nil
	})
	return c, err
}

func (c *claim) loadTasks(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, "SELECT name, state, cursor FROM cleanupd.task WHERE run_id = $1::text::uuid AND chosen ORDER BY position", c.id)
	if err != nil {
		return err
	}
	var (
		name   string
		state  tasks.State
		cursor purge.Cursor
	)
	c.succeeded = map[string]bool{}
	_, err = pgx.ForEachRow(rows, []any{&name, &state, &cursor}, func() error {
		c.chosen = append(c.chosen, name)
		c.succeeded[name] = state == tasks.Succeeded
		c.failed = c.failed || state == tasks.Failed
		if state == tasks.Running {
			c.cursor = cursor
		}
		if state == tasks.Running || state == tasks.Pending {
			c.todo = append(c.todo, name)
		}
		return nil
	})
	return err
}

// lock is the advisory lock that the run's batches share: the random part of its id.
func (c *claim) lock() int64 {
	id := uuid.MustParse(c.id)
	return int64(binary.BigEndian.Uint64(id[8:]))
}

// outlast waits for the batch that the worker before may have open still: a frozen one holds its rows until
// PostgreSQL ends its transaction, and they would be taken for someone else's.
func (m *Manager) outlast(ctx context.Context, c *claim) error {
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(%d)", c.lock()))
		return err
	})
}

// work carries a run out and ends it, unless it is lost on the way.
func (m *Manager) work(ctx context.Context, c *claim) {
	log := m.log.With("run_id", c.id)
	log.Info("working on the run", "dry_run", c.dryRun, "epoch", c.epoch)
	working, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	context.AfterFunc(ctx, func() { // what a stopping replica has at work may finish, within the grace
		time.AfterFunc(grace, func() { lose(errHandover) })
	})
	j := &journal{m: m, claim: c, stopping: ctx.Done()}
	var wg sync.WaitGroup
	beside, stop := context.WithCancel(working)
	wg.Go(func() { m.renew(beside, c, lose) })
	wg.Go(func() { j.tell(beside) })
	err := m.execute(working, c, j)
	stop()
	wg.Wait()
	if cause := context.Cause(working); cause != nil {
		err = fmt.Errorf("%w: %w", tasks.ErrLost, cause)
	}
	if err == nil || !errors.Is(err, tasks.ErrLost) {
		err = m.end(working, c, outcomeOf(err, j.stop))
	}
	if err != nil {
		log.Warn("left the run", "reason", err)
		select { // whatever it was, let it pass before someone tries again; a stopping replica hands over at once
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		m.release(ctx, c)
		return
	}
	log.Info("the run has ended")
}

func (m *Manager) execute(ctx context.Context, c *claim, j *journal) error {
	if c.failed && !c.continueOnError { // the worker before had only to end the run
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
	if err := m.outlast(ctx, c); err != nil {
		return fmt.Errorf("%w: %w", tasks.ErrLost, err)
	}
	return tasks.Run(ctx, tasks.Config{Pool: m.pool, Lock: c.lock(), Now: c.referenceTime, DryRun: c.dryRun, ContinueOnError: c.continueOnError,
		Todo: todo, Cursor: c.cursor, Succeeded: c.succeeded, MaxRows: m.maxRows, MidSourcing: m.midSourcing, RelatedListTables: m.relatedListTables}, j)
}

func (m *Manager) end(ctx context.Context, c *claim, o outcome) error {
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error { return finish(ctx, tx, c.id, c.epoch, o) })
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
			lose(errors.New("another replica has it"))
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
// done, it runs out.
func (m *Manager) release(ctx context.Context, c *claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE cleanupd.run SET lease_until = clock_timestamp() WHERE id = $1::text::uuid AND epoch = $2 AND state = 'RUNNING'", c.id, c.epoch); err != nil {
			return err
		}
		return notify(ctx, tx, c.id, 0)
	})
}
