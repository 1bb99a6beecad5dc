package campaign

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Cascade is a foreign key by which rows of a table are deleted, or changed, with the row that they refer to.
type Cascade struct {
	// Table has the rows, Columns refer to Keys of the other one.
	Table         *Table
	Columns, Keys []string // quoted where needed
}

// loadCascades reads the foreign keys of all schemas, with the partitioned tables in place of their partitions: a key
// of one partition, or to one, is taken for one of all.
const loadCascades = `
SELECT COALESCE(pg_partition_root(k.confrelid), k.confrelid)::oid, COALESCE(pg_partition_root(k.conrelid),
  k.conrelid)::oid,
  ARRAY(SELECT quote_ident(a.attname) FROM unnest(k.conkey) WITH ORDINALITY AS u (n, i)
    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.i),
  ARRAY(SELECT quote_ident(a.attname) FROM unnest(k.confkey) WITH ORDINALITY AS u (n, i)
    JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY u.i)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE k.contype = 'f' AND k.confdeltype IN ('c', 'n', 'd') AND k.conparentid = 0
ORDER BY c.relname, k.conname`

// readCascades reads the foreign keys of tables by which others' rows go with theirs, to their end in whatever schema.
func (c *Catalog) readCascades(ctx context.Context, db Querier) error {
	type key struct {
		Parent, Child uint32
		Columns, Keys []string
	}
	rows, err := db.Query(ctx, loadCascades)
	if err != nil {
		return fmt.Errorf("read the foreign keys: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[key])
	if err != nil {
		return fmt.Errorf("read the foreign keys: %w", err)
	}
	tables := map[uint32]*Table{}
	for _, t := range c.tables {
		tables[t.OID] = t
	}
	var others []uint32
	for _, k := range keys {
		for _, oid := range []uint32{k.Parent, k.Child} {
			if tables[oid] == nil {
				others = append(others, oid)
			}
		}
	}
	if len(others) > 0 {
		list, err := c.loadTables(ctx, db, tablesByOID, others)
		if err != nil {
			return err
		}
		for _, t := range list {
			tables[t.OID] = t
		}
	}
	for _, k := range keys {
		child := tables[k.Child]
		if child == nil {
			continue
		}
		for _, t := range tables { // a table that others inherit has their rows, too
			if t.OID == k.Parent || slices.ContainsFunc(t.Leaves, func(l Leaf) bool { return l.OID == k.Parent }) {
				t.Cascades = append(t.Cascades, Cascade{child, k.Columns, k.Keys})
			}
		}
	}
	return nil
}

// NameIn returns the table's name for people who look at a schema: with its own if that is another one.
func (t *Table) NameIn(schema string) string {
	if t.Schema == schema {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// Dependents returns the tables whose rows foreign keys delete or change with those of the table, directly or by way of
// others.
func (t *Table) Dependents() (list []*Table) {
	seen := map[*Table]bool{t: true}
	var follow func(t *Table)
	follow = func(t *Table) {
		for _, k := range t.Cascades {
			if !seen[k.Table] {
				seen[k.Table] = true
				list = append(list, k.Table)
				follow(k.Table)
			}
		}
	}
	follow(t)
	return list
}
