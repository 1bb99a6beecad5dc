package forecast

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// selectNights reads what the last runs did of each task, newest first, and how long the tasks worked, without
// pauses. It leaves out runs that somebody cancelled, because they show nothing. A task that was not run was kept from
// it by the failed task on which it depends, or else by the last one before it.
const selectNights = `
SELECT t.name, r.start_time, t.rows_deleted + t.rows_updated,
  COALESCE(extract(epoch FROM t.end_time - t.start_time - t.paused_for), 0)::float8,
  CASE WHEN t.state IN ('CANCELLED', 'NOT_RUN') AND r.error = @stopped THEN
      CASE WHEN EXISTS (SELECT FROM cleanupd.event e WHERE e.run_id = r.id AND strpos(e.body::text,
	'"BATCHES_WAIT"') > 0)
        THEN @throttled::text ELSE @max_duration::text END
    WHEN t.state = 'NOT_RUN' AND blocked.task IS NOT NULL THEN @not_reached::text
    WHEN t.state IN ('FAILED', 'NOT_RUN') THEN @failing::text
    WHEN t.tables_retained > 0 OR t.rows_locked > 0 THEN @locks::text
    ELSE '' END,
  CASE WHEN t.state = 'NOT_RUN' THEN COALESCE(blocked.task, '') ELSE '' END
FROM (SELECT * FROM cleanupd.run WHERE NOT dry_run AND end_time IS NOT NULL AND start_time IS NOT NULL
    AND (state <> 'CANCELLED' OR error = @stopped) ORDER BY create_time DESC LIMIT 30) AS r
JOIN cleanupd.task t ON t.run_id = r.id AND t.chosen
LEFT JOIN LATERAL (SELECT f.name AS task FROM cleanupd.task f
  WHERE t.state = 'NOT_RUN' AND f.run_id = r.id AND f.state = 'FAILED' AND f.kind <> 'POLICY'
    AND f.position < t.position
  ORDER BY f.name = t.details -> 0 -> 'Params' ->> 'task' DESC NULLS LAST, f.position DESC LIMIT 1) AS blocked ON true
ORDER BY r.create_time DESC`

func nights(ctx context.Context, db campaign.Querier) (map[string][]Night, error) {
	rows, _ := db.Query(ctx, selectNights, pgx.StrictNamedArgs{
		"stopped":      store.StopMaxDuration,
		"throttled":    Throttled,
		"max_duration": MaxDuration,
		"failing":      Failing,
		"not_reached":  NotReached,
		"locks":        Locks,
	})
	var (
		task    string
		n       Night
		seconds float64
		found   = map[string][]Night{}
	)
	if _, err := pgx.ForEachRow(rows, []any{&task, &n.Start, &n.Rows, &seconds, &n.Bound, &n.FailingTask}, func() error {
		n.Took = time.Duration(seconds * float64(time.Second))
		found[task] = append(found[task], n)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the last runs: %w", err)
	}
	return found, nil
}
