package forecast

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Size is the size of the database in bytes, and how fast it grows.
type Size struct {
	Bytes int64
	// PerDay is the growth in bytes a day, and WithoutPerDay what it would be without the cleanup. They are nil until
	// the tables have been sampled for a day. Space that deleted rows leave is not returned, but the same table uses
	// it again.
	PerDay, WithoutPerDay *float64
}

// In returns the size after some days, or nil if the growth is unknown.
func (s Size) In(days int, perDay *float64) *int64 {
	if perDay == nil {
		return nil
	}
	bytes := s.Bytes + int64(float64(days)**perDay)
	return &bytes
}

// selectSize computes the growth from the rows that were inserted into each table and not deleted since the first
// sampling of the last 30 days, and from their mean size. Without the cleanup, the rows that its runs deleted would
// remain.
const selectSize = `
WITH first AS (SELECT min(time) AS time, extract(epoch FROM clock_timestamp() - min(time))::float8 / 86400 AS days
  FROM cleanupd.table_sampling WHERE time > clock_timestamp() - interval '30 days'),
ours AS (SELECT format('%I.%I', part[1], part[2]) AS name, sum(t.rows_deleted) AS rows
  FROM cleanupd.deletion t, parse_ident(t.table_name) AS part, first -- the role may have lost USAGE on the schema
  WHERE t.start_time > first.time GROUP BY 1),
grown AS (SELECT last.bytes::float8 / greatest(last.rows, 1) AS size, since.inserted, since.deleted,
    least(COALESCE(ours.rows, 0), since.deleted) AS ours
  FROM cleanupd.sampled_table t
  JOIN LATERAL (SELECT rows, bytes + index_bytes AS bytes FROM cleanupd.table_sample WHERE table_id = t.id
    ORDER BY time DESC LIMIT 1) AS last ON true
  JOIN LATERAL (SELECT sum(inserted)::float8 AS inserted, sum(deleted)::float8 AS deleted
    FROM cleanupd.table_sample, first WHERE table_id = t.id AND table_sample.time > first.time) AS since ON inserted > 0
  LEFT JOIN ours USING (name)
  WHERE t.drop_time IS NULL)
SELECT pg_database_size(current_database()),
  (SELECT COALESCE(sum(greatest(inserted - deleted, 0) * size), 0) FROM grown) / first.days,
  (SELECT COALESCE(sum(greatest(inserted - deleted + ours, 0) * size), 0) FROM grown) / first.days
FROM first WHERE first.days >= 1`

func ReadSize(ctx context.Context, db campaign.Querier) (s Size, err error) {
	err = db.QueryRow(ctx, selectSize).Scan(&s.Bytes, &s.PerDay, &s.WithoutPerDay)
	if errors.Is(err, pgx.ErrNoRows) {
		err = db.QueryRow(ctx, "SELECT pg_database_size(current_database())").Scan(&s.Bytes)
	}
	if err != nil {
		return s, fmt.Errorf("read the size of the database: %w", err)
	}
	return s, nil
}
