package purge

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// table is what a sweep's table is like.
type table struct {
	instead bool    // a rule does something instead of the command
	blocks  int64   // its size
	enough  float64 // rows a block that make it worth to visit every block
}

// appTrigger is the condition that a trigger is the application's. Before PostgreSQL 15 those that a partition has from its parent
// count as internal.
const appTrigger = "(NOT tgisinternal OR tgparentid <> 0 AND tgconstraint = 0)"

// lookSQL asks whether a rule of what is named ($2) does something instead of a command ($3, as pg_rewrite has it), or beside it,
// whether a table has triggers, and what refers to it by a foreign key without an index; then for its size, and for how many
// rows a block make it worth to visit every block: so many that hardly a block has none, or half of those that a block of large
// rows has.
const lookSQL = `
SELECT EXISTS (SELECT FROM pg_rewrite WHERE ev_class = $2::text::regclass AND ev_type::text = $3 AND is_instead),
  EXISTS (SELECT FROM pg_rewrite WHERE ev_class = $2::text::regclass AND ev_type::text = $3 AND NOT is_instead AND ev_action::text <> '<>'),
  EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND ` + appTrigger + `),
  ARRAY(SELECT format('%s (%s)', f.conrelid::regclass, (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.place)
      FROM unnest(f.conkey) WITH ORDINALITY AS k (number, place) JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.number))
    FROM pg_constraint f WHERE f.contype = 'f' AND f.confrelid = c.oid AND NOT EXISTS (
      SELECT FROM pg_index i WHERE i.indrelid = f.conrelid AND i.indkey[0] = ANY (f.conkey) AND i.indpred IS NULL AND i.indisvalid)
    ORDER BY 1),
  pg_relation_size(c.oid) / current_setting('block_size')::bigint, least(2, greatest(reltuples, 1) / greatest(relpages, 1) / 2)
FROM pg_class c WHERE c.oid = $1::text::regclass`

// look finds out what the table is like, and whether the plain statement will do: nothing goes beside the rows, and no
// trigger may keep them. Where a rule does something beside what goes beside the rows, they stay as where it does something
// instead. It warns of what makes each row dear.
func (sw *sweep) look(ctx context.Context) (t table, err error) {
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
	if err := sw.read(ctx, []any{&t.instead, &sw.ruled, &triggers, &unindexed, &t.blocks, &t.enough}, lookSQL, sw.Relation, cmp.Or(sw.root, sw.Relation), command); err != nil {
		return t, err
	}
	if sw.Set == nil {
		for _, key := range unindexed {
			sw.Warn(fmt.Sprintf("%s: a foreign key refers to it without an index, all of that table is read for each row that goes: create an index on %s", sw.Name, key))
		}
	}
	t.instead = t.instead || sw.ruled && (sw.Twin != nil || sw.Also != nil)
	sw.simple = !triggers && sw.Twin == nil && sw.Also == nil && sw.root == ""
	return t, nil
}

// rootSQL asks for the root of the partitions of which a table is one, if it or one below it is partitioned by one of some
// columns ($2), or by an expression.
const rootSQL = `
SELECT c.oid, COALESCE((SELECT format('%I.%I', n.nspname, r.relname) FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace
  WHERE r.oid = pg_partition_root(c.oid) AND EXISTS (SELECT FROM pg_partition_ancestors(c.oid) AS a JOIN pg_partitioned_table p ON p.partrelid = a.relid
    WHERE 0 = ANY (p.partattrs::int2[]) OR EXISTS (SELECT FROM pg_attribute k WHERE k.attrelid = a.relid AND k.attnum = ANY (p.partattrs::int2[]) AND k.attname = ANY ($2::text[])))), '')
FROM pg_class c WHERE c.oid = $1::text::regclass`

// movesTo finds out whether rows that are updated may have to move to another partition, which they do only when the statement
// names what is partitioned.
func (sw *sweep) movesTo(ctx context.Context) error {
	var columns []string
	for _, a := range sw.Set {
		columns = append(columns, strings.ToLower(a.Column))
	}
	return sw.read(ctx, []any{&sw.oid, &sw.root}, rootSQL, sw.Relation, columns)
}

// end is the number of blocks the table has now, and the file that they are in.
func (sw *sweep) end(ctx context.Context) (blocks int64, filenode uint32, err error) {
	err = sw.read(ctx, []any{&blocks, &filenode}, "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint, pg_relation_filenode($1::text::regclass)", sw.Relation)
	return blocks, filenode, err
}

// read scans the one row of a query about the sweep's table.
func (sw *sweep) read(ctx context.Context, dest []any, sql string, args ...any) error {
	return sw.Retry(ctx, sw.Name, func() error { return sw.session.conn.QueryRow(ctx, sql, args...).Scan(dest...) })
}
