package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// workOnRuns claims and executes runs. When the context ends, it lets the current batches finish and releases the runs.
func (m *Manager) workOnRuns(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		var c *claim
		err := failure.Catch(func() (err error) { c, err = m.claimWaiting(ctx); return err })
		failure.LogPanic(m.log, "take a run", err)
		if err == nil && c != nil {
			m.setWaits(c.RunID, "")
			wg.Go(func() {
				defer m.untrack(c.RunID)
				err := failure.Catch(func() error { m.executeRun(ctx, c); return nil })
				failure.LogPanic(m.log, "run "+c.RunID.String(), err)
			})
			continue
		}
		if err != nil && ctx.Err() == nil {
			m.log.Warn("could not look for runs", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-time.After(m.config.PollEvery):
		}
	}
}

// executeRun executes a run. After an interruption, such as a failure of the database or its replacement by another
// server, it claims the run again if no other replica has done so. It then resumes the run after the last committed
// batch, as another replica would. It therefore does not matter whether a batch that was cut off was committed.
func (m *Manager) executeRun(ctx context.Context, c *claim) {
	log := m.log.With("run_id", c.RunID.String())
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = m.config.Lease/50, m.config.Lease, 2
	for c != nil {
		log.Info("working on the run", "dry_run", c.DryRun, "epoch", c.Number)
		err := c.traceRun(ctx, func(ctx context.Context) error {
			return failure.Catch(func() error { return newAttempt(ctx, m, c).runAttempt(ctx) })
		})
		failure.LogPanic(log, "an attempt at the run", err)
		switch {
		case err == nil:
			return
		case errors.Is(err, errPaused):
			log.Info("stopped working on the run: it is paused")
			m.release(ctx, c)
			return
		case ctx.Err() != nil:
			log.Warn("released the run", "reason", err)
			m.release(ctx, c)
			return
		}
		log.Warn("run attempt failed; will retry", "reason", err)
		if c.progressed.Load() {
			pause.Reset()
		}
		// Other connections may be broken as well, or lead to a server that has been replaced.
		for _, pool := range []*pgxpool.Pool{m.pool, m.calls} {
			pool.Reset()
		}
		c = m.reclaim(ctx, c, err, pause, log)
	}
}

// maxFailedAttempts is how many attempts in a row may make no progress before the current task fails, because this
// task may be what crashes the database or the replica.
const maxFailedAttempts = 10

type claim struct {
	*store.Claim
	chosen     []string // the names of the run's tasks, in order
	todo       []string // the tasks that have not ended
	started    bool     // whether the first task of todo was started
	succeeded  map[string]bool
	policies   map[string]bool          // the tasks after whose failure the run always continues
	failed     bool                     // whether a task other than a policy has failed
	unmet      map[string]bool          // the tasks that have failed, or were not run because another one failed
	gaveUp     bool                     // whether a task failed because of too many failed attempts
	cursor     purge.Cursor             // the position within the current task
	undo       map[string]time.Duration // how long the trash keeps the rows of each task
	reason     string                   // why the run was last resumed
	progressed atomic.Bool              // whether the run has made progress since it was claimed
}

// position returns the place of a task among the chosen ones, from 1.
func (c *claim) position(name string) int { return slices.Index(c.chosen, name) + 1 }

// currentTask returns "" between tasks.
func (c *claim) currentTask() string {
	if !c.started {
		return ""
	}
	return c.todo[0]
}

// claimWaiting returns nil if no run waits. In a database that another instance owns, it claims only dry runs.
func (m *Manager) claimWaiting(ctx context.Context) (*claim, error) {
	waiting := store.Waiting(m.tracked(), tasks.Names(), m.Tasks.Kinds())
	if m.config.OnlyFollowed {
		m.mu.Lock()
		waiting = waiting.Among(slices.Clone(m.followed))
		m.mu.Unlock()
	}
	if exist, err := waiting.Exist(ctx, m.pool); err != nil || !exist {
		return nil, err
	}
	if err := m.database.checkWritable(ctx); err != nil { // otherwise the claim might be committed, but nothing after it
		return nil, err
	}
	owns, err := m.owner.Owns(ctx, m.pool)
	if err != nil {
		return nil, err
	}
	if !owns {
		waiting = waiting.DryRuns()
	}
	return m.claim(ctx, waiting, "", "")
}

