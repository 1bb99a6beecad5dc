package worker

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func (a *attempt) At(object string, expected int64) {
	a.current.update(func(c *current) {
		c.progress.Object, c.progress.Scan, c.expected = object, purge.Scan{}, expected
	})
}

func (a *attempt) Log(ctx context.Context, messages ...message.Message) error {
	return a.write(ctx, func(pgx.Tx) ([]store.Event, error) {
		var events []store.Event
		for _, m := range messages {
			events = append(events, store.LogEvent(a.current.name(), m))
		}
		return events, nil
	})
}

func (a *attempt) Scanning(scan purge.Scan) {
	a.current.update(func(c *current) { c.progress.Scan = scan })
}

func (a *attempt) Throttled(throttle purge.Throttle) {
	a.current.update(func(c *current) {
		if c.throttle.Reason != "" {
			a.w.Metrics.Throttled(c.throttle.Reason, time.Since(c.throttledSince))
		}
		c.throttle, c.throttledSince = throttle, time.Now()
		c.progress.Throttle = throttle
	})
}

func (a *attempt) Retried(state string) { a.w.Metrics.Retried(state) }

// Progress is checked every progressTick. It is reported if something has changed, and after progressQuiet ticks in
// any case, which makes one to four reports a second.
const (
	progressTick  = 300 * time.Millisecond
	progressQuiet = 2
)

// writeProgress ignores errors, because the next batch finds out why an event could not be written.
func (a *attempt) writeProgress(ctx context.Context) {
	ticker := time.NewTicker(progressTick)
	defer ticker.Stop()
	for quiet := 1; ; quiet++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_ = a.write(ctx, func(pgx.Tx) ([]store.Event, error) {
			e, ok := a.current.report(quiet >= progressQuiet)
			if !ok {
				return nil, nil
			}
			quiet = 0
			e.Progress.Pace = a.pace.Get()
			return []store.Event{e}, nil
		})
	}
}
