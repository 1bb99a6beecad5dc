package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/pipeline"
)

// confirm says that the worker has started: from then on it is a setback if it does not get on. A database that lets it
// claim the run and nothing else does not use up attempts.
func (m *Manager) confirm(ctx context.Context, c *claim) error {
	if err := m.prolong(ctx, m.lease, c, ", progress = "+progressNow); err != nil {
		return fmt.Errorf("%w: the start could not be recorded: %w", pipeline.ErrLost, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.atWork[c.id] != awaited[pgerrcode.DiskFull] { // there is room for this, but maybe for no more
		m.atWork[c.id] = ""
	}
	return nil
}

// prolong renews the lease, and sets further columns.
func (m *Manager) prolong(ctx context.Context, limit time.Duration, c *claim, more string) error {
	return m.within(ctx, limit, func(ctx context.Context) error {
		tag, err := m.pool.Exec(
			ctx,
			"UPDATE cleanupd.run SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'"+more+`
			WHERE `+held+` AND state = 'RUNNING'`,
			c.id,
			c.epoch,
			m.lease.Microseconds(),
		)
		switch {
		case err != nil:
			return err
		case tag.RowsAffected() == 0:
			return errFenced
		}
		m.pulse.answered()
		return nil
	})
}

// renew renews the lease, whatever statement is running, and ends the work if it cannot.
func (m *Manager) renew(ctx context.Context, c *claim, lose context.CancelCauseFunc) {
	ticker := time.NewTicker(m.lease / 3)
	defer ticker.Stop()
	until := time.Now().Add(m.lease)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asked := time.Now()
		err := m.prolong(ctx, m.lease/3, c, "")
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errFenced):
			lose(errFenced)
			return
		case err == nil:
			until = asked.Add(m.lease)
		case time.Now().After(until):
			lose(fmt.Errorf("the lease could not be renewed: %w", err))
			return
		}
	}
}

// release gives up a run's lease at once, so that no replica waits for it to expire; if that fails, it expires. A run
// that another replica has is left alone.
func (m *Manager) release(ctx context.Context, c *claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(
			ctx,
			"UPDATE cleanupd.run SET lease_until = clock_timestamp(), holder = '' WHERE id = $1::text::uuid AND "+
				"epoch = $2 AND state = 'RUNNING'",
			c.id,
			c.epoch,
		); err != nil {
			return err
		}
		return notify(ctx, tx, c.id, 0)
	})
}
