package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

var _ cleanup.Journal = (*attempt)(nil)

// write runs a transaction and appends the events that do returns. Only one write runs at a time.
func (a *attempt) write(ctx context.Context, do func(tx pgx.Tx) ([]store.Event, error)) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	var events []store.Event
	err := pgx.BeginFunc(ctx, a.w.Pool, func(tx pgx.Tx) (err error) {
		if events, err = do(tx); err != nil || len(events) == 0 {
			return err
		}
		return store.AppendEvents(ctx, tx, a.claim.Epoch, events...)
	})
	if err == nil {
		a.w.Metrics.Logged(events...)
	}
	return err
}

// follow sets the pace, and fails if this replica or the run has to stop. i is nil if the epoch has ended.
func (a *attempt) follow(i *store.Instructions) error {
	select {
	case <-a.stopping:
		return errStopping
	default:
	}
	switch {
	case i == nil:
		return store.ErrFenced
	case i.Stop == store.StopPaused:
		return errPaused
	case i.Stop != "":
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stopReason = i.Stop
		return cleanup.ErrStopped
	}
	a.pace.Set(i.Pace)
	return nil
}

// progressed records that the database accepted what the run wrote, so that the run no longer counts as waiting.
func (a *attempt) progressed() {
	if !a.claim.progressed.Swap(true) {
		a.w.setWaits(a.claim.RunID, "")
	}
}

// TaskStarted does not start a task again that a previous worker has started.
func (a *attempt) TaskStarted(ctx context.Context, name string) error {
	var t store.StartedTask
	err := a.write(ctx, func(tx pgx.Tx) (_ []store.Event, err error) {
		if t, err = store.StartTask(ctx, tx, a.claim.Epoch, name); err != nil {
			return nil, err
		}
		if err := a.follow(t.Instructions); err != nil || !t.Started {
			return nil, err
		}
		return []store.Event{{
			Kind:     store.TaskStarted,
			Task:     name,
			Position: a.claim.position(name),
			Count:    len(a.claim.chosen),
		}}, nil
	})
	if err == nil {
		a.current.start(name, t.Progress)
	}
	return err
}

func (a *attempt) TaskFinished(ctx context.Context, o cleanup.Outcome) error {
	var (
		run    *store.Run
		result *store.Result
		id     = a.claim.RunID
		task   = a.current.name()
	)
	err := a.write(ctx, func(tx pgx.Tx) ([]store.Event, error) {
		events, err := store.Measure(ctx, tx, id, task)
		if err != nil {
			return nil, err
		}
		if err := store.FinishTask(ctx, tx, a.claim.Epoch, task, o); err != nil {
			return nil, err
		}
		if !a.claim.DryRun {
			if err := store.RecordJudgement(ctx, tx, id, task, o, a.claim.Accepted); err != nil {
				return nil, err
			}
		}
		if run, err = store.GetRun(ctx, tx, id); err != nil {
			return nil, err
		}
		result = run.Result(task)
		a.current.end()
		return append(events, store.Event{Kind: store.TaskFinished, Result: result}), nil
	})
	if err == nil {
		a.progressed()
		if o.State != cleanup.Cancelled { // the end of the run counts it
			a.w.Metrics.TaskEnded(run, result)
		}
	}
	return err
}

func (a *attempt) Holds(ctx context.Context) (rules.Holds, error) {
	holds, last, err := store.EffectiveHolds(ctx, a.w.Pool, a.claim.ReferenceTime)
	if err == nil && !a.claim.DryRun {
		a.current.setLastHold(last)
	}
	return holds, err
}

func (a *attempt) PolicyChange(ctx context.Context, t rules.Task) (why *message.Message, err error) {
	if t.Kind != rules.Policy || a.claim.DryRun {
		return nil, nil
	}
	name := strings.TrimPrefix(t.Name, policy.Prefix)
	a.current.setPolicy(name, t.Revision)
	now, err := store.GetPolicy(ctx, a.w.Pool, name)
	changed := message.PolicyChanged.With("task", t.Name)
	switch {
	case errors.Is(err, store.ErrNoPolicy):
		changed = message.TaskRemoved.With("task", t.Name)
	case err != nil || now.Revision == t.Revision:
		return nil, err
	case !now.Enabled:
		changed = message.TaskDisabled.With("task", t.Name)
	}
	return &changed, nil
}

func (a *attempt) History(ctx context.Context) (*guard.History, error) {
	h, err := store.GuardHistory(ctx, a.w.Pool, a.claim.RunID, a.current.name())
	if err == nil {
		h.Accepted = a.claim.Accepted
	}
	return h, err
}

func (a *attempt) RecordRemote(query sqlexpr.Expr) sqlexpr.Expr {
	return store.RecordRemote(a.claim.RunID, query)
}

func (a *attempt) RemoteIDs(ctx context.Context, account string) ([]int64, error) {
	holds, _, err := store.EffectiveHolds(ctx, a.w.Pool, a.claim.ReferenceTime)
	if err != nil || holds.Everything {
		return nil, err
	}
	return store.RemoteIDs(ctx, a.w.Pool, account, holds.Deliveries)
}

func (a *attempt) ForgetRemote(ctx context.Context, account string, ids []int64) error {
	return store.ForgetRemote(ctx, a.w.Pool, account, ids)
}

// Count retries the statement after a transient error. Otherwise the caller would believe that the table whose rows
// are counted caused the error.
func (a *attempt) Count(ctx context.Context, d purge.Delta) error {
	e := a.newEntry(d)
	for try := 1; ; try++ {
		err := e.send(ctx)
		switch attempts := purge.MaxAttempts[sqlstate.Of(err)]; {
		case attempts == 0:
			return e.settle(err)
		case try >= attempts:
			return fmt.Errorf("%w: the count could not be written: %s", cleanup.ErrLost, sqlstate.Explain(err))
		}
	}
}

func (a *attempt) Done() int64 { return a.current.done() }

func (a *attempt) DoneByTable(ctx context.Context) ([]purge.Space, error) {
	return store.DoneByTable(ctx, a.w.Pool, a.claim.RunID, a.current.name())
}

func (a *attempt) Emptied(ctx context.Context, task string) ([]string, error) {
	return store.Emptied(ctx, a.w.Pool, a.claim.RunID, task)
}