// claim claims a run and writes to its log why it was resumed, unless the log last reported the same reason. An empty
// reason means that another replica had the run before. claim returns nil if there is no run to claim.
func (m *Manager) claim(ctx context.Context, from store.ClaimQuery, reason, reported string) (*claim, error) {
	begun := time.Now()
	var c *claim
	err := m.database.within(ctx, m.database.timeout, func(ctx context.Context) (err error) {
		c, err = m.tryClaim(ctx, from, reason, reported)
		return err
	})
	if err != nil && c != nil {
		err = m.verify(ctx, c, begun.Add(m.config.Lease), err)
	}
	if err != nil {
		return nil, err
	}
	if c != nil && c.reason != reported {
		m.counters.AttemptFailed()
	}
	return c, nil
}

// verify finds out whether a claim was committed although its COMMIT was not answered. It tries until the lease has
// expired. It returns nil if the claim was committed, otherwise the error of the COMMIT.
func (m *Manager) verify(ctx context.Context, c *claim, until time.Time, commit error) error {
	errCommitted := errors.New("the claim was committed")
	for time.Now().Before(until) && ctx.Err() == nil {
		err := m.database.within(ctx, m.database.timeout, func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
				// Returning an error makes the transaction end with a ROLLBACK; a COMMIT might have to wait as well.
				return cmp.Or(store.VerifyClaim(ctx, tx, c.Claim, m.config.Replica), errCommitted)
			})
		})
		switch {
		case errors.Is(err, errCommitted):
			m.log.Warn("claim was committed despite a lost COMMIT response", "run_id", c.RunID.String(),
				"error", commit)
			return nil
		case errors.Is(err, store.ErrNotClaimed):
			return commit
		}
		select {
		case <-ctx.Done():
		case <-time.After(m.config.Lease / 50):
		}
	}
	return commit
}

// tryClaim returns the claim even if only its COMMIT fails or is not answered.
func (m *Manager) tryClaim(
	ctx context.Context, from store.ClaimQuery, reason, reported string,
) (claimed *claim, err error) {
	err = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		row, err := store.ClaimRun(ctx, tx, from, m.config.Replica, m.config.Lease)
		if err != nil || row == nil {
			return err
		}
		if !row.DryRun { // the connection may lead to another database by now
			if err := m.owner.Check(ctx, tx); err != nil {
				return err
			}
		}
		tasks, err := store.ClaimTasks(ctx, tx, row.Epoch)
		if err != nil {
			return err
		}
		c := newClaim(row, tasks)
		if c.DryRun {
			if err := store.ResetCounts(ctx, tx, c.RunID); err != nil {
				return err
			}
		}
		if c.State != store.Queued && c.Replica != "" {
			c.reason = cmp.Or(reason, "replica "+c.Replica+" stopped renewing its lease")
		}
		if c.reason == "" || c.reason != reported {
			event, err := c.event(ctx, tx, m.config.Replica)
			if err != nil {
				return err
			}
			if err := store.AppendEvents(ctx, tx, c.Epoch, event); err != nil {
				return err
			}
		}
		claimed = c
		return nil
	})
	return claimed, err
}

