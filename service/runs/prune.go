package runs

import (
	"context"
	"time"

	"github.com/cleanupd/cleanupd/tasks/execute"
)

// pruneEvery is how often old runs are looked for; more often if they are kept for less.
const pruneEvery = time.Hour

// prune deletes runs that ended before the history, with their events, one by one: a run may have many events. What guards compare with is kept longer.
func (m *Manager) prune(ctx context.Context) error {
	for {
		tag, err := m.pool.Exec(ctx, `DELETE FROM cleanupd.run WHERE id = (
			SELECT id FROM cleanupd.run WHERE end_time < clock_timestamp() - $1::bigint * interval '1 microsecond' ORDER BY create_time LIMIT 1 FOR UPDATE SKIP LOCKED)`,
			m.history.Microseconds())
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			break
		}
	}
	_, err := m.pool.Exec(ctx, "DELETE FROM cleanupd.taken WHERE start_time < clock_timestamp() - $1::bigint * interval '1 microsecond'", execute.UsualPeriod.Microseconds())
	return err
}
