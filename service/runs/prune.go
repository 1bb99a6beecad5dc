package runs

import (
	"context"
	"time"

	"github.com/cleanupd/cleanupd/tasks/guard"
)

// pruneEvery is how often old runs are looked for; more often if they are kept for less.
const pruneEvery = time.Hour

// prune deletes runs that ended before the history, with their events, one by one: a run may have many events. What
// guards compare with is kept longer, the details of dry runs less long.
func (m *Manager) prune(ctx context.Context) error {
	if err := m.pruneDetails(ctx); err != nil {
		return err
	}
	for {
		tag, err := m.pool.Exec(ctx, `DELETE FROM cleanupd.run WHERE id = (
			SELECT id FROM cleanupd.run WHERE end_time < clock_timestamp() - $1::bigint * interval '1 microsecond'
				ORDER BY create_time LIMIT 1 FOR UPDATE SKIP LOCKED)`,
			m.history.Microseconds())
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			break
		}
	}
	_, err := m.pool.Exec(
		ctx,
		"DELETE FROM cleanupd.taken WHERE start_time < clock_timestamp() - $1::bigint * interval '1 microsecond'",
		guard.UsualPeriod.Microseconds(),
	)
	return err
}

// detailsKept is for how many times the greatest age of a saved plan the details of dry runs are kept.
const detailsKept = 2

// pruneDetails deletes what dry runs found, and their events except the last, once no run can follow them any more.
func (m *Manager) pruneDetails(ctx context.Context) error {
	for {
		var some bool
		if err := m.pool.QueryRow(ctx, `WITH old AS (
			SELECT id, last_sequence FROM cleanupd.run AS d WHERE dry_run
				AND end_time < clock_timestamp() - $1::bigint * interval '1 microsecond'
			  AND (EXISTS (SELECT FROM cleanupd.event WHERE run_id = d.id AND sequence < d.last_sequence)
			    OR EXISTS (SELECT FROM cleanupd.task WHERE run_id = d.id AND (preview IS NOT NULL
			    OR planned IS NOT NULL)))
			  AND NOT EXISTS (SELECT FROM cleanupd.run WHERE plan = d.id AND state IN ('QUEUED', 'RUNNING'))
			    AND NOT EXISTS (SELECT FROM cleanupd.schedule WHERE next_plan = d.id)
			ORDER BY end_time LIMIT 1 FOR UPDATE SKIP LOCKED),
		events AS (DELETE FROM cleanupd.event AS e USING old WHERE e.run_id = id AND e.sequence < last_sequence),
		previews AS (UPDATE cleanupd.event AS e
			SET body = jsonb_set(body, '{Run,Results}', (SELECT jsonb_agg(r - 'Preview')
			FROM jsonb_array_elements(body #> '{Run,Results}') AS r))
		  FROM old WHERE e.run_id = id AND e.sequence = last_sequence
		    AND jsonb_array_length(body #> '{Run,Results}') > 0),
		tasks AS (UPDATE cleanupd.task AS t SET preview = NULL, planned = NULL FROM old WHERE t.run_id = id)
		SELECT EXISTS (SELECT FROM old)`, (detailsKept * m.planMaxAge).Microseconds()).Scan(&some); err != nil ||
			!some {
			return err
		}
	}
}
