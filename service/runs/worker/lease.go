package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// confirmStart records that the attempt has started. From then on it counts as failed if it makes no progress. This
// way a database in which the run can be claimed, but nothing else works, does not use up attempts.
func (w *Worker) confirmStart(ctx context.Context, c *claim) error {
	if err := w.database.write(ctx, w.Lease, func(ctx context.Context) error {
		return store.ConfirmStart(ctx, w.Pool, c.Epoch, w.Lease)
	}); err != nil {
		return fmt.Errorf("%w: the start could not be recorded: %w", cleanup.ErrLost, err)
	}
	w.startConfirmed(c.RunID)
	return nil
}

// renewLease keeps renewing the lease, also during long statements, and ends the attempt if it cannot.
func (w *Worker) renewLease(ctx context.Context, c *claim, lose context.CancelCauseFunc) {
	ticker := time.NewTicker(w.Lease / 3)
	defer ticker.Stop()
	until := time.Now().Add(w.Lease)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		begun := time.Now()
		err := w.database.write(ctx, w.Lease/3, func(ctx context.Context) error {
			return store.RenewLease(ctx, w.Pool, c.Epoch, w.Lease)
		})
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, store.ErrFenced):
			lose(store.ErrFenced)
			return
		case err == nil:
			until = begun.Add(w.Lease)
		case time.Now().After(until):
			lose(fmt.Errorf("the lease could not be renewed: %w", err))
			return
		}
	}
}

// release ends the lease so that other replicas need not wait until it expires. Errors are ignored, because the
// lease expires anyway.
func (w *Worker) release(ctx context.Context, c *claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error { return store.ReleaseLease(ctx, tx, c.Epoch) })
}
