package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Source is where the oldest and the newest value of a column come from.
type Source string

const (
	// A value FromIndex is exact. A value FromStatistics is a bound that the last ANALYZE saw.
	FromIndex      Source = "INDEX"
	FromStatistics Source = "STATISTICS"
)

// DateColumn is a column of type date, timestamp or timestamptz, or of a domain over one.
type DateColumn struct {
	Column string // the stored name
	IsDay  bool   // whether it is a date without a time
	// Indexed is true if an index begins with it.
	Indexed bool
	// Oldest and Newest are nil if neither an index nor the statistics have them.
	Oldest, Newest *time.Time
	Source         Source

	quoted   string
	readable bool // whether an index on the column may be read
}

// dateTypes is a subquery for the types of dates, the domains over them at any depth, and the types below these.
const dateTypes = `(WITH RECURSIVE dates (oid, base) AS (
    SELECT oid, oid FROM unnest('{date,timestamp,timestamptz}'::regtype[]::oid[]) AS oid
    UNION ALL SELECT d.oid, dates.base FROM pg_type d JOIN dates ON d.typtype = 'd' AND d.typbasetype = dates.oid)
  SELECT oid, base FROM dates)`

// finite is true if a timestamp can have the date v, in any time zone.
const finite = "v BETWEEN date '4713-01-01 BC' AND date '294276-01-01'"

// selectDates returns the columns with dates of the tables $1. An index is read only if the owner of the table is
// trusted, since an owner can run code with the rights of a role that plans a query on the table. Trusted are
// superusers, the owners of the database and of NmsDelivery, and the roles that this role may act as.
const selectDates = `
SELECT t.position - 1, a.attname::text, d.base = 'date'::regtype, quote_ident(a.attname), i.indexed,
  i.indexed AND c.relkind <> 'f' AND NOT row_security_active(c.oid) AND has_schema_privilege(c.relnamespace, 'USAGE')
    AND has_column_privilege(c.oid, a.attnum, 'SELECT')
    AND (pg_has_role(c.relowner, 'USAGE') OR (SELECT rolsuper FROM pg_roles r WHERE r.oid = c.relowner)
      OR c.relowner IN (SELECT datdba FROM pg_database WHERE datname = current_database()
        UNION ALL SELECT d.relowner FROM pg_class d WHERE d.relname = '` + ofApplication + `'
          AND d.relkind IN ('r', 'p')))
FROM unnest($1::oid[]) WITH ORDINALITY AS t (oid, position) JOIN pg_class c ON c.oid = t.oid
  JOIN pg_attribute a ON a.attrelid = c.oid JOIN ` + dateTypes + ` AS d ON d.oid = a.atttypid
  CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pg_index x JOIN pg_class ic ON ic.oid = x.indexrelid
    JOIN pg_am m ON m.oid = ic.relam AND m.amname = 'btree'
    WHERE x.indrelid = a.attrelid AND x.indkey[0] = a.attnum AND x.indisvalid AND x.indpred IS NULL) AS indexed) AS i
WHERE a.attnum > 0 AND NOT a.attisdropped
ORDER BY 1, a.attnum`

// selectBounds returns the bounds of dates, by the positions of tables ($1) and the relations with their rows ($2).
// The CASE repeats the conditions of the join, because the planner may read the bounds of columns of other types
// before it joins.
var selectBounds = `
SELECT u.position, a.attname::text, min(b.oldest), max(b.newest)
FROM unnest($1::int[], $2::oid[]) AS u (position, leaf) JOIN pg_class c ON c.oid = u.leaf
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN ` + dateTypes + ` AS d ON d.oid = a.atttypid
  JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname AND NOT s.inherited
  CROSS JOIN LATERAL (SELECT min(v) AS oldest, max(v) AS newest FROM (
    ` + boundsOf("date") + ` UNION ALL ` + boundsOf("timestamp") + ` UNION ALL ` + boundsOf("timestamptz") + `
  ) AS v (v)) AS b
WHERE b.oldest IS NOT NULL
GROUP BY u.position, a.attname`

