package worker

import (
	"context"
	"errors"
	"time"

	"github.com/cleanupd/cleanupd/service/runs/store"
)

const (
	// While no batch reads them.
	ordersEvery = 500 * time.Millisecond
	// How long a statement may keep running after the run is paused.
	pauseGrace = time.Second
)

// watchOrders interrupts what goes on after the run was paused, such as the count of a large table. The place of the
// run is that of its last batch.
func (a *attempt) watchOrders(ctx context.Context, lose context.CancelCauseFunc) {
	ticker := time.NewTicker(ordersEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		o, err := store.ReadInstructions(ctx, a.w.Pool, a.claim.Epoch)
		if err == nil && errors.Is(a.follow(o), errPaused) {
			select {
			case <-ctx.Done():
			case <-time.After(pauseGrace):
				lose(errPaused)
			}
			return
		}
	}
}
