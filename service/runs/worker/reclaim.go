package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// interruption says why an attempt ended before the run did.
type interruption struct {
	err error
	// awaited says what the database was waited for; "" for any other reason. If it is set, the attempt does not count
	// as failed.
	awaited string
	// later says what had to be waited for after that.
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
func (w *Worker) reclaim(ctx context.Context, c *claim, err error, pause backoff.BackOff, log *slog.Logger) *claim {
	cause := interruption{err: err, awaited: awaited(err)}
	if cause.awaited == "" { // a COMMIT that is cut off stops waiting, so the missing standby may show only now
		if now := w.database.checkWritable(ctx); now != nil && now.Error() == errStandby.Error() {
			cause.awaited = now.Error()
		}
	}
	reported := ""
	if cause.awaited != "" {
		reported = c.reason
		w.setWaits(c.RunID, cause.awaited)
	}
	for discounted := cause.awaited == ""; ; {
		if !discounted {
			discounted = w.discountAttempt(ctx, c) == nil
		}
		select {
		case <-ctx.Done():
			log.Warn("left the run", "reason", errStopping)
			w.release(ctx, c)
			return nil
		case <-time.After(pause.NextBackOff()):
		}
		err := w.database.checkWritable(ctx)
		if err != nil {
			cause.later = err.Error()
			w.setWaits(c.RunID, cause.later)
		} else if discounted {
			var again *claim
			if again, err = w.claim(ctx, store.Interrupted(c.Epoch), cause.text(), reported); again != nil {
				return again
			}
			if err == nil {
				if err = w.abandon(ctx, c, &cause); err == nil {
					log.Warn("left the run", "reason", store.ErrFenced)
					return nil
				}
			}
		}
		log.Warn("cannot take the run up again", "error", err)
	}
}

// abandon leaves a run that has ended or that another replica has claimed. It writes the reason to the run's log,
// which was not possible before. If the run ended here by a COMMIT that was not answered, it records the end now.
func (w *Worker) abandon(ctx context.Context, c *claim, cause *interruption) error {
	var endedHere *store.Run
	err := w.database.within(ctx, w.database.timeout, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error {
			state, epoch, err := store.LockRun(ctx, tx, c.RunID)
			switch {
			case errors.Is(err, pgx.ErrNoRows): // pruned
				return nil
			case err != nil:
				return err
			case state.Active() && errors.Is(cause.err, store.ErrFenced): // its log has the reason already
				return nil
			case state.Active():
				released := message.RunReleased.With("replica", w.Replica, "reason", cause.text())
				return store.AppendEvents(ctx, tx, epoch, store.LogEvent(c.currentTask(), released))
			case epoch == c.Epoch:
				endedHere, err = store.GetRun(ctx, tx, c.RunID)
			}
			return err
		})
	})
	if err == nil && endedHere != nil {
		w.ended(endedHere)
	}
	if errors.Is(err, store.ErrFenced) { // the database was replaced by one in which no replica has the run
		return nil
	}
	return err
}

func (w *Worker) discountAttempt(ctx context.Context, c *claim) error {
	return w.database.within(ctx, w.database.timeout, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error { return store.DiscountAttempt(ctx, tx, c.Epoch) })
	})
}
