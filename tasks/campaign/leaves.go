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
	Elsewhere string `db:"-"`
}

// Quoted is the leaf's name for an SQL statement, with its schema.
func (l Leaf) Quoted() string { return pgx.Identifier{l.Schema, l.Name}.Sanitize() }

// Leaves returns the relations that have the rows of t: t itself, or its partitions at any depth, ordered by name.
func (t *Table) Leaves(ctx context.Context, db Querier) ([]Leaf, error) {
	if !t.HasChildren {
		return []Leaf{{t.OID, t.Schema, t.Name, t.Elsewhere}}, nil
	}
	rows, err := db.Query(ctx, `
WITH RECURSIVE tree AS (SELECT $1::oid AS oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid)
SELECT c.oid, n.nspname, c.relname FROM tree JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'f') ORDER BY n.nspname, c.relname`, t.OID)
	if err != nil {
		return nil, fmt.Errorf("list the partitions of %s: %w", t.Name, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Leaf, err error) {
		err = row.Scan(&l.OID, &l.Schema, &l.Name)
		l.Elsewhere = t.places[l.OID]
		return l, err
	})
}
