package runs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/worker"
)

// Get fails with store.ErrNotFound.
func (m *Manager) Get(ctx context.Context, id string) (*store.Run, error) {
	parsed, err := store.ParseID(id)
	if err != nil {
		return nil, err
	}
	return store.GetRun(ctx, m.calls, parsed)
}

// List returns runs, newest first, and the token of the next page, "" on the last page. It fails with
// pagetoken.ErrInvalid, or with a failure.FieldError if there is no such task.
func (m *Manager) List(
	ctx context.Context, v store.View, f store.Filter, size int, token string,
) ([]*store.Run, string, error) {
	page, next, err := store.ListRuns(ctx, m.calls, v, f, size, token)
	if err != nil || f.Task == "" || len(page) > 0 {
		return page, next, err
	}
	list, err := m.Tasks.Read(ctx, m.calls)
	if err != nil {
		return nil, "", err
	}
	if _, exists := list.Find(f.Task); exists {
		return nil, "", nil
	}
	// The task may have been removed, and have runs that only the other fields of the filter leave out.
	page, _, err = store.ListRuns(ctx, m.calls, store.Basic, store.Filter{Task: f.Task}, 1, "")
	if err == nil && len(page) == 0 {
		err = failure.Field("task", fmt.Sprintf("there is no task %q", f.Task))
	}
	return nil, "", err
}

// Cancel makes a run stop after its current batch. A run that no replica executes ends at once, and one that has
// ended is returned unchanged. Cancel fails with store.ErrNotFound.
func (m *Manager) Cancel(ctx context.Context, runID string) (*store.Run, error) {
	run, err := m.Get(ctx, runID)
	if err != nil {
		return nil, err
	}
	id := run.UUID()
	var ended *store.Run // nil if it does not end at once
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		if _, err := m.scheduler.LockPending(ctx, tx); err != nil { // before any other lock, as always when a run ends
			return err
		}
		if !run.DryRun {
			if err := m.owner.Lock(ctx, tx); err != nil {
				return err
			}
		}
		if err := audit.Note(ctx, tx, audit.Details{"run_id": run.ID}); err != nil {
			return err
		}
		idle, err := store.RequestCancel(ctx, tx, id)
		if err != nil || !idle {
			return err
		}
		ended, err = m.worker.Terminate(ctx, tx, id, worker.Outcome{
			State: store.Cancelled,
			Error: store.StopCancelled,
			Cause: store.CauseCancelled,
		})
		return err
	})
	if ended != nil {
		m.worker.Terminated(ctx, ended, err)
	}
	if err != nil {
		return nil, err
	}
	return store.GetRun(ctx, m.calls, id)
}

// Adopt makes this instance the owner of the database. It cancels active runs and disables the schedule.
func (m *Manager) Adopt(ctx context.Context) error {
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		if err := store.DisableSchedule(ctx, tx); err != nil {
			return err
		}
		// SetIdentity waits for requests of runs that are in progress, and later requests wait for this transaction.
		if err := store.SetIdentity(ctx, tx, m.config.Instance); err != nil {
			return err
		}
		adoption, err := store.PreviewAdoption(ctx, tx, m.config.Instance)
		if err != nil {
			return err
		}
		for _, id := range adoption.Runs {
			if _, err := m.worker.Terminate(ctx, tx, id, worker.Outcome{
				State: store.Cancelled,
				Error: "the database was adopted by " + adoption.To,
				Cause: store.CauseCancelled,
			}); err != nil {
				return err
			}
		}
		return nil
	})
}