// boundsOf returns the SELECT for dates of one type. s are the statistics of column a.
func boundsOf(dateType string) string {
	return fmt.Sprintf(
		`SELECT %[3]s FROM unnest(CASE WHEN d.base = '%[1]s'::regtype AND d.oid = a.atttypid AND a.attname =
			s.attname
      THEN COALESCE(s.histogram_bounds::text::%[1]s[], '{}') || COALESCE(s.most_common_vals::text::%[1]s[], '{}')
      END) AS v WHERE %[2]s`,
		dateType,
		finite,
		campaign.Shown("v"),
	)
}

// indexTimeout limits reading the indexes of one table, in milliseconds, and indexesTimeout those of all tables of
// a page. Indexes of tables with more than maxPartitions partitions are not read.
const (
	indexTimeout   = 200
	indexesTimeout = 2 * time.Second
	maxPartitions  = 100
)

func (r *reader) readDates(ctx context.Context) error {
	rows, _ := r.pool.Query(ctx, selectDates, r.oids)
	var (
		position int
		c        DateColumn
	)
	columns := []any{&position, &c.Column, &c.IsDay, &c.quoted, &c.Indexed, &c.readable}
	if _, err := pgx.ForEachRow(rows, columns, func() error {
		d := &r.details[position]
		d.Dates = append(d.Dates, c)
		return nil
	}); err != nil {
		return err
	}
	if err := r.readBounds(ctx); err != nil {
		return err
	}
	deadline := time.Now().Add(indexesTimeout)
	for i, t := range r.tables {
		if len(t.Relations) > maxPartitions || time.Now().After(deadline) {
			continue
		}
		if err := r.readIndexes(ctx, t.Name, &r.details[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) readBounds(ctx context.Context) error {
	_, err := r.within(ctx, 2000, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, selectBounds, r.positions, r.leaves)
		var (
			position       int
			column         string
			oldest, newest time.Time
		)
		_, err := pgx.ForEachRow(rows, []any{&position, &column, &oldest, &newest}, func() error {
			oldest, newest := oldest, newest
			r.details[position].setDates(column, &oldest, &newest, FromStatistics)
			return nil
		})
		return err
	})
	return err
}

func (d *Details) setDates(column string, oldest, newest *time.Time, from Source) {
	i := slices.IndexFunc(d.Dates, func(c DateColumn) bool { return c.Column == column })
	if i >= 0 {
		d.Dates[i].Oldest, d.Dates[i].Newest, d.Dates[i].Source = oldest, newest, from
	}
}

// readIndexes reads the oldest and newest values of dates, which are at the ends of an index.
func (r *reader) readIndexes(ctx context.Context, table string, d *Details) error {
	var selected, names []string
	for _, c := range d.Dates {
		if !c.readable {
			continue
		}
		names = append(names, c.Column)
		for _, end := range []string{"min", "max"} {
			selected = append(selected,
				fmt.Sprintf("(SELECT CASE WHEN %s THEN %s END FROM (SELECT %s(%s) FROM %s) AS e (v))",
					finite, campaign.Shown("v"), end, c.quoted, table))
		}
	}
	if names == nil {
		return nil
	}
	ends, scanned := make([]*time.Time, len(selected)), make([]any, len(selected))
	for i := range ends {
		scanned[i] = &ends[i]
	}
	done, err := r.within(ctx, indexTimeout, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT "+strings.Join(selected, ", ")).Scan(scanned...)
	})
	if err != nil || !done {
		return err
	}
	for i, name := range names {
		if oldest, newest := ends[2*i], ends[2*i+1]; oldest != nil && newest != nil {
			d.setDates(name, oldest, newest, FromIndex)
		}
	}
	return nil
}
