package campaign

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Leaf is a relation that has rows itself: a table, or one of its partitions.
type Leaf struct {
	OID    uint32
	Schema string
	Name   string
	// Elsewhere says where its rows are, as that of Table.
	Elsewhere string
	// Unlogged says that standbys have none of its rows.
	Unlogged bool
}

// Quoted is the leaf's name for an SQL statement, with its schema.
func (l Leaf) Quoted() string { return pgx.Identifier{l.Schema, l.Name}.Sanitize() }

// findLeaves finds the leaves of some tables. It leaves out partitions that are being detached, whose rows queries do
// not see.
const findLeaves = `
WITH RECURSIVE tree AS (SELECT oid AS root, oid FROM unnest($1::oid[]) AS oid UNION SELECT tree.root, i.inhrelid
  FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending)
SELECT tree.root, c.oid, n.nspname, c.relname, c.relpersistence = 'u' FROM tree JOIN pg_class c USING (oid)
  JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'f') ORDER BY n.nspname, c.relname`

// readLeaves reads the leaves of those of some tables that have partitions or children.
func (c *Catalog) readLeaves(ctx context.Context, db Querier, tables []*Table) error {
	parents, oids := map[uint32]*Table{}, []uint32{}
	for _, t := range tables {
		if t.HasChildren {
			parents[t.OID], t.Leaves = t, nil
			oids = append(oids, t.OID)
		}
	}
	if len(oids) == 0 {
		return nil
	}
	rows, err := db.Query(ctx, findLeaves, oids)
	if err != nil {
		return fmt.Errorf("list the partitions: %w", err)
	}
	var (
		root uint32
		l    Leaf
	)
	if _, err := pgx.ForEachRow(rows, []any{&root, &l.OID, &l.Schema, &l.Name, &l.Unlogged}, func() error {
		l.Elsewhere = c.Elsewhere[l.OID]
		parents[root].Leaves = append(parents[root].Leaves, l)
		return nil
	}); err != nil {
		return fmt.Errorf("list the partitions: %w", err)
	}
	return nil
}
