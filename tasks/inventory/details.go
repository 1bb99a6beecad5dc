package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Details are what a list shows of a table in addition.
type Details struct {
	// DeadBytes are those of dead rows, until VACUUM, FreeBytes those that new rows will use; nil if unknown.
	DeadBytes, FreeBytes *int64
	// Dates are its date columns in their order.
	Dates []DateColumn
	// ReferencedBy are the foreign keys that point at it.
	ReferencedBy []ForeignKey
}

// ForeignKey is a foreign key of a table.
type ForeignKey struct {
	Name string
	// Table is the table that has the key, with its schema, quoted where needed, and Columns are its stored columns.
	Table   string
	Columns []string
	// OnDelete is what a delete does: NO ACTION, RESTRICT, CASCADE, SET NULL or SET DEFAULT.
	OnDelete string
}

// Read returns the details of some tables, by their names.
func Read(ctx context.Context, pool *pgxpool.Pool, tables []*Table) (map[string]Details, error) {
	r := reader{pool: pool, details: map[string]Details{}, names: map[uint32]string{}}
	for _, t := range tables {
		r.names[t.OID] = t.Name
		for _, leaf := range t.Relations {
			r.roots, r.leaves = append(r.roots, t.OID), append(r.leaves, leaf.OID)
		}
		if t.OID != 0 {
			r.oids = append(r.oids, t.OID)
		}
	}
	for _, read := range []func(context.Context) error{r.readSpace, r.readForeignKeys, r.readDates} {
		if err := read(ctx); err != nil {
			return nil, fmt.Errorf("read the details of tables: %w", err)
		}
	}
	return r.details, nil
}

// reader reads the details of tables.
type reader struct {
	pool *pgxpool.Pool
	oids []uint32
	// roots and leaves are the relations with rows, and the tables that they belong to; 0 for work tables.
	roots, leaves []uint32
	names         map[uint32]string
	details       map[string]Details
}

// change changes the details of a table.
func (r *reader) change(oid uint32, change func(*Details)) {
	d := r.details[r.names[oid]]
	change(&d)
	r.details[r.names[oid]] = d
}

// Settings of transactions that read details: a list neither waits for a lock nor makes others wait.
const settings = "SET LOCAL lock_timeout = '50ms'; SET LOCAL statement_timeout = '%dms'"

// within reads something in a transaction that has so many milliseconds for each statement. It leaves it out if the
// server refuses that or it takes longer.
func (r *reader) within(ctx context.Context, milliseconds int, read func(tx pgx.Tx) error) (done bool, err error) {
	err = pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(settings, milliseconds)); err != nil {
			return err
		}
		return read(tx)
	})
	if sqlstate.Of(err) != "" && !sqlstate.Lost(err) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// selectSpace selects the dead and the free bytes of tables ($1) by the relations with their rows ($2). The width of a
// row comes from the statistics of its columns.
const selectSpace = `
SELECT root, sum(least(dead * width, heap))::bigint, sum(greatest(heap - (least(dead * width, heap) + live * width), 0))::bigint
FROM (SELECT u.root, c.relpages * (current_setting('block_size')::numeric - 24) AS heap,
    pg_stat_get_dead_tuples(c.oid) AS dead,
    COALESCE(NULLIF(pg_stat_get_live_tuples(c.oid), 0), greatest(c.reltuples, 0)::bigint) AS live, w.width
  FROM unnest($1::oid[], $2::oid[]) AS u (root, leaf) JOIN pg_class c ON c.oid = u.leaf
    JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (SELECT 4 + ceil((24 + sum(s.avg_width * (1 - s.null_frac))) / 8) * 8 AS width FROM pg_stats s
      WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND NOT s.inherited) AS w
  WHERE c.relkind IN ('r', 'm') AND w.width IS NOT NULL) AS m
GROUP BY root`

func (r *reader) readSpace(ctx context.Context) error {
	_, err := r.within(ctx, 2000, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, selectSpace, r.roots, r.leaves)
		var (
			oid        uint32
			dead, free int64
		)
		_, err := pgx.ForEachRow(rows, []any{&oid, &dead, &free}, func() error {
			dead, free := dead, free
			r.change(oid, func(d *Details) { d.DeadBytes, d.FreeBytes = &dead, &free })
			return nil
		})
		return err
	})
	return err
}

// selectForeignKeys selects the foreign keys that point at tables ($1), without those of partitions.
const selectForeignKeys = `
SELECT k.confrelid, k.conname::text, quote_ident(n.nspname) || '.' || quote_ident(c.relname),
  ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (n, i)
    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.i),
  CASE k.confdeltype WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL'
    WHEN 'd' THEN 'SET DEFAULT' ELSE 'NO ACTION' END
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conparentid = 0 AND k.confrelid = ANY ($1::oid[])
ORDER BY 3, 2`

func (r *reader) readForeignKeys(ctx context.Context) error {
	rows, _ := r.pool.Query(ctx, selectForeignKeys, r.oids)
	var oid uint32
	var key ForeignKey
	_, err := pgx.ForEachRow(rows, []any{&oid, &key.Name, &key.Table, &key.Columns, &key.OnDelete}, func() error {
		found := key
		key.Columns = nil
		r.change(oid, func(d *Details) { d.ReferencedBy = append(d.ReferencedBy, found) })
		return nil
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}