func newClaim(row *store.Claim, tasks []store.ClaimedTask) *claim {
	c := &claim{
		Claim: row, succeeded: map[string]bool{}, policies: map[string]bool{}, unmet: map[string]bool{},
		undo: map[string]time.Duration{},
	}
	for _, t := range tasks {
		c.chosen, c.undo[t.Name] = append(c.chosen, t.Name), t.Undo
		c.succeeded[t.Name] = t.State == cleanup.Succeeded
		c.policies[t.Name] = t.Kind == rules.Policy.String()
		c.failed = c.failed || t.State == cleanup.Failed && !c.policies[t.Name]
		c.unmet[t.Name] = t.State == cleanup.Failed || t.State == cleanup.NotRun
		if t.State == cleanup.Running {
			c.started, c.cursor = true, t.Cursor
		}
		if t.State == cleanup.Running || t.State == cleanup.Pending {
			c.todo = append(c.todo, t.Name)
		}
	}
	return c
}

func (c *claim) event(ctx context.Context, tx pgx.Tx, replica string) (store.Event, error) {
	if c.State == store.Queued {
		run, err := store.GetRun(ctx, tx, c.RunID)
		return store.Event{Kind: store.RunStarted, Run: run}, err
	}
	m := message.Infof("replica %s continues after the last committed batch", replica)
	if c.reason != "" {
		m = message.RunResumed.With("reason", c.reason, "replica", replica, "attempts", c.FailedAttempts,
			"limit", maxFailedAttempts)
	}
	return store.LogEvent(c.currentTask(), m), nil
}

// confirmStart records that the attempt has started. From then on it counts as failed if it makes no progress. This
// way a database in which the run can be claimed, but nothing else works, does not use up attempts.
func (m *Manager) confirmStart(ctx context.Context, c *claim) error {
	if err := m.database.write(ctx, m.config.Lease, func(ctx context.Context) error {
		return store.ConfirmStart(ctx, m.pool, c.Epoch, m.config.Lease)
	}); err != nil {
		return fmt.Errorf("%w: could not record the start: %w", cleanup.ErrLost, err)
	}
	m.startConfirmed(c.RunID)
	return nil
}

// renewLease keeps renewing the lease, also during long statements, and ends the attempt if it cannot.
func (m *Manager) renewLease(ctx context.Context, c *claim, lose context.CancelCauseFunc) {
	ticker := time.NewTicker(m.config.Lease / 3)
	defer ticker.Stop()
	until := time.Now().Add(m.config.Lease)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		begun := time.Now()
		err := m.database.write(ctx, m.config.Lease/3, func(ctx context.Context) error {
			return store.RenewLease(ctx, m.pool, c.Epoch, m.config.Lease)
		})
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, store.ErrFenced):
			lose(store.ErrFenced)
			return
		case err == nil:
			until = begun.Add(m.config.Lease)
		case time.Now().After(until):
			lose(fmt.Errorf("could not renew the lease: %w", err))
			return
		}
	}
}

// release ends the lease so that other replicas need not wait until it expires. Errors are ignored, because the
// lease expires anyway.
func (m *Manager) release(ctx context.Context, c *claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error { return store.ReleaseLease(ctx, tx, c.Epoch) })
}

// interruption is why an attempt ended before the run did.
type interruption struct {
	err error
	// awaited is the state of the database that ended the attempt, such as a full disk; "" if something else did. If it is
	// set, the attempt does not count as failed.
	awaited string
	// later is why the run had to wait after that; "" if it did not.
	later string
}

func (i *interruption) text() string {
	text := sqlstate.Explain(i.err)
	if i.awaited != "" {
		text = i.awaited + ": " + text
	}
	if i.later != "" && i.later != i.awaited {
		text += "; then: " + i.later
	}
	return text
}

