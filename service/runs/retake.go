package runs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// retake claims a run again that the database set back, as soon as it can be written; nil if another replica has it, or
// this one is stopping. What the database had to be waited for does not count as a setback.
func (m *Manager) retake(ctx context.Context, c *claim, reason error, pause backoff.BackOff, log *slog.Logger) *claim {
	text, what, told, then := sqlstate.Explain(reason), waitsFor(reason), "", ""
	if what == "" { // what was given up waits no longer, so that a standby that is away may only show now
		if now := m.writable(ctx); now != nil && now.Error() == errStandby.Error() {
			what = now.Error()
		}
	}
	if what != "" {
		text = what + ": " + text
		told = c.reason
		m.waits(c.id, what)
	}
	for excused := what == ""; ; {
		if !excused {
			excused = m.discountAttempt(ctx, c) == nil
		}
		select {
		case <-ctx.Done():
			log.Warn("left the run", "reason", errHandover)
			m.release(ctx, c)
			return nil
		case <-time.After(pause.NextBackOff()):
		}
		err := m.writable(ctx)
		if err != nil {
			then = err.Error()
			m.waits(c.id, then)
		} else if excused {
			full := text
			if then != "" && then != what {
				full += "; then: " + then
			}
			var again *claim
			if again, err = m.claim(ctx, setBack, full, told, c.id, c.epoch); again != nil {
				return again
			}
			if err == nil {
				if err = m.part(ctx, c, reason, full); err == nil {
					log.Warn("left the run", "reason", errFenced)
					return nil
				}
			}
		}
		log.Warn("cannot take the run up again", "error", err)
	}
}

// part leaves a run that another replica has by now, or that has ended: its log is told why, which this replica could
// not say before. If it ended here, by a COMMIT that was not answered, the end is recorded as if it had been.
func (m *Manager) part(ctx context.Context, c *claim, reason error, text string) error {
	var here *Run
	err := m.within(ctx, m.shortTimeout, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
			var (
				state State
				epoch int64
			)
			err := tx.QueryRow(ctx, "SELECT state, epoch FROM cleanupd.run WHERE id = $1::text::uuid FOR UPDATE", c.id).
				Scan(&state, &epoch)
			switch {
			case errors.Is(err, pgx.ErrNoRows): // forgotten
				return nil
			case err != nil:
				return err
			case state.Active() && errors.Is(reason, errFenced): // its log says so already
			case state.Active():
				return appendEvents(
					ctx,
					tx,
					c.id,
					epoch,
					Event{
						Kind:    LogLine,
						Level:   severity.Warning,
						Task:    c.atWork(),
						Message: fmt.Sprintf("replica %s let go of the run: %s", m.replica, text),
					},
				)
			case epoch == c.epoch:
				here, err = get(ctx, tx, c.id)
			}
			return err
		})
	})
	if err == nil && here != nil {
		m.ended(here)
	}
	if errors.Is(err, errFenced) { // nobody holds it, by the history of this server
		return nil
	}
	return err
}

// discountAttempt makes a claim one whose worker has not confirmed its start, so that whoever claims the run next
// counts no failed attempt. It counts as progress what there was. It waits for no standby.
func (m *Manager) discountAttempt(ctx context.Context, c *claim) error {
	return m.within(ctx, m.shortTimeout, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = off")
			if err != nil {
				return err
			}
			// Whatever the row says so far, this waits for a record of the start that is given up just now, but may
			// stand.
			_, err = tx.Exec(
				ctx,
				`UPDATE cleanupd.run SET progress = '', setbacks = CASE WHEN progress IN ('', `+progressNow+`) THEN
					setbacks ELSE 0 END
				WHERE id = $1::text::uuid AND epoch = $2`,
				c.id,
				c.epoch,
			)
			return err
		})
	})
}
