package inventory

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Details struct {
	// DeadBytes is the space that VACUUM would free, and FreeBytes the space for new rows; nil if unknown.
	DeadBytes, FreeBytes *int64
	Dates                []DateColumn
	ReferencedBy         []ForeignKey
}

type ForeignKey struct {
	Name string
	// Table is the table that has the key, with its schema and quoted where needed. Columns are stored names.
	Table   string
	Columns []string
	// OnDelete is NO ACTION, RESTRICT, CASCADE, SET NULL or SET DEFAULT, or NOT ENFORCED if the key does nothing.
	OnDelete string
}

func Read(ctx context.Context, pool *pgxpool.Pool, tables []*Table) ([]Details, error) {
	r := reader{pool: pool, tables: tables, details: make([]Details, len(tables))}
	for i, t := range tables {
		for _, leaf := range t.Relations {
			r.positions, r.leaves = append(r.positions, int32(i)), append(r.leaves, leaf.OID)
		}
		r.oids = append(r.oids, t.OID)
	}
	for _, read := range []func(context.Context) error{r.readSpace, r.readForeignKeys, r.readDates} {
		if err := read(ctx); err != nil {
			return nil, fmt.Errorf("read the details of tables: %w", err)
		}
	}
	return r.details, nil
}

type reader struct {
	pool    *pgxpool.Pool
	tables  []*Table
	details []Details
	// oids are the object ids of the tables; 0 for work tables.
	oids []uint32
	// leaves are the relations that store rows. positions are the indexes of their tables in tables.
	positions []int32
	leaves    []uint32
}

// settings keep a list of tables from waiting for a lock and from making others wait.
const settings = "SET LOCAL lock_timeout = '50ms'; SET LOCAL statement_timeout = '%dms'"

// within runs statements in a transaction, each limited to some milliseconds. done is false if the server refuses
// one or it takes longer.
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

// selectSpace returns the dead and the free space, by the positions of tables ($1) and the relations with their
// rows ($2). The width of a row comes from the statistics of its columns.
const selectSpace = `
SELECT position, sum(least(dead * width, heap))::bigint,
  sum(greatest(heap - (least(dead * width, heap) + live * width), 0))::bigint
FROM (SELECT u.position, c.relpages * (current_setting('block_size')::numeric - 24) AS heap,
    pg_stat_get_dead_tuples(c.oid) AS dead,
    COALESCE(NULLIF(pg_stat_get_live_tuples(c.oid), 0), greatest(c.reltuples, 0)::bigint) AS live, w.width
  FROM unnest($1::int[], $2::oid[]) AS u (position, leaf) JOIN pg_class c ON c.oid = u.leaf
    JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (SELECT 4 + ceil((24 + sum(s.avg_width * (1 - s.null_frac))) / 8) * 8 AS width FROM pg_stats s
      WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND NOT s.inherited) AS w
  WHERE c.relkind IN ('r', 'm') AND w.width IS NOT NULL) AS m
GROUP BY position`

func (r *reader) readSpace(ctx context.Context) error {
	_, err := r.within(ctx, 2000, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, selectSpace, r.positions, r.leaves)
		var (
			position   int
			dead, free int64
		)
		_, err := pgx.ForEachRow(rows, []any{&position, &dead, &free}, func() error {
			dead, free := dead, free
			r.details[position].DeadBytes, r.details[position].FreeBytes = &dead, &free
			return nil
		})
		return err
	})
	return err
}

// selectForeignKeys returns the foreign keys that refer to the tables $1, without their copies in partitions.
const selectForeignKeys = `
SELECT t.position - 1, k.conname::text, quote_ident(n.nspname) || '.' || quote_ident(c.relname),
  ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (n, i)
    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.i),
  CASE WHEN NOT (` + sqlexpr.Enforced + `) THEN 'NOT ENFORCED' ELSE CASE k.confdeltype WHEN 'r' THEN 'RESTRICT'
    WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT' ELSE 'NO ACTION' END END
FROM unnest($1::oid[]) WITH ORDINALITY AS t (oid, position) JOIN pg_constraint k ON k.confrelid = t.oid
  JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conparentid = 0
ORDER BY 3, 2`

func (r *reader) readForeignKeys(ctx context.Context) error {
	rows, _ := r.pool.Query(ctx, selectForeignKeys, r.oids)
	var (
		position int
		key      ForeignKey
	)
	_, err := pgx.ForEachRow(rows, []any{&position, &key.Name, &key.Table, &key.Columns, &key.OnDelete}, func() error {
		d := &r.details[position]
		d.ReferencedBy = append(d.ReferencedBy, key)
		key.Columns = nil
		return nil
	})
	return err
}
