package capacity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

const day = 24 * time.Hour

// growth has the samples of the tables, by name.
type growth struct {
	// LastTime is when the tables were last sampled; nil if never.
	Now      time.Time
	LastTime *time.Time
	tables   map[string]past
	// week and month are the samplings with which the sizes are compared for 7 and 30 days; nil if none is old enough.
	week, month *time.Time
}

type past struct {
	firstTime         time.Time
	week, month       *int64 // bytes with indexes at these samplings; nil if the table has no sample that is old enough
	inserted, deleted int64  // rows since week
	reset             bool
}

// selectSamplings finds the last sampling that is at least 7 or 30 days old. If there is none, it takes the first
// one that is at least a day or 7 days old.
const selectSamplings = `
SELECT $1::timestamptz, (SELECT max(time) FROM cleanupd.table_sampling),
  COALESCE((SELECT max(time) FROM cleanupd.table_sampling WHERE time <= $1 - interval '7 days'),
    (SELECT min(time) FROM cleanupd.table_sampling WHERE time <= $1 - interval '1 day')),
  COALESCE((SELECT max(time) FROM cleanupd.table_sampling WHERE time <= $1 - interval '30 days'),
    (SELECT min(time) FROM cleanupd.table_sampling WHERE time <= $1 - interval '7 days'))`

// selectPast reads the sizes at two samplings, $1 and $2, and the rows inserted and deleted since $1.
const selectPast = `
SELECT t.name, t.first_time, week.bytes, month.bytes, COALESCE(since.inserted, 0), COALESCE(since.deleted, 0),
  COALESCE(since.reset, false)
FROM cleanupd.sampled_table t
  LEFT JOIN LATERAL (SELECT bytes + index_bytes AS bytes FROM cleanupd.table_sample
    WHERE table_id = t.id AND time <= $1 ORDER BY time DESC LIMIT 1) AS week ON true
  LEFT JOIN LATERAL (SELECT bytes + index_bytes AS bytes FROM cleanupd.table_sample
    WHERE table_id = t.id AND time <= $2 ORDER BY time DESC LIMIT 1) AS month ON true
  LEFT JOIN LATERAL (SELECT sum(inserted)::bigint AS inserted, sum(deleted)::bigint AS deleted, bool_or(reset) AS reset
    FROM cleanupd.table_sample WHERE table_id = t.id AND time > $1) AS since ON true
WHERE t.drop_time IS NULL`

// readGrowth reads the growth; now is when the tables are measured.
func readGrowth(ctx context.Context, db campaign.Querier, now time.Time) (*growth, error) {
	g := &growth{tables: map[string]past{}}
	if err := db.QueryRow(ctx, selectSamplings, now).Scan(&g.Now, &g.LastTime, &g.week, &g.month); err != nil {
		return nil, err
	}
	if g.week == nil {
		return g, nil
	}
	rows, _ := db.Query(ctx, selectPast, g.week, g.month)
	var (
		name string
		p    past
	)
	values := []any{&name, &p.firstTime, &p.week, &p.month, &p.inserted, &p.deleted, &p.reset}
	_, err := pgx.ForEachRow(rows, values, func() error { g.tables[name] = p; return nil })
	return g, err
}

// Rates are per day; nil where unknown.
type Rates struct {
	// Week and Month are bytes with indexes, averaged over 7 and 30 days.
	Week, Month *int64
	// Inserted and Deleted are rows, averaged over 7 days. They may be too low if statistics were reset.
	Inserted, Deleted *int64
}

// Rates treats a table that an early sampling did not find as empty at that time.
func (g *growth) Rates(t *insight.Table) (r Rates) {
	p, known := g.tables[t.Name]
	if g.week == nil || !known {
		return r
	}
	bytes := t.Bytes + t.IndexBytes
	r.Week = g.perDay(bytes, p.week, p.firstTime, *g.week)
	if g.month != nil {
		r.Month = g.perDay(bytes, p.month, p.firstTime, *g.month)
	}
	days := g.days(*g.week)
	inserted, deleted := int64(float64(p.inserted)/days), int64(float64(p.deleted)/days)
	r.Inserted, r.Deleted = &inserted, &deleted
	return r
}

func (g *growth) days(since time.Time) float64 { return float64(g.Now.Sub(since)) / float64(day) }

func (g *growth) perDay(now int64, then *int64, firstTime, since time.Time) *int64 {
	var before int64
	switch {
	case then != nil:
		before = *then
	case !firstTime.After(since): // the size of the table at that time is unknown
		return nil
	}
	grown := int64(float64(now-before) / g.days(since))
	return &grown
}

type Point struct {
	Time  time.Time
	Rows  int64
	Bytes int64 // with indexes
}

// historyDays is how many days the history of a table covers.
const historyDays = 30

// selectHistory finds the last sample of each day since $2 of the tables $1, and the last sample before $2.
const selectHistory = `
SELECT t.name, s.time, s.rows, s.bytes + s.index_bytes
FROM cleanupd.sampled_table t CROSS JOIN LATERAL (
  (SELECT DISTINCT ON (date_trunc('day', time AT TIME ZONE 'UTC')) time, rows, bytes, index_bytes
    FROM cleanupd.table_sample WHERE table_id = t.id AND time > $2
    ORDER BY date_trunc('day', time AT TIME ZONE 'UTC'), time DESC)
  UNION ALL
  (SELECT $2, rows, bytes, index_bytes FROM cleanupd.table_sample WHERE table_id = t.id AND time <= $2
    ORDER BY time DESC LIMIT 1)) AS s
WHERE t.name = ANY ($1::text[])
ORDER BY t.name, s.time`

// readHistory returns the last 30 days, by name of the table. Days without a change have no point.
func readHistory(ctx context.Context, db campaign.Querier, names []string, now time.Time) (map[string][]Point, error) {
	rows, _ := db.Query(ctx, selectHistory, names, now.Add(-historyDays*day))
	history := map[string][]Point{}
	var (
		name string
		p    Point
	)
	_, err := pgx.ForEachRow(rows, []any{&name, &p.Time, &p.Rows, &p.Bytes}, func() error {
		history[name] = append(history[name], p)
		return nil
	})
	return history, err
}

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

func readSize(ctx context.Context, db campaign.Querier) (s Size, err error) {
	err = db.QueryRow(ctx, selectSize).Scan(&s.Bytes, &s.PerDay, &s.WithoutPerDay)
	if errors.Is(err, pgx.ErrNoRows) {
		err = db.QueryRow(ctx, "SELECT pg_database_size(current_database())").Scan(&s.Bytes)
	}
	if err != nil {
		return s, fmt.Errorf("read the size of the database: %w", err)
	}
	return s, nil
}
