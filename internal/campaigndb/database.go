package campaigndb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Database is the contents of a database, in memory.
type Database struct {
	Tables []*Table
	// Zone is the time zone of dates without a zone; nil means that the columns are timestamptz.
	Zone *time.Location
}

type Table struct {
	Name    string // the name as stored
	Columns []string
	Key     string // the only integer column of its key; empty if it has none
	Rows    []Row
}

// Row has the values in the order of the table's columns: int64, float64, string, time.Time or nil.
type Row []any

// Table takes the name as Campaign writes it, and returns nil if there is no such table.
func (d *Database) Table(name string) *Table {
	i := slices.IndexFunc(d.Tables, func(t *Table) bool { return t.Name == strings.ToLower(name) })
	if i < 0 {
		return nil
	}
	return d.Tables[i]
}

// Column returns -1 if there is no such column.
func (t *Table) Column(name string) int { return slices.Index(t.Columns, strings.ToLower(name)) }

// shapes returns tables that were appended to schema.sql after NmsRemaMatchRcp behind all others, so that they do not
// change the random rows of those, whose numbers documents and tests have.
const shapes = `
SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum),
  COALESCE((SELECT k.attname::text FROM pg_index i JOIN pg_attribute k ON k.attrelid = i.indrelid
    AND k.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND i.indisunique AND i.indnatts = 1 AND k.atttypid IN (21, 23, 20) LIMIT 1), '')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' GROUP BY c.oid, c.relname
ORDER BY greatest(c.oid, to_regclass('public.nmsremamatchrcp')), 1`

func describe(ctx context.Context, conn *pgx.Conn) ([]*Table, error) {
	rows, err := conn.Query(ctx, shapes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Table, error) {
		t := &Table{}
		return t, row.Scan(&t.Name, &t.Columns, &t.Key)
	})
}

// Load inserts the rows in existing tables. Sequences continue above all ids.
func (d *Database) Load(ctx context.Context, conn *pgx.Conn) error {
	for _, t := range d.Tables {
		next := pgx.CopyFromSlice(len(t.Rows), func(i int) ([]any, error) {
			row := slices.Clone(t.Rows[i])
			for c, value := range row {
				if when, ok := value.(time.Time); ok && d.Zone != nil {
					row[c] = when.In(d.Zone)
				}
			}
			return row, nil
		})
		if _, err := conn.CopyFrom(ctx, pgx.Identifier{"public", t.Name}, t.Columns, next); err != nil {
			return fmt.Errorf("fill %s: %w", t.Name, err)
		}
	}
	_, err := conn.Exec(
		ctx,
		"SELECT setval(oid::regclass, 10000000) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND "+
			"relkind = 'S'",
	)
	return err
}
