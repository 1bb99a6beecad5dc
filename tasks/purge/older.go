package purge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Older is a condition on a date alone. It allows dropping a partition whose rows are all older, and finding the
// oldest date without reading the table.
type Older struct {
	Column string
	Than   time.Time
	// Key is the column that is 0 in the zero record, which is retained; it may be empty.
	Key string
}

// dateIndexSQL returns whether a table is empty, and whether an index begins with its date.
const dateIndexSQL = `
SELECT pg_relation_size(c.oid) = 0 OR c.reltuples = 0,
  EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
    WHERE i.indrelid = c.oid AND i.indkey[0] = a.attnum AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.oid = $1::text::regclass AND a.attname = $2`

// statsSQL returns the oldest date in the planner's statistics, which are as of the last ANALYZE, without the date of
// the zero record. If rows up to a later time ($3) were deleted since, it returns that time. Without statistics it
// returns no row.
const statsSQL = `
SELECT (SELECT CASE WHEN min(v) < $3::timestamptz THEN $3 ELSE min(v) END
  FROM (SELECT unnest(s.most_common_vals::text::timestamptz[]) UNION ALL
  SELECT unnest(s.histogram_bounds::text::timestamptz[])) AS known (v)
  WHERE isfinite(v) AND v IS DISTINCT FROM %[1]s)
FROM pg_stats s JOIN pg_class c ON c.relname = s.tablename
  AND c.relnamespace = to_regnamespace(quote_ident(s.schemaname))
WHERE c.oid = $1::text::regclass AND s.attname = $2 AND NOT s.inherited`

// ErrNotKnown means that the oldest date cannot be found without reading the whole table.
var ErrNotKnown = errors.New("neither an index nor the planner's statistics have the oldest date")

// Oldest returns the oldest date without reading the whole table, and without the zero record. The date comes from an
// index or, if there is none, from the planner's statistics as of the last ANALYZE. These may still include rows older
// than until, which were deleted since. Oldest returns nil if there are no dates, and ErrNotKnown if there is neither
// an index nor statistics.
func (o *Older) Oldest(
	ctx context.Context, tx pgx.Tx, relation string, until time.Time,
) (oldest *time.Time, err error) {
	var empty, indexed bool
	if err := tx.QueryRow(ctx, dateIndexSQL, relation, o.Column).Scan(&empty, &indexed); err != nil || empty {
		return nil, err
	}
	column, notZero, zero := pgx.Identifier{o.Column}.Sanitize(), "true", "NULL"
	if o.Key != "" {
		key := pgx.Identifier{o.Key}.Sanitize()
		notZero = "r." + key + " IS DISTINCT FROM 0"
		zero = fmt.Sprintf("(SELECT r.%s::timestamptz FROM ONLY %s AS r WHERE r.%s = 0)", column, relation, key)
	}
	if indexed {
		sql := fmt.Sprintf("SELECT min(r.%[1]s)::timestamptz FROM ONLY %[2]s AS r WHERE %[3]s AND isfinite(r.%[1]s)",
			column, relation, notZero)
		err := tx.QueryRow(ctx, sql).Scan(&oldest)
		return oldest, err
	}
	err = tx.QueryRow(ctx, fmt.Sprintf(statsSQL, zero), relation, o.Column, until).Scan(&oldest)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotKnown
	}
	return oldest, err
}
