package growth

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// All samples that are younger than keepAll are kept. Of older ones, only the last of each week is kept, until it
// is older than keepWeekly.
const (
	keepAll    = 90 * 24 * time.Hour
	keepWeekly = 400 * 24 * time.Hour
)

// thin keeps only the last sample of each week before $1, and adds to it what the deleted ones counted.
const thin = `
WITH week AS (
  SELECT table_id, max(time) AS last, sum(inserted)::bigint AS inserted, sum(deleted)::bigint AS deleted,
    bool_or(reset) AS reset
  FROM cleanupd.table_sample WHERE time < $1
  GROUP BY table_id, date_trunc('week', time AT TIME ZONE 'UTC') HAVING count(*) > 1),
others AS (
  DELETE FROM cleanupd.table_sample s USING week w WHERE s.table_id = w.table_id AND s.time < w.last
    AND date_trunc('week', s.time AT TIME ZONE 'UTC') = date_trunc('week', w.last AT TIME ZONE 'UTC'))
UPDATE cleanupd.table_sample s SET inserted = w.inserted, deleted = w.deleted, reset = w.reset
FROM week w WHERE s.table_id = w.table_id AND s.time = w.last`

// expire deletes the samples before $1, except the last one of each table, which says how large the table is until
// the next sample.
const expire = `
DELETE FROM cleanupd.table_sample s WHERE time < $1 AND EXISTS (
  SELECT FROM cleanupd.table_sample later WHERE later.table_id = s.table_id AND later.time > s.time
    AND later.time < $1)`

// prune also deletes tables that were dropped long ago.
func prune(ctx context.Context, tx pgx.Tx, now time.Time) error {
	for _, statement := range []struct {
		sql   string
		since time.Duration
	}{
		{thin, keepAll},
		{expire, keepWeekly},
		{"DELETE FROM cleanupd.sampled_table WHERE drop_time < $1", keepWeekly},
		{"DELETE FROM cleanupd.table_sampling WHERE time < $1", keepWeekly},
	} {
		if _, err := tx.Exec(ctx, statement.sql, now.Add(-statement.since)); err != nil {
			return err
		}
	}
	return nil
}
