package campaign

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Leaf is a relation that stores rows: a table, or one of its partitions.
type Leaf struct {
	OID      uint32
	Schema   string
	Name     string
	Location string
	// Unlogged is true if standbys have none of its rows.
	Unlogged bool
	Facts    string
	// Rights are the role's rights to the leaf itself: rights to a table do not include its partitions. CanInsert is
	// not set.
	Rights
	// Empty and From are set only if a right is missing and no session has locked the leaf. From has the first day of the
	// partition's range, by the stored names of the partitioning columns. Its time zone is unknown, so it may be off by a
	// day.
	Empty bool
	From  map[string]time.Time
}

func (l Leaf) Quoted() string { return pgx.Identifier{l.Schema, l.Name}.Sanitize() }

// FactsSQL describes a relation c that a batch changes or reads. A rule was compiled for these facts, and batches
// require that they are unchanged: the relation's object id, kind and owner, its file (which a rewrite or TRUNCATE
// replaces), whether row security is active, its foreign keys and those that refer to it, and its partitions or
// children.
const FactsSQL = `concat_ws(' ', c.oid, c.relkind, c.relowner, pg_relation_filenode(c.oid), row_security_active(c.oid),
  CASE WHEN c.relhastriggers THEN (SELECT 'keys ' || string_agg(DISTINCT k.tgconstraint::text, ',') FROM pg_trigger k
    WHERE k.tgrelid = c.oid AND k.tgconstrrelid <> 0) END,
  CASE WHEN c.relhassubclass THEN (SELECT 'parts ' || string_agg(concat_ws(':', i.inhrelid,
      pg_relation_filenode(i.inhrelid)), ',' ORDER BY i.inhrelid) FROM pg_inherits i
    WHERE i.inhparent = c.oid AND NOT i.inhdetachpending) END)`

// unusableLeaf is the condition that the role has no SELECT on a leaf c, or neither DELETE nor UPDATE. It leaves out
// leaves that are locked, or below a locked table: reading their size and bounds would wait for the lock.
const unusableLeaf = `(NOT has_table_privilege(c.oid, 'SELECT')
  OR NOT has_table_privilege(c.oid, 'DELETE') AND NOT has_table_privilege(c.oid, 'UPDATE'))
  AND NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'relation' AND mode = 'AccessExclusiveLock'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (relation = c.oid OR relation IN (SELECT pg_partition_ancestors(c.oid))))`

// PartitionedByDate is the condition that a table, t in pg_partitioned_table, is partitioned by range of its column a
// alone, and that this is a date whose ranges have their usual order, which an operator class can reverse.
const PartitionedByDate = `t.partstrat = 'r' AND t.partnatts = 1 AND a.attnum = t.partattrs[0]
  AND a.atttypid IN ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
  AND (SELECT opcdefault FROM pg_opclass WHERE oid = t.partclass[0])`

// partitionBegins returns the first days of the ranges of a leaf c and of the partitions above it, as days since 1970,
// by column. It recognizes only dates in the ISO style that are not BC.
const partitionBegins = `SELECT jsonb_object_agg(a.attname, bound.day::date - date '1970-01-01')
  FROM pg_partition_ancestors(c.oid) AS up (oid) JOIN pg_class p ON p.oid = up.oid
  JOIN pg_inherits i ON i.inhrelid = p.oid JOIN pg_partitioned_table t ON t.partrelid = i.inhparent
  JOIN pg_attribute a ON a.attrelid = i.inhparent AND ` + PartitionedByDate + `,
  LATERAL substring(pg_get_expr(p.relpartbound, p.oid) FROM $$ FROM \('(\d{4}-\d\d-\d\d)[^'B]*'\)$$) AS bound (day)
  WHERE bound.day IS NOT NULL`

// leafTree is a WITH query for the tables $1 with their partitions and children, at any depth. Partitions that are
// being detached are left out, since queries do not see their rows.
const leafTree = `
WITH RECURSIVE tree (root, oid, above) AS (SELECT oid, oid, false FROM unnest($1::oid[]) AS oid
  UNION SELECT tree.root, i.inhrelid, tree.above OR row_security_active(tree.oid)
  FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending)`

// findLeaves returns the leaves of the tables $1. It returns separately whether row security is active for the leaf and
// for a table above it.
const findLeaves = leafTree + `
SELECT tree.root, c.oid, n.nspname, c.relname, c.relpersistence = 'u', row_security_active(c.oid), bool_or(tree.above),
  COALESCE(has_schema_privilege(n.oid, 'USAGE'), true),
  COALESCE(has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT'), true),
  COALESCE(has_table_privilege(c.oid, 'DELETE'), true), COALESCE(has_table_privilege(c.oid, 'UPDATE'), true),
  ` + FactsSQL + ` AS facts,
  CASE WHEN ` + unusableLeaf + ` THEN c.relkind = 'r' AND pg_relation_size(c.oid) = 0
    AND NOT (c.relpersistence = 'u' AND pg_is_in_recovery()) ELSE false END, -- a standby has no unlogged rows
  CASE WHEN ` + unusableLeaf + ` THEN (` + partitionBegins + `) END
FROM tree JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'f')
GROUP BY tree.root, c.oid, n.oid
ORDER BY n.nspname, c.relname`

// AddedLeaves returns the leaves that were added to tables, or renamed, since the catalog was read. A leaf with a
// known name may be a different relation.
func AddedLeaves(ctx context.Context, db Querier, tables []*Table) (map[*Table][]Leaf, error) {
	byOID, oids := map[uint32]*Table{}, []uint32{}
	for _, t := range tables {
		byOID[t.OID], oids = t, append(oids, t.OID)
	}
	added := map[*Table][]Leaf{}
	rows, _ := db.Query(ctx, leafTree+`
		SELECT DISTINCT tree.root, c.oid, n.nspname, c.relname
		FROM tree JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'f') ORDER BY n.nspname, c.relname`, oids)
	var (
		root uint32
		l    Leaf
	)
	if _, err := pgx.ForEachRow(rows, []any{&root, &l.OID, &l.Schema, &l.Name}, func() error {
		t := byOID[root]
		if !slices.ContainsFunc(t.Leaves, func(known Leaf) bool {
			return known.OID == l.OID && known.Quoted() == l.Quoted()
		}) {
			added[t] = append(added[t], l)
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list the partitions again: %w", err)
	}
	return added, nil
}

// readLeaves reads the leaves of those tables that have partitions or children.
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
	rows, _ := db.Query(ctx, findLeaves, oids)
	var (
		root        uint32
		l           Leaf
		leaf, above bool // whether row security is active for the leaf, and for a table above it
		from        map[string]int64
	)
	scan := []any{
		&root, &l.OID, &l.Schema, &l.Name, &l.Unlogged, &leaf, &above, &l.CanUse, &l.CanSelect, &l.CanDelete, &l.CanUpdate,
		&l.Facts, &l.Empty, &from,
	}
	if _, err := pgx.ForEachRow(rows, scan, func() error {
		l.Location = c.Locations[l.OID]
		l.From = map[string]time.Time{}
		for column, days := range from {
			l.From[column] = time.Unix(days*int64(Day/time.Second), 0)
		}
		t := parents[root]
		t.Leaves = append(t.Leaves, l)
		t.RowSecurity, t.RowSecurityAbove = t.RowSecurity || leaf || above, t.RowSecurityAbove || above
		return nil
	}); err != nil {
		return fmt.Errorf("list the partitions: %w", err)
	}
	return nil
}
