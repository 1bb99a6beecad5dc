package purge

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// retainedEvery is how often it is looked at which WAL the server cannot remove.
const retainedEvery = 10 * time.Second

// retainedWAL is WAL that the server cannot remove.
type retainedWAL struct {
	Reason string // what keeps it
	Bytes  int64  // how much; 0 if that is unknown
	Size   string // the same for people
	Remedy string
}

// retainedSQL returns what keeps WAL from being removed: replication slots that nobody reads, slots that have lost WAL
// or are about to, and a failing archiver. Names of WAL files give their position: 8 hexadecimal digits each of the
// timeline, of 4 GiB, and of the segment in these.
const retainedSQL = `
SELECT reason, bytes, pg_size_pretty(bytes), remedy FROM (
SELECT 'the replication slot ' || slot_name || CASE WHEN active THEN '' ELSE ' has no reader' END || CASE
  WHEN wal_status = 'reserved' THEN '' ELSE ' (WAL is ' || wal_status || ')' END AS reason,
  GREATEST(COALESCE(pg_current_wal_lsn() - restart_lsn, 0), 0)::bigint AS bytes,
  'drop it if nothing needs it: SELECT pg_drop_replication_slot(' || quote_literal(slot_name) || ')' AS remedy
FROM pg_replication_slots WHERE NOT temporary AND (NOT active AND restart_lsn IS NOT NULL OR wal_status <> 'reserved')
UNION ALL
SELECT 'the archiver fails since ' || to_char(last_failed_time, 'YYYY-MM-DD HH24:MI TZ') || ' at ' || last_failed_wal,
  GREATEST(pg_current_wal_lsn() - '0/0' - (('x' || lpad(substr(last_failed_wal, 9, 8), 16,
    '0'))::bit(64)::bigint::numeric * 4294967296
    + ('x' || lpad(substr(last_failed_wal, 17, 8), 16, '0'))::bit(64)::bigint *
      pg_size_bytes(current_setting('wal_segment_size'))), 0)::bigint,
  'see archive_command, and the server''s log'
FROM pg_stat_archiver WHERE last_failed_time > COALESCE(last_archived_time, '-infinity')
  AND last_failed_wal ~ '^[0-9A-F]{24}' AND current_setting('archive_mode') <> 'off'
) AS kept ORDER BY bytes DESC`

// retainedSample is the last look at the WAL that the server cannot remove.
type retainedSample struct {
	at   time.Time
	last []retainedWAL
}

// refresh looks again if the last look is too old.
func (r *retainedSample) refresh(ctx context.Context, pool *pgxpool.Pool, now time.Time) error {
	if now.Sub(r.at) < retainedEvery {
		return nil
	}
	rows, err := pool.Query(ctx, retainedSQL)
	if err != nil {
		return err
	}
	if r.last, err = pgx.CollectRows(rows, pgx.RowToStructByPos[retainedWAL]); err != nil {
		return fmt.Errorf("look at the WAL that is retained: %w", err)
	}
	r.at = now
	return nil
}

// retainedTooMuch reports what keeps WAL from being removed, and returns a throttle if that is too much.
func (e *Engine) retainedTooMuch() Throttle {
	all := e.throttler.retained.last
	for _, w := range all {
		e.warnOnce(
			w.Reason,
			fmt.Sprintf(
				"%s: the server keeps %s of WAL for it, and more while rows are deleted; %s",
				w.Reason,
				w.Size,
				w.Remedy,
			),
		)
	}
	if limit := e.Limits.RetainedWAL; limit > 0 && len(all) > 0 && all[0].Bytes > limit { // the first one keeps most
		return Throttle{walRetained, all[0].Reason + ", " + all[0].Size}
	}
	return Throttle{}
}
