package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// maxFailedAttempts is how many attempts in a row may make no progress before the current task fails, because this
// task may be what crashes the database or the replica.
const maxFailedAttempts = 10

type claim struct {
	*store.Claim
	chosen     []string // the names of the run's tasks, in order
	todo       []string // the tasks that have not ended
	started    bool     // whether the first task of todo was started
	succeeded  map[string]bool
	policies   map[string]bool // the tasks after whose failure the run always continues
	failed     bool            // whether a task has failed that is no policy
	unmet      map[string]bool // the tasks that have failed, or were not run because another one failed
	gaveUp     bool            // whether a task failed because of too many failed attempts
	cursor     purge.Cursor    // the position within the current task
	reason     string          // why the run was last resumed
	progressed atomic.Bool     // whether the run has made progress since it was claimed
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
func (w *Worker) claimWaiting(ctx context.Context) (*claim, error) {
	waiting := store.Waiting(w.tracked(), tasks.Names(), w.Tasks.Kinds())
	if w.OnlyFollowed {
		w.mu.Lock()
		waiting = waiting.Among(slices.Clone(w.followed))
		w.mu.Unlock()
	}
	if exist, err := waiting.Exist(ctx, w.Pool); err != nil || !exist {
		return nil, err
	}
	if err := w.database.checkWritable(ctx); err != nil { // or the claim may be committed, and nothing else
		return nil, err
	}
	owns, err := w.Owner.Owns(ctx, w.Pool)
	if err != nil {
		return nil, err
	}
	if !owns {
		waiting = waiting.DryRuns()
	}
	return w.claim(ctx, waiting, "", "")
}

// claim claims a run and logs to it why it is resumed, unless that is the reason that was reported last. reason is
// "" if another replica had the run before. claim returns nil if there is no run to claim.
func (w *Worker) claim(ctx context.Context, from store.ClaimQuery, reason, reported string) (*claim, error) {
	begun := time.Now()
	var c *claim
	err := w.database.within(ctx, w.database.timeout, func(ctx context.Context) (err error) {
		c, err = w.tryClaim(ctx, from, reason, reported)
		return err
	})
	if err != nil && c != nil {
		err = w.verify(ctx, c, begun.Add(w.Lease), err)
	}
	if err != nil {
		return nil, err
	}
	if c != nil && c.reason != reported {
		w.Metrics.AttemptFailed()
	}
	return c, nil
}

// verify finds out whether a claim was committed although its COMMIT was not answered. It tries until the lease has
// expired, and returns nil if the claim was committed, otherwise the error of the COMMIT.
func (w *Worker) verify(ctx context.Context, c *claim, until time.Time, commit error) error {
	errCommitted := errors.New("the claim was committed")
	for time.Now().Before(until) && ctx.Err() == nil {
		err := w.database.within(ctx, w.database.timeout, func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error {
				// Returning an error makes the transaction end with a ROLLBACK; a COMMIT might have to wait as well.
				return cmp.Or(store.VerifyClaim(ctx, tx, c.Claim, w.Replica), errCommitted)
			})
		})
		switch {
		case errors.Is(err, errCommitted):
			w.Log.Warn("a claim stands, though its COMMIT was not answered", "run_id", c.RunID.String(),
				"error", commit)
			return nil
		case errors.Is(err, store.ErrNotClaimed):
			return commit
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.Lease / 50):
		}
	}
	return commit
}

// tryClaim returns the claim even if only its COMMIT fails or is not answered.
func (w *Worker) tryClaim(
	ctx context.Context, from store.ClaimQuery, reason, reported string,
) (claimed *claim, err error) {
	err = pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error {
		row, err := store.ClaimRun(ctx, tx, from, w.Replica, w.Lease)
		if err != nil || row == nil {
			return err
		}
		if !row.DryRun { // the connection may lead to another database by now
			if err := w.Owner.Check(ctx, tx); err != nil {
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
			event, err := c.event(ctx, tx, w.Replica)
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
	c := &claim{Claim: row, succeeded: map[string]bool{}, policies: map[string]bool{}, unmet: map[string]bool{}}
	for _, t := range tasks {
		c.chosen = append(c.chosen, t.Name)
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
