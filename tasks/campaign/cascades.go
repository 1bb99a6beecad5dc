package campaign

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Cascade is a foreign key that deletes or changes rows with the row that they refer to.
type Cascade struct {
	// Table is the table with the foreign key: its Columns refer to Keys of the other table.
	Table         *Table
	Columns, Keys []string // quoted where needed
}

// findCascades finds the foreign keys of all schemas. It returns partitioned tables instead of their partitions: a key
// of one partition, or to one, counts as a key of all.
const findCascades = `
SELECT COALESCE(pg_partition_root(k.confrelid), k.confrelid)::oid, COALESCE(pg_partition_root(k.conrelid),
  k.conrelid)::oid,
  ARRAY(SELECT quote_ident(a.attname) FROM unnest(k.conkey) WITH ORDINALITY AS u (n, i)
    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.i),
  ARRAY(SELECT quote_ident(a.attname) FROM unnest(k.confkey) WITH ORDINALITY AS u (n, i)
    JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY u.i)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE k.contype = 'f' AND k.confdeltype IN ('c', 'n', 'd') AND k.conparentid = 0
ORDER BY c.relname, k.conname`

// readCascades reads the foreign keys that delete or change rows with rows of the tables. It follows them into all
// schemas.
func (c *Catalog) readCascades(ctx context.Context, db Querier) error {
	type key struct {
		Parent, Child uint32
		Columns, Keys []string
	}
	rows, _ := db.Query(ctx, findCascades)
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[key])
	if err != nil {
		return fmt.Errorf("read the foreign keys: %w", err)
	}
	tables := map[uint32]*Table{}
	for _, t := range c.All() {
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
		for _, t := range tables { // a table also has the rows of the tables that inherit from it
			if t.OID == k.Parent || slices.ContainsFunc(t.Leaves, func(l Leaf) bool { return l.OID == k.Parent }) {
				t.Cascades = append(t.Cascades, Cascade{child, k.Columns, k.Keys})
			}
		}
	}
	return nil
}

// NameIn returns the table's name for people, with its schema unless that is the given one.
func (t *Table) NameIn(schema string) string {
	if t.Schema == schema {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// Dependents returns the tables whose rows foreign keys delete or change with rows of the table, directly or through
// other tables.
func (t *Table) Dependents() (list []*Table) {
	visited := map[*Table]bool{t: true}
	var follow func(t *Table)
	follow = func(t *Table) {
		for _, k := range t.Cascades {
			if !visited[k.Table] {
				visited[k.Table] = true
				list = append(list, k.Table)
				follow(k.Table)
			}
		}
	}
	follow(t)
	return list
}
