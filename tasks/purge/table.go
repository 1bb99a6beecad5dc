package purge

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// tableInfo describes a sweep's table.
type tableInfo struct {
	instead bool    // there is a DO INSTEAD rule
	blocks  int64   // its size
	enough  float64 // rows per block from which on it is worth visiting every block
}

// appTrigger is the condition that a trigger is the application's. Before PostgreSQL 15 those that a partition inherits
// from its parent count as internal.
const appTrigger = "(NOT tgisinternal OR tgparentid <> 0 AND tgconstraint = 0)"

// inspectSQL asks whether a relation ($2) has a DO INSTEAD or a DO ALSO rule for a command ($3, as in pg_rewrite),
// whether a table has triggers, and which foreign keys without an index refer to it; then for its size, and for how
// many rows per block make it worth visiting every block: two, so that few blocks have none, or, if rows are large,
// half of those in a block.
const inspectSQL = `
SELECT EXISTS (SELECT FROM pg_rewrite WHERE ev_class = $2::text::regclass AND ev_type::text = $3 AND is_instead),
  EXISTS (SELECT FROM pg_rewrite WHERE ev_class = $2::text::regclass AND ev_type::text = $3 AND NOT is_instead
    AND ev_action::text <> '<>'),
  EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND ` + appTrigger + `),
  ARRAY(SELECT format('%s (%s)', f.conrelid::regclass, (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.place)
      FROM unnest(f.conkey) WITH ORDINALITY AS k (number, place) JOIN pg_attribute a ON a.attrelid = f.conrelid
        AND a.attnum = k.number))
    FROM pg_constraint f WHERE f.contype = 'f' AND f.confrelid = c.oid AND NOT EXISTS (
      SELECT FROM pg_index i WHERE i.indrelid = f.conrelid AND i.indkey[0] = ANY (f.conkey) AND i.indpred IS NULL
        AND i.indisvalid)
    ORDER BY 1),
  pg_relation_size(c.oid) / current_setting('block_size')::bigint, least(2, greatest(reltuples,
    1) / greatest(relpages, 1) / 2)
FROM pg_class c WHERE c.oid = $1::text::regclass`

// inspect finds out what the table is like, and whether the plain statement will do: there is no Paired or Also, and no
// trigger may keep rows. A DO ALSO rule keeps rows with a Paired or Also, as a DO INSTEAD rule does. It warns of
// foreign keys that make each deletion expensive.
func (sw *sweep) inspect(ctx context.Context) (t tableInfo, err error) {
	command := "4"
	if sw.Set != nil {
		command = "2"
	}
	if sw.Set != nil && sw.Partition {
		if err := sw.movesTo(ctx); err != nil {
			return t, err
		}
	}
	var (
		triggers  bool
		unindexed []string
	)
	if err := sw.read(
		ctx,
		[]any{&t.instead, &sw.ruled, &triggers, &unindexed, &t.blocks, &t.enough},
		inspectSQL,
		sw.Relation,
		cmp.Or(sw.root, sw.Relation),
		command,
	); err != nil {
		return t, err
	}
	if triggers {
		sw.slow = "a slow trigger"
	}
	if sw.Set == nil {
		for _, key := range unindexed {
			sw.slow = strings.TrimPrefix(sw.slow+", and an index on "+key, ", and ")
			sw.Recorder.Warn(
				fmt.Sprintf(
					"%s: a foreign key refers to it without an index, all of that table is read for each row that "+
						"goes: create an index on %s",
					sw.Name,
					key,
				),
			)
		}
	}
	t.instead = t.instead || (sw.ruled && (sw.Paired != nil || sw.Companion != nil))
	sw.simple = !triggers && sw.Paired == nil && sw.Companion == nil && sw.root == ""
	return t, nil
}

// rootSQL asks for the root of a table's partition tree, if any level of it above the table is partitioned by one of
// some columns ($2), or by an expression.
const rootSQL = `
SELECT c.oid, COALESCE((SELECT format('%I.%I', n.nspname, r.relname) FROM pg_class r
  JOIN pg_namespace n ON n.oid = r.relnamespace
  WHERE r.oid = pg_partition_root(c.oid) AND EXISTS (SELECT FROM pg_partition_ancestors(c.oid) AS a
    JOIN pg_partitioned_table p ON p.partrelid = a.relid
    WHERE 0 = ANY (p.partattrs::int2[]) OR EXISTS (SELECT FROM pg_attribute k WHERE k.attrelid = a.relid
      AND k.attnum = ANY (p.partattrs::int2[]) AND k.attname = ANY ($2::text[])))), '')
FROM pg_class c WHERE c.oid = $1::text::regclass`

// movesTo finds out whether updated rows may have to move to another partition, which they do only if the statement
// names the partitioned table.
func (sw *sweep) movesTo(ctx context.Context) error {
	var columns []string
	for _, a := range sw.Set {
		columns = append(columns, strings.ToLower(a.Column))
	}
	return sw.read(ctx, []any{&sw.oid, &sw.root}, rootSQL, sw.Relation, columns)
}

// end is the table's current number of blocks, and its filenode.
func (sw *sweep) end(ctx context.Context) (blocks int64, filenode uint32, err error) {
	err = sw.read(
		ctx,
		[]any{&blocks, &filenode},
		"SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint, "+
			"pg_relation_filenode($1::text::regclass)",
		sw.Relation,
	)
	return blocks, filenode, err
}

// read scans the one row of a query about the sweep's table.
func (sw *sweep) read(ctx context.Context, dest []any, sql string, args ...any) error {
	return sw.Retry(ctx, sw.Name, func() error { return sw.session.conn.QueryRow(ctx, sql, args...).Scan(dest...) })
}
