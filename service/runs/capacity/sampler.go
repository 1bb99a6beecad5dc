package capacity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

type Sampler struct {
	Pool  *pgxpool.Pool
	Owner *store.Owner
	Log   *slog.Logger
}

const (
	sampleTimeout = time.Minute
	// sampleEvery is how often tables are sampled while no run ends.
	sampleEvery      = "interval '24 hours'"
	statementTimeout = "SET LOCAL statement_timeout = '30s'"
)

// isSamplingDue is the SQL condition that the tables have to be sampled, which happens daily and after each run that
// deletes. It is also true if the last sampling is in the future, because the clock was set back.
const isSamplingDue = `(last_time IS NULL
	OR last_time NOT BETWEEN clock_timestamp() - ` + sampleEvery + ` AND clock_timestamp()
	OR EXISTS (SELECT FROM cleanupd.run WHERE NOT dry_run AND end_time > last_time))`

// Tick samples the tables if that is due. If several replicas call it at the same time, only one of them samples.
func (s *Sampler) Tick(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	if owns, err := s.Owner.Owns(ctx, s.Pool); err != nil || !owns {
		return err
	}
	var due bool
	err := s.Pool.QueryRow(ctx, "SELECT "+isSamplingDue+" FROM cleanupd.table_sampler").Scan(&due)
	if err != nil || !due {
		return err
	}
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statementTimeout); err != nil {
			return err
		}
		last, locked, err := lock(ctx, tx)
		if err != nil || !locked {
			return err
		}
		start := time.Now()
		n, err := s.sample(ctx, tx, last)
		if err != nil {
			return err
		}
		s.Log.Info("sampled the tables", "changed", n, "duration", time.Since(start))
		return nil
	})
}

// lock locks the sampler. locked means that a sampling is due and no other replica is making it. last is nil if there
// was no sampling before.
func lock(ctx context.Context, tx pgx.Tx) (last *time.Time, locked bool, err error) {
	err = tx.QueryRow(ctx, "SELECT last_time FROM cleanupd.table_sampler WHERE "+isSamplingDue+" FOR UPDATE SKIP LOCKED").
		Scan(&last)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return last, err == nil, err
}

// sample samples the tables; last is when that was done before, or nil if never.
func (s *Sampler) sample(ctx context.Context, tx pgx.Tx, last *time.Time) (changed int64, err error) {
	now, err := store.Now(ctx, tx)
	if err != nil {
		return 0, err
	}
	found, err := insight.Measure(ctx, tx, masks)
	if err != nil {
		return 0, err
	}
	counters, err := readCounters(ctx, tx, last)
	if err != nil {
		return 0, fmt.Errorf("read the counters of rows: %w", err)
	}
	b := newBatch(found)
	b.count(found, counters)
	if changed, err = b.store(ctx, tx, now); err != nil {
		return 0, fmt.Errorf("store the samples: %w", err)
	}
	if err := counters.store(ctx, tx); err != nil {
		return 0, fmt.Errorf("store the counters of rows: %w", err)
	}
	if err := prune(ctx, tx, now); err != nil {
		return 0, fmt.Errorf("prune the samples: %w", err)
	}
	return changed, nil
}

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

// counters has the server's counts of rows at the last sampling, by relation.
type counters struct {
	stored map[uint32]counter
	// first means that there was no sampling before, so that earlier counts cannot be assigned to a time.
	first bool
	// reset means that all statistics were reset since the last sampling.
	reset bool
	// changed has the counters that have to be stored.
	changed []counter
	seen    map[uint32]bool
}

// counter has the rows that were inserted and deleted since the statistics of the relation were reset.
type counter struct {
	Relation          uint32
	Inserted, Deleted int64
}

// readCounters reads the stored counters. last is the time of the last sampling, or nil if there was none.
func readCounters(ctx context.Context, tx pgx.Tx, last *time.Time) (*counters, error) {
	c := &counters{stored: map[uint32]counter{}, seen: map[uint32]bool{}, first: last == nil}
	if err := tx.QueryRow(
		ctx,
		`SELECT COALESCE(pg_stat_get_db_stat_reset_time(oid) > $1, false) FROM pg_database
			WHERE datname = current_database()`,
		last,
	).Scan(&c.reset); err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, "SELECT relation, inserted, deleted FROM cleanupd.table_counter")
	var one counter
	_, err := pgx.ForEachRow(rows, []any{&one.Relation, &one.Inserted, &one.Deleted}, func() error {
		c.stored[one.Relation] = one
		return nil
	})
	return c, err
}

// since returns how many rows were inserted and deleted since the last sampling. reset means that the numbers may
// be too low, because the statistics of the relation were reset in between.
func (c *counters) since(r insight.Relation) (inserted, deleted int64, reset bool) {
	before, known := c.stored[r.OID]
	c.seen[r.OID] = true
	now := counter{r.OID, r.Inserted, r.Deleted}
	if !known || before != now {
		c.changed = append(c.changed, now)
	}
	switch {
	case c.first:
		return 0, 0, false
	case !known: // the relation was created since the last sampling
		return now.Inserted, now.Deleted, false
	case c.reset, now.Inserted < before.Inserted, now.Deleted < before.Deleted:
		return now.Inserted, now.Deleted, true
	}
	return now.Inserted - before.Inserted, now.Deleted - before.Deleted, false
}

// store also deletes the counters of relations that were dropped.
func (c *counters) store(ctx context.Context, tx pgx.Tx) error {
	var (
		relations, gone   []uint32
		inserted, deleted []int64
	)
	for _, one := range c.changed {
		relations = append(relations, one.Relation)
		inserted, deleted = append(inserted, one.Inserted), append(deleted, one.Deleted)
	}
	for relation := range c.stored {
		if !c.seen[relation] {
			gone = append(gone, relation)
		}
	}
	if _, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.table_counter (relation, inserted, deleted)
			SELECT * FROM unnest($1::oid[], $2::bigint[], $3::bigint[])
		ON CONFLICT (relation) DO UPDATE SET inserted = excluded.inserted, deleted = excluded.deleted`,
		relations, inserted, deleted,
	); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM cleanupd.table_counter WHERE relation = ANY ($1::oid[])", gone)
	return err
}

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