// reclaim claims the run again as soon as the database can be written. It returns nil if another replica has the
// run, or if this one is stopping.
func (m *Manager) reclaim(ctx context.Context, c *claim, err error, pause backoff.BackOff, log *slog.Logger) *claim {
	cause := interruption{err: err, awaited: awaited(err)}
	if cause.awaited == "" { // a COMMIT that is cut off stops waiting, so the missing standby may show only now
		if now := m.database.checkWritable(ctx); now != nil && now.Error() == errStandby.Error() {
			cause.awaited = now.Error()
		}
	}
	reported := ""
	if cause.awaited != "" {
		reported = c.reason
		m.setWaits(c.RunID, cause.awaited)
	}
	for discounted := cause.awaited == ""; ; {
		if !discounted {
			discounted = m.discountAttempt(ctx, c) == nil
		}
		select {
		case <-ctx.Done():
			log.Warn("released the run", "reason", errStopping)
			m.release(ctx, c)
			return nil
		case <-time.After(pause.NextBackOff()):
		}
		err := m.database.checkWritable(ctx)
		if err != nil {
			cause.later = err.Error()
			m.setWaits(c.RunID, cause.later)
		} else if discounted {
			var again *claim
			if again, err = m.claim(ctx, store.Interrupted(c.Epoch), cause.text(), reported); again != nil {
				return again
			}
			if err == nil {
				if err = m.abandon(ctx, c, &cause); err == nil {
					log.Warn("released the run", "reason", store.ErrFenced)
					return nil
				}
			}
		}
		log.Warn("could not resume the run", "error", err)
	}
}

// abandon gives up a run that has ended, no longer exists or was claimed by another replica. It writes the reason to
// the log of an active run unless the log has it already. If this replica's final COMMIT succeeded without a response,
// it reports the end of the run.
func (m *Manager) abandon(ctx context.Context, c *claim, cause *interruption) error {
	var endedHere *store.Run
	err := m.database.within(ctx, m.database.timeout, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
			state, epoch, err := store.LockRun(ctx, tx, c.RunID)
			switch {
			case errors.Is(err, pgx.ErrNoRows): // pruned
				return nil
			case err != nil:
				return err
			case state.Active() && errors.Is(cause.err, store.ErrFenced): // its log has the reason already
				return nil
			case state.Active():
				released := message.RunReleased.With("replica", m.config.Replica, "reason", cause.text())
				return store.AppendEvents(ctx, tx, epoch, store.LogEvent(c.currentTask(), released))
			case epoch == c.Epoch:
				endedHere, err = store.GetRun(ctx, tx, c.RunID)
			}
			return err
		})
	})
	if err == nil && endedHere != nil {
		m.reportEnd(endedHere)
	}
	if errors.Is(err, store.ErrFenced) { // the server was restarted or replaced, and no replica has claimed the run since
		return nil
	}
	return err
}

func (m *Manager) discountAttempt(ctx context.Context, c *claim) error {
	return m.database.within(ctx, m.database.timeout, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error { return store.DiscountAttempt(ctx, tx, c.Epoch) })
	})
}

// wakeWorker makes the worker look for a run that may be waiting to be claimed.
func (m *Manager) wakeWorker() {
	select {
	case m.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// Ready fails while the database cannot be written, or while a run of this worker waits for it. The error names the
// cause, and may be shown to any caller. Ready queries the database at most once a second.
func (m *Manager) Ready(ctx context.Context) error {
	if err := m.database.checkWritable(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, cause := range m.waits {
		if cause != "" {
			return fmt.Errorf("run %s waits: %s", id, cause)
		}
	}
	return nil
}

// setWaits stores why a run waits; cause is "" if it does not.
func (m *Manager) setWaits(id uuid.UUID, cause string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits[id] = cause
}

// startConfirmed records that the run no longer waits, unless it waits for disk space: there may be just enough
// space for the confirmation.
func (m *Manager) startConfirmed(id uuid.UUID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waits[id] != awaitedStates[pgerrcode.DiskFull] {
		m.waits[id] = ""
	}
}

func (m *Manager) untrack(id uuid.UUID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waits, id)
}

func (m *Manager) tracked() []uuid.UUID {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := []uuid.UUID{}
	for id := range m.waits {
		ids = append(ids, id)
	}
	return ids
}
