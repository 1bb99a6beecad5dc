package growth

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/insight"
)

// batch has all tables of a sampling, with one slice for each column.
type batch struct {
	names                   []string
	rows, bytes, indexBytes []int64
	inserted, deleted       []int64
	reset                   []bool
}

func newBatch(found *insight.Inventory) *batch {
	b := &batch{}
	for _, t := range found.Tables {
		b.names = append(b.names, t.Name)
		b.rows, b.bytes = append(b.rows, t.Rows), append(b.bytes, t.Bytes)
		b.indexBytes = append(b.indexBytes, t.IndexBytes)
	}
	return b
}

func (b *batch) count(found *insight.Inventory, c *counters) {
	for _, t := range found.Tables {
		var inserted, deleted int64
		reset := false
		for _, r := range t.Relations {
			more, fewer, doubtful := c.since(r)
			inserted, deleted, reset = inserted+more, deleted+fewer, reset || doubtful
		}
		b.inserted, b.deleted = append(b.inserted, inserted), append(b.deleted, deleted)
		b.reset = append(b.reset, reset)
	}
}

const registerTables = `
WITH found AS (SELECT unnest($1::text[]) AS name),
added AS (
  INSERT INTO cleanupd.sampled_table (name, first_time)
    SELECT name, $2 FROM found ON CONFLICT (name) DO UPDATE SET drop_time = NULL
      WHERE sampled_table.drop_time IS NOT NULL
  RETURNING id)
UPDATE cleanupd.sampled_table t SET drop_time = $2
  WHERE drop_time IS NULL AND NOT EXISTS (SELECT FROM found WHERE found.name = t.name)`

// insertSamples stores samples only of tables that have changed since their last sample.
const insertSamples = `
WITH found AS (
  SELECT * FROM unnest($1::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[])
    AS f (name, rows, bytes, index_bytes, inserted, deleted, reset))
INSERT INTO cleanupd.table_sample (table_id, time, rows, bytes, index_bytes, inserted, deleted, reset)
  SELECT t.id, $2, f.rows, f.bytes, f.index_bytes, f.inserted, f.deleted, f.reset
  FROM found f JOIN cleanupd.sampled_table t USING (name)
    LEFT JOIN LATERAL (SELECT rows, bytes, index_bytes FROM cleanupd.table_sample
      WHERE table_id = t.id ORDER BY time DESC LIMIT 1) AS last ON true
  WHERE f.inserted > 0 OR f.deleted > 0 OR f.reset
    OR (f.rows, f.bytes, f.index_bytes) IS DISTINCT FROM (last.rows, last.bytes, last.index_bytes)`

// store returns in changed how many tables have changed.
func (b *batch) store(ctx context.Context, tx pgx.Tx, now time.Time) (changed int64, err error) {
	if _, err := tx.Exec(ctx, registerTables, b.names, now); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, insertSamples, b.names, now, b.rows, b.bytes, b.indexBytes, b.inserted, b.deleted, b.reset)
	if err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO cleanupd.table_sampling (time) VALUES ($1)", now); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, "UPDATE cleanupd.table_sampler SET last_time = $1", now)
	return tag.RowsAffected(), err
}
