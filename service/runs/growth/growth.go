package growth

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

const day = 24 * time.Hour

// Growth has the samples of the tables, by name.
type Growth struct {
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

// selectPast reads the sizes at two samplings, $1 and $2, and the rows that were counted since $1.
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

// Read reads the growth; now is when the tables are measured.
func Read(ctx context.Context, db campaign.Querier, now time.Time) (*Growth, error) {
	g := &Growth{tables: map[string]past{}}
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
func (g *Growth) Rates(t *insight.Table) (r Rates) {
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

func (g *Growth) days(since time.Time) float64 { return float64(g.Now.Sub(since)) / float64(day) }

func (g *Growth) perDay(now int64, then *int64, firstTime, since time.Time) *int64 {
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

// History returns the last 30 days, by name of the table. It only has points at which the size had changed.
func History(ctx context.Context, db campaign.Querier, names []string, now time.Time) (map[string][]Point, error) {
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
