package capacity

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Sequence is a sequence, with its limit and how fast it approaches it.
type Sequence struct {
	// Name is quoted, with the schema.
	Name string
	// Columns are the columns that get their ids from it, as SCHEMA.TABLE.COLUMN.
	Columns []string
	Last    int64
	// Limit is the greatest value that both the sequence and the types of its columns allow.
	Limit int64
	// PerDay is the number of values a day; negative if unknown.
	PerDay float64
}

// maxYears limits the forecast: later ends are not reported.
const maxYears = 100

// End returns when the sequence reaches its limit, or nil if that is unknown or far away.
func (s Sequence) End(now time.Time) *time.Time {
	days := (float64(s.Limit) - float64(s.Last)) / s.PerDay
	if s.PerDay <= 0 || days > maxYears*365 {
		return nil
	}
	at := now.Add(time.Duration(math.Max(days, 0) * 24 * float64(time.Hour)))
	return &at
}

// allSequences is a WITH clause. It selects the ascending sequences outside the system's schemas that do not cycle.
// last_value is NULL if a sequence has not been used, or if the role cannot read it. A column of a domain has the type
// on which the domain is based. The application takes all its ids, which have 32 bits, from XtkNewId, to which no
// column refers.
const allSequences = `
WITH RECURSIVE based (oid, base) AS (
  SELECT oid, oid FROM pg_type WHERE typtype <> 'd'
  UNION ALL
  SELECT d.oid, based.base FROM pg_type d JOIN based ON d.typtype = 'd' AND d.typbasetype = based.oid),
given AS (
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
    min(CASE b.base WHEN 'int2'::regtype THEN 32767 WHEN 'int4'::regtype THEN 2147483647
      ELSE 9223372036854775807 END) AS limit
  FROM given g JOIN based b ON b.oid = g.atttypid LEFT JOIN pg_attrdef f ON f.oid = g.relation
  JOIN pg_class c ON c.oid = COALESCE(f.adrelid, g.relation) JOIN pg_namespace n ON n.oid = c.relnamespace
  GROUP BY g.sequence),
sequences AS (
  SELECT format('%I.%I', n.nspname, c.relname) AS name, COALESCE(k.names, '{}') AS columns,
    r.readable, CASE WHEN r.readable THEN pg_sequence_last_value(c.oid) END AS last_value, q.seqmin AS first_value,
    least(q.seqmax, k.limit, CASE WHEN c.relname = 'xtknewid' THEN 2147483647 END) AS limit
  FROM pg_sequence q JOIN pg_class c ON c.oid = q.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace
  CROSS JOIN LATERAL (SELECT has_sequence_privilege(c.oid, 'SELECT, USAGE') AS readable) AS r
  LEFT JOIN columns k ON k.sequence = c.oid
  WHERE q.seqincrement > 0 AND NOT q.seqcycle
    AND n.nspname NOT IN ('cleanupd', 'cleanupd_trash') AND n.nspname NOT LIKE 'pg\_%'
    AND c.relpersistence <> 't')
`

// Sequences returns the sequences that the role can read and that have been used. The first ones are those that will
// reach their limits first. Values per day are computed from the oldest sample that is between one and 30 days old.
func Sequences(ctx context.Context, db campaign.Querier) ([]Sequence, error) {
	rows, _ := db.Query(
		ctx,
		allSequences+`SELECT s.name, s.columns, s.last_value, s.limit,
			COALESCE((s.last_value::float8 - p.last_value) / p.days, -1)
		FROM sequences s LEFT JOIN LATERAL (SELECT last_value,
				extract(epoch FROM clock_timestamp() - sample_time)::float8 / 86400 AS days
			FROM cleanupd.sequence_sample p WHERE p.sequence = s.name AND p.last_value <= s.last_value
			AND sample_time BETWEEN clock_timestamp() - interval '30 days' AND clock_timestamp() - interval '1 day'
			ORDER BY sample_time LIMIT 1) AS p ON true
		WHERE s.last_value IS NOT NULL
		ORDER BY (s.limit::float8 - s.last_value) / NULLIF(s.last_value::float8 - p.last_value, 0) * p.days,
			(s.limit::float8 - s.last_value) / NULLIF(s.limit::float8 - s.first_value, 0), s.name`,
	)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Sequence])
	if err != nil {
		return nil, fmt.Errorf("read the sequences: %w", err)
	}
	return list, nil
}

// hiddenSequences says which sequences the role may not read, with the GRANT that helps. It returns "" if the role
// may read all of them.
func hiddenSequences(ctx context.Context, db campaign.Querier) (string, error) {
	var (
		role  string
		names []string
	)
	const hidden = "SELECT quote_ident(current_user), ARRAY(SELECT name FROM sequences WHERE NOT readable ORDER BY name)"
	if err := db.QueryRow(ctx, allSequences+hidden).Scan(&role, &names); err != nil || len(names) == 0 {
		return "", err
	}
	return fmt.Sprintf("sequences that the role cannot read are not shown (%d): GRANT SELECT ON SEQUENCE %s TO %s",
		len(names), strings.Join(names, ", "), role), nil
}

// sampleSequences does nothing if a sample was stored less than 20 hours ago. It also deletes old samples.
func sampleSequences(ctx context.Context, tx pgx.Tx) error {
	const forget = "DELETE FROM cleanupd.sequence_sample WHERE sample_time < clock_timestamp() - interval '400 days'"
	if _, err := tx.Exec(ctx, forget); err != nil {
		return err
	}
	_, err := tx.Exec(
		ctx,
		allSequences+`INSERT INTO cleanupd.sequence_sample (sequence, sample_time, last_value)
		SELECT s.name, clock_timestamp(), s.last_value FROM sequences s
		WHERE s.last_value IS NOT NULL AND NOT EXISTS (SELECT FROM cleanupd.sequence_sample p WHERE p.sequence = s.name
			AND p.sample_time > clock_timestamp() - interval '20 hours')
		ON CONFLICT DO NOTHING`,
	)
	return err
}
