package worker

import (
	"context"
	"errors"
	"time"

	"github.com/cleanupd/cleanupd/service/runs/store"
)

const (
	// instructionsEvery is how often the instructions are read besides those that each batch reads.
	instructionsEvery = 500 * time.Millisecond
	// pauseGrace is how long a statement may keep running after the run was paused.
	pauseGrace = time.Second
)

// watchInstructions interrupts a statement that goes on after the run was paused, such as the count of a large table.
// Nothing is lost: the run continues after its last batch.
func (a *attempt) watchInstructions(ctx context.Context, lose context.CancelCauseFunc) {
	ticker := time.NewTicker(instructionsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		i, err := store.ReadInstructions(ctx, a.w.Pool, a.claim.Epoch)
		if err == nil && errors.Is(a.follow(i), errPaused) {
			select {
			case <-ctx.Done():
			case <-time.After(pauseGrace):
				lose(errPaused)
			}
			return
		}
	}
}
