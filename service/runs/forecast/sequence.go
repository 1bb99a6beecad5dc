package forecast

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Sequence is when a sequence reaches the limit of the ids that it gives.
type Sequence struct {
	// Name is the quoted name with the schema.
	Name string
	// Columns are the columns that it gives ids to: SCHEMA.TABLE.COLUMN.
	Columns []string
	Last    int64
	// Limit is the greatest value that the sequence, and the types of the columns, can have.
	Limit int64
	// PerDay is how many values it gives a day; negative if that is not known.
	PerDay float64
}

// maxYears is how far in the future an end is still forecast.
const maxYears = 100

// End returns when the limit is reached; nil if that is not known, or far away.
func (s Sequence) End(now time.Time) *time.Time {
	days := float64(s.Limit-s.Last) / s.PerDay
	if s.PerDay <= 0 || days > maxYears*365 {
		return nil
	}
	at := now.Add(time.Duration(math.Max(days, 0) * 24 * float64(time.Hour)))
	return &at
}

// selectSequences selects the ascending sequences outside the system's schemas that have given a value, and do not
// begin again at their end. The application takes ids of all its tables from XtkNewId, which no column names, and they
// have 32 bits. A value a day comes from the last sample of at least a day ago, and the first one of the last 30 days.
const selectSequences = `
WITH given AS (
  SELECT d.refobjid AS sequence, d.objid AS relation, a.attname, a.atttypid
  FROM pg_depend d JOIN pg_attrdef f ON f.oid = d.objid
  JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum
  WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
  UNION
  SELECT d.objid, d.refobjid, a.attname, a.atttypid
  FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
  WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')),
columns AS (
  SELECT g.sequence, array_agg(DISTINCT format('%s.%s.%s', n.nspname, c.relname, g.attname)) AS names,
    min(CASE g.atttypid WHEN 'int2'::regtype THEN 32767 WHEN 'int4'::regtype THEN 2147483647
      ELSE 9223372036854775807 END) AS limit
  FROM given g LEFT JOIN pg_attrdef f ON f.oid = g.relation
  JOIN pg_class c ON c.oid = COALESCE(f.adrelid, g.relation) JOIN pg_namespace n ON n.oid = c.relnamespace
  GROUP BY g.sequence)
SELECT format('%I.%I', s.schemaname, s.sequencename) AS name, COALESCE(k.names, '{}') AS columns, s.last_value,
  least(s.max_value, k.limit, CASE WHEN s.sequencename = 'xtknewid' THEN 2147483647 END) AS limit
FROM pg_sequences s JOIN pg_class c ON c.oid = format('%I.%I', s.schemaname, s.sequencename)::regclass
LEFT JOIN columns k ON k.sequence = c.oid
WHERE s.last_value IS NOT NULL AND s.increment_by > 0 AND NOT s.cycle AND s.schemaname <> 'cleanupd'
  AND s.schemaname NOT LIKE 'pg\_%' AND c.relpersistence <> 't'`

// Sequences returns the sequences, those that end first at first.
func Sequences(ctx context.Context, db campaign.Querier) ([]Sequence, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT s.name, s.columns, s.last_value, s.limit, COALESCE((s.last_value - p.last_value)
			/ extract(epoch FROM clock_timestamp() - p.sample_time)::float8 * 86400, -1)
		FROM (`+selectSequences+`) AS s
		LEFT JOIN LATERAL (SELECT last_value, sample_time FROM cleanupd.sequence_sample p
			WHERE p.sequence = s.name AND p.last_value <= s.last_value
			AND sample_time BETWEEN clock_timestamp() - interval '30 days' AND clock_timestamp() - interval '1 day'
			ORDER BY sample_time LIMIT 1) AS p ON true
		ORDER BY (s.limit - s.last_value) / NULLIF(greatest(s.last_value - p.last_value, 0), 0)
			* extract(epoch FROM clock_timestamp() - p.sample_time), s.last_value::float8 / s.limit DESC, s.name`,
	)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Sequence])
	if err != nil {
		return nil, fmt.Errorf("read the sequences: %w", err)
	}
	return list, nil
}

// SampleSequences stores the last values of the sequences, unless that was done today, and forgets old ones.
func SampleSequences(ctx context.Context, tx pgx.Tx) error {
	const forget = "DELETE FROM cleanupd.sequence_sample WHERE sample_time < clock_timestamp() - interval '400 days'"
	if _, err := tx.Exec(ctx, forget); err != nil {
		return err
	}
	_, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.sequence_sample (sequence, sample_time, last_value)
		SELECT s.name, clock_timestamp(), s.last_value FROM (`+selectSequences+`) AS s
		WHERE NOT EXISTS (SELECT FROM cleanupd.sequence_sample p WHERE p.sequence = s.name
			AND p.sample_time > clock_timestamp() - interval '20 hours')
		ON CONFLICT DO NOTHING`,
	)
	return err
}
