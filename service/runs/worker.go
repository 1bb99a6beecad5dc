package runs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/dryrun"
	"github.com/cleanupd/cleanupd/tasks/execute"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// grace is how long a stopping replica lets the current statement go on.
const grace = 10 * time.Second

// maxFailedAttempts is how often in a row a run may be resumed without progress. Then its current task fails: it may be
// what brings the database, or the replica, down.
const maxFailedAttempts = 10

// Work claims runs and executes them until the context ends; then it lets the current batches finish and releases
// their runs. In addition it keeps the schedule and deletes old runs.
func (m *Manager) Work(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.every(ctx, min(pruneEvery, m.history, detailsKept*m.planMaxAge), "forget old runs", m.prune) })
	wg.Go(func() { m.every(ctx, presentEvery, "tell the others of this replica", m.present); m.absent(ctx) })
	if m.keepSchedule {
		wg.Go(func() { m.every(ctx, m.pollEvery, "keep the schedule", m.keep) })
	}
	for ctx.Err() == nil {
		var c *claim
		err := rescue.Call(func() (err error) { c, err = m.take(ctx); return err })
		rescue.Log(m.log, "take a run", err)
		if err == nil && c != nil {
			m.waits(c.id, "")
			wg.Go(func() {
				defer m.left(c.id)
				rescue.Log(m.log, "run "+c.id, rescue.Call(func() error { m.work(ctx, c); return nil }))
			})
			continue
		}
		if err != nil && ctx.Err() == nil {
			m.log.Warn("cannot look for runs", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-time.After(m.pollEvery):
		}
	}
}

// left forgets a run that is no longer worked on here.
func (m *Manager) left(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.atWork, id)
}

