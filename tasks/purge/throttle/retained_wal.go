package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/message"
)

// retainedEvery is how often the WAL that the server cannot remove is measured.
const retainedEvery = 10 * time.Second

type retainedWAL struct {
	Subject string // identifies the warning, so that it is not repeated
	Reason  string // why the server cannot remove it
	Bytes   int64  // 0 if unknown
	Size    string // Bytes in readable form, or "an unknown amount"
	Remedy  string
}

// retainedSQL returns the reasons why the server cannot remove WAL: replication slots without a reader, slots that
// have lost WAL or are about to, and an archiver that fails or is not configured. The name of a WAL file gives its
// position: after the timeline, 8 hexadecimal digits each for the unit of 4 GiB and for the segment in it. If the
// archiver fails at a history file, whose name gives no position, WAL has been waiting since the last file that was
// archived.
const retainedSQL = `
WITH archiver AS (
  SELECT CASE
      WHEN current_setting('archive_command') = '' AND COALESCE(current_setting('archive_library', true), '') = ''
        THEN 'archive_mode is on, and neither archive_command nor archive_library is set'
      WHEN last_failed_time > COALESCE(last_archived_time, '-infinity')
        THEN 'the archiver fails at ' || last_failed_wal || ', and has archived nothing since ' ||
          COALESCE(to_char(last_archived_time, 'YYYY-MM-DD HH24:MI TZ'), 'the statistics began')
    END AS reason,
    substring(CASE WHEN last_failed_wal ~ '^[0-9A-F]{24}'
      AND last_failed_time > COALESCE(last_archived_time, '-infinity')
      THEN last_failed_wal ELSE last_archived_wal END FROM '^[0-9A-F]{24}') AS file
  FROM pg_stat_archiver WHERE current_setting('archive_mode') <> 'off')
SELECT COALESCE(subject, reason), reason, GREATEST(COALESCE(bytes, 0), 0)::bigint,
	COALESCE(pg_size_pretty(GREATEST(bytes, 0)),
  'an unknown amount'), remedy FROM (
SELECT NULL AS subject,
  'the replication slot ' || slot_name || CASE WHEN active THEN '' ELSE ' has no reader' END || CASE
  WHEN wal_status = 'reserved' THEN '' ELSE ' (WAL is ' || wal_status || ')' END AS reason,
  COALESCE(pg_current_wal_lsn() - restart_lsn, 0) AS bytes,
  CASE WHEN slot_type = 'logical'
    THEN format('a subscriber reads it (plugin %s, database %s): see that server''s log and pg_stat_subscription_stats',
      plugin, database)
    ELSE 'a standby or a backup reads it: see that server''s log and pg_stat_wal_receiver'
  END || ', and pg_replication_slots here' AS remedy
FROM pg_replication_slots WHERE NOT temporary AND (NOT active AND restart_lsn IS NOT NULL OR wal_status <> 'reserved')
UNION ALL
SELECT 'archiver', reason, pg_current_wal_lsn() - '0/0' - (('x' || lpad(substr(file, 9, 8), 16, '0'))::bit(64)::bigint
    ::numeric * 4294967296 + ('x' || lpad(substr(file, 17, 8), 16, '0'))::bit(64)::bigint *
      pg_size_bytes(current_setting('wal_segment_size'))),
  'see archive_command, and the server''s log'
FROM archiver WHERE reason IS NOT NULL
) AS retained ORDER BY 3 DESC`

type retainedSample struct {
	at   time.Time
	last []retainedWAL // the greatest first
}

// refresh measures the retained WAL if the last measurement is too old.
func (r *retainedSample) refresh(ctx context.Context, pool *pgxpool.Pool, now time.Time) error {
	if now.Sub(r.at) < retainedEvery {
		return nil
	}
	rows, err := pool.Query(ctx, retainedSQL)
	if err != nil {
		return err
	}
	if r.last, err = pgx.CollectRows(rows, pgx.RowToStructByPos[retainedWAL]); err != nil {
		return fmt.Errorf("measure the retained WAL: %w", err)
	}
	r.at = now
	return nil
}

// retainedExceeded warns of retained WAL, and returns a cause if there is more of it than the limit.
func (t *Throttler) retainedExceeded(limit int64, r Recorder) Cause {
	all := t.retained.last
	for _, w := range all {
		t.warnOnce(r, w.Subject, message.WALRetained.With("cause", w.Reason, "size", w.Size, "remedy", w.Remedy))
	}
	if limit > 0 && len(all) > 0 && all[0].Bytes > limit {
		return Cause{RetainedWAL, all[0].Reason + ", " + all[0].Size}
	}
	return Cause{}
}
