package purge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// dated asks whether a table is empty, and whether an index begins with its date.
const dated = `
SELECT pg_relation_size(c.oid) = 0 OR c.reltuples = 0,
  EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
    WHERE i.indrelid = c.oid AND i.indkey[0] = a.attnum AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.oid = $1::text::regclass AND a.attname = $2`

// sampled is the oldest date in the planner's statistics, as of the last ANALYZE, except for that of the zero record;
// $3, up to which rows are gone since, if that is later. There is no row without statistics.
const sampled = `
SELECT (SELECT CASE WHEN min(v) < $3::timestamptz THEN $3 ELSE min(v) END
  FROM (SELECT unnest(s.most_common_vals::text::timestamptz[]) UNION ALL
  SELECT unnest(s.histogram_bounds::text::timestamptz[])) AS known (v)
  WHERE isfinite(v) AND v IS DISTINCT FROM %[1]s)
FROM pg_stats s JOIN pg_class c ON c.relname = s.tablename
  AND c.relnamespace = to_regnamespace(quote_ident(s.schemaname))
WHERE c.oid = $1::text::regclass AND s.attname = $2 AND NOT s.inherited`

// ErrNotKnown says that a question cannot be answered without reading a whole table.
var ErrNotKnown = errors.New("neither an index nor the planner's statistics tell")

// Oldest is the oldest date of a table's rows, except for the zero record, found without reading the table: at the
// beginning of an index, or else in the planner's statistics as of the last ANALYZE, which may still have rows from
// before gone. It is nil if there is none, and fails with ErrNotKnown without an index and statistics.
func (o *Older) Oldest(ctx context.Context, tx pgx.Tx, relation string, gone time.Time) (oldest *time.Time, err error) {
	var empty, indexed bool
	if err := tx.QueryRow(ctx, dated, relation, o.Column).Scan(&empty, &indexed); err != nil || empty {
		return nil, err
	}
	column, notZero, zero := pgx.Identifier{o.Column}.Sanitize(), "true", "NULL"
	if o.Key != "" {
		key := pgx.Identifier{o.Key}.Sanitize()
		notZero = "r." + key + " IS DISTINCT FROM 0"
		zero = fmt.Sprintf("(SELECT r.%s::timestamptz FROM ONLY %s AS r WHERE r.%s = 0)", column, relation, key)
	}
	if indexed {
		err := tx.QueryRow(ctx, fmt.Sprintf("SELECT min(r.%[1]s)::timestamptz FROM ONLY %[2]s AS r WHERE %[3]s AND "+
			"isfinite(r.%[1]s)", column, relation, notZero)).
			Scan(&oldest)
		return oldest, err
	}
	err = tx.QueryRow(ctx, fmt.Sprintf(sampled, zero), relation, o.Column, gone).Scan(&oldest)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotKnown
	}
	return oldest, err
}