// every does something at once, and then again after each pause, until the context ends.
func (m *Manager) every(ctx context.Context, pause time.Duration, what string, do func(context.Context) error) {
	for {
		err := rescue.Call(func() error { return do(ctx) })
		rescue.Log(m.log, what, err)
		if err != nil && ctx.Err() == nil {
			m.log.Warn("cannot "+what, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// work executes a run to its end. It survives failures of the database, and another server in the place of the one that
// failed: it then claims the run again, if that is still its own there, and resumes it after the last committed batch,
// as another replica would, so that it does not matter what became of a batch that was cut off.
func (m *Manager) work(ctx context.Context, c *claim) {
	log := m.log.With("run_id", c.id)
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = m.lease/50, m.lease, 2
	for c != nil {
		log.Info("working on the run", "dry_run", c.dryRun, "epoch", c.epoch)
		err := c.traced(ctx, func(ctx context.Context) error {
			return rescue.Call(func() error { return m.attempt(ctx, c) })
		})
		rescue.Log(log, "an attempt at the run", err)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			log.Warn("left the run", "reason", err)
			m.release(ctx, c)
			return
		}
		log.Warn("set back", "reason", err)
		if c.progressed.Load() {
			pause.Reset()
		}
		// other connections may be as bad, or lead to a server that is no longer the primary
		for _, pool := range []*pgxpool.Pool{m.pool, m.calls} {
			pool.Reset()
		}
		c = m.retake(ctx, c, err, pause, log)
	}
}

// attempt executes a run to its end, or returns what prevented that.
func (m *Manager) attempt(ctx context.Context, c *claim) error {
	working, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	defer context.AfterFunc(ctx, func() { // when the replica stops, the current statement may finish within the grace
		time.AfterFunc(grace, func() { lose(errHandover) })
	})()
	if err := m.confirm(working, c); err != nil {
		return err
	}
	j := &journal{m: m, claim: c, stopping: ctx.Done()}
	var wg sync.WaitGroup
	beside, stop := context.WithCancel(untraced(working))
	besides := func(do func()) {
		wg.Go(func() {
			if err := rescue.Call(func() error { do(); return nil }); err != nil {
				lose(err)
			}
		})
	}
	besides(func() { m.renew(beside, c, lose) })
	besides(func() { j.writeProgress(beside) })
	err := rescue.Call(func() error { return m.execute(working, c, j) })
	rescue.Log(m.log, "run "+c.id, err)
	stop()
	wg.Wait()
	if cause := context.Cause(working); cause != nil {
		return cause
	}
	if errors.Is(err, pipeline.ErrLost) {
		return err
	}
	o := outcomeOf(err, j.stop)
	if c.gaveUp && o.state != Cancelled {
		o.cause = CauseUnavailable
	}
	var run *Run
	err = pgx.BeginFunc(
		working,
		m.pool,
		func(tx pgx.Tx) (err error) { run, err = m.finish(working, tx, c.id, c.epoch, o); return err },
	)
	if err == nil {
		m.ended(run)
	}
	return err
}

func (m *Manager) execute(ctx context.Context, c *claim, j *journal) error {
	if c.failedAttempts > maxFailedAttempts && len(c.todo) > 0 {
		if err := c.giveUp(ctx, j); errors.Is(err, pipeline.ErrStopped) {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: %w", pipeline.ErrLost, err)
		}
	}
	if c.failed && !c.continueOnError { // only the end of the run is left
		return nil
	}
	chosen, all, err := m.of(ctx, c.chosen)
	if err != nil {
		return err
	}
	todo := slices.DeleteFunc(slices.Clone(chosen), func(t plan.Task) bool { return !slices.Contains(c.todo, t.Name) })
	if c.resumed {
		if err := m.awaitPredecessor(ctx, c); err != nil {
			return fmt.Errorf("%w: %w", pipeline.ErrLost, err)
		}
	}
	config := m.config(all)
	config.ID, config.Lock, config.Log = c.id, c.lock(), m.log.With("run_id", c.id)
	config.Now, config.DryRun, config.ContinueOnError = c.referenceTime, c.dryRun, c.continueOnError
	config.Chosen, config.Todo, config.Cursor = chosen, todo, c.cursor
	config.Succeeded, config.Failed = c.succeeded, c.unmet
	config.WhatIf, config.Standby = c.whatIf, m.standby
	if c.plan != "" {
		if !c.resumed { // the schedule may have started it long after it was checked
			if err := m.holds(ctx, m.pool, c.plan); sqlstate.Lost(err) {
				return fmt.Errorf("%w: %w", pipeline.ErrLost, err)
			} else if err != nil {
				return err
			}
		}
		if config.SavedPlan, err = loadPlan(ctx, m.pool, c.plan); err != nil {
			return fmt.Errorf("%w: %w", pipeline.ErrLost, err)
		}
	}
	if c.dryRun && c.resumed {
		if config.Done, err = loadPlan(ctx, m.pool, c.id); err != nil {
			return fmt.Errorf("%w: %w", pipeline.ErrLost, err)
		}
	}
	if c.dryRun {
		return dryrun.Run(ctx, config, pipeline.NewJournal(j))
	}
	return execute.Run(ctx, config, pipeline.NewJournal(j))
}

// giveUp fails the current task, or the next one, after too many failed attempts.
func (c *claim) giveUp(ctx context.Context, j *journal) error {
	if err := j.TaskStarted(ctx, c.todo[0]); err != nil {
		return err
	}
	if err := j.TaskFinished(
		ctx,
		pipeline.Outcome{
			State:    pipeline.Failed,
			Retained: c.cursor.TotalRetained(),
			Problem: fmt.Sprintf(
				"given up after %d setbacks without progress, the last one: %s",
				c.failedAttempts,
				c.reason,
			),
		},
	); err != nil {
		return err
	}
	c.unmet[c.todo[0]] = true
	c.failed, c.gaveUp, c.todo, c.cursor = true, true, c.todo[1:], purge.Cursor{}
	return nil
}

// lock is the advisory lock that the run's batches share: the random part of its id.
func (c *claim) lock() int64 { return lockOf(c.id) }

// lockOf is that of a run.
func lockOf(run string) int64 {
	id := uuid.MustParse(run)
	return int64(binary.BigEndian.Uint64(id[8:]))
}

// awaitPredecessor terminates a batch that the previous worker may still have open, and waits until it has ended: its
// locks would be taken for those of others. The server notices a cut connection only after the statement, and a frozen
// worker's batch lasts until its idle timeout.
func (m *Manager) awaitPredecessor(ctx context.Context, c *claim) error {
	// If this role may not terminate it, waiting is enough.
	_, _ = m.pool.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM ("+advisory.Holders+") AS h", c.lock())
	if err := advisory.Squatted(ctx, m.pool, c.lock(), false); err != nil {
		m.log.Warn("a run waits for its previous worker", "run", c.id, "error", err)
	}
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(%d)", c.lock()))
		return err
	})
}
