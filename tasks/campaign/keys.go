package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// findKeys finds the integer columns (of the types $5) that identify the rows of the relations $1: those with a unique
// index on that column alone. The index may also have the columns by which the table is partitioned, since PostgreSQL
// requires them in every unique index, or the column by which Citus distributes it ($2, $3), for the same reason.
// Invalid and partial indexes, and indexes on expressions, do not count. Nullable columns count only if the application
// names them as ids ($4). Columns are in the order of the table, because a dump and restore creates indexes in another
// order.
const findKeys = `
SELECT i.indrelid, a.attname::text, bool_or(i.indisprimary)
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, ord)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
LEFT JOIN pg_partitioned_table p ON p.partrelid = i.indrelid
WHERE i.indrelid = ANY ($1::oid[]) AND i.indisunique AND i.indisvalid AND i.indisready AND i.indpred IS NULL
  AND i.indexprs IS NULL
  AND k.ord <= i.indnkeyatts AND a.atttypid = ANY ($5::oid[])
  AND (a.attnotnull OR a.attname = ANY ($4::text[]))
  AND (SELECT count(*) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS o(attnum, ord)
       WHERE o.ord <= i.indnkeyatts AND o.attnum <> k.attnum
         AND (p.partattrs IS NULL OR o.attnum <> ALL (p.partattrs::int2[]))
         AND NOT EXISTS (SELECT FROM unnest($2::oid[], $3::int2[]) AS d (oid, attnum)
           WHERE d = (i.indrelid, o.attnum))) = 0
GROUP BY 1, 2, a.attnum ORDER BY i.indrelid, a.attnum`

// readKeys reads the keys of all tables. A column that is a key of every partition is a key of the table, even
// without an index on the table: pg_partman takes unique indexes of partitions from a template.
func (c *Catalog) readKeys(ctx context.Context, db Querier, d distribution) error {
	var relations, integers []uint32
	var named []string
	for oid, base := range c.types {
		if isInteger(base) {
			integers = append(integers, oid)
		}
	}
	for _, t := range c.All() {
		relations, named = append(relations, t.OID), append(named, t.namedKeys()...)
		for _, l := range t.Leaves {
			relations = append(relations, l.OID)
		}
	}
	rows, _ := db.Query(ctx, findKeys, relations, d.relations, d.columns, named, integers)
	var (
		oid     uint32
		column  string
		first   bool
		keys    = map[uint32][]string{}
		primary = map[uint32]string{}
	)
	if _, err := pgx.ForEachRow(rows, []any{&oid, &column, &first}, func() error {
		keys[oid] = append(keys[oid], column)
		if first {
			primary[oid] = column
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the keys: %w", err)
	}
	for _, t := range c.All() {
		t.keys = keys[t.OID]
		for _, key := range commonKeys(t.Leaves, keys) {
			if !slices.Contains(t.keys, key) {
				t.keys = append(t.keys, key)
			}
		}
		if t.Location == Foreign && len(t.keys) == 0 {
			t.keys = t.namedKeys()
		}
		t.Key = t.keyColumn(primary[t.OID])
	}
	return nil
}

func commonKeys(leaves []Leaf, keys map[uint32][]string) (common []string) {
	for i, l := range leaves {
		if i == 0 {
			common = slices.Clone(keys[l.OID])
		}
		common = slices.DeleteFunc(common, func(key string) bool { return !slices.Contains(keys[l.OID], key) })
	}
	return common
}

// keyColumn returns the column that has the value 0 in the zero record; empty if there is none. For a table that
// Adobe documents, this is the documented id, whether or not an index makes it unique. For another table it is the
// primary key, if that is a single integer.
func (t *Table) keyColumn(primary string) string {
	named := t.namedKeys()
	unique := slices.DeleteFunc(slices.Clone(named), func(key string) bool { return !slices.Contains(t.keys, key) })
	switch {
	case !t.isKnown() && primary != "":
		return primary
	case len(unique) > 0:
		return unique[0]
	case t.isKnown() && t.Location == "" && len(named) > 0:
		return named[0]
	case t.isKnown() || len(t.keys) == 0:
		return ""
	}
	return t.keys[0]
}

func (t *Table) isKnown() bool { return slices.Contains(knownTables, t.Name) }

// idColumns are the id columns of those known tables whose id is not named after the table.
var idColumns = map[string]string{
	"nmsattachments":      "iattachmentid",
	"nmsmirrorpagesearch": "imessageid",
	"nmsremamatchrcp":     "ihypothesisid",
}

// namedKeys returns the integer columns that are keys by the application's naming. PostgreSQL has no keys for a foreign
// table, or for a partitioned table with a foreign partition.
func (t *Table) namedKeys() []string {
	return slices.DeleteFunc(t.namedIDs(), func(id string) bool { return !t.HasInteger(id) })
}

// UnusableID returns the column that is the id by the application's naming, but is not an integer, so that the zero
// record cannot be recognized. It is empty if an id is an integer, if the table has no id, or if the database has
// no zero records.
func (t *Table) UnusableID() string {
	if !t.hasZeroRecord {
		return ""
	}
	if ids := t.namedIDs(); len(ids) > 0 && len(t.namedKeys()) == 0 {
		return ids[0]
	}
	return ""
}

func (t *Table) namedIDs() (ids []string) {
	add := func(id string, columns ...string) {
		id = strings.ToLower(id)
		if t.Has(id) && t.Has(columns...) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	add(idColumns[t.Name])
	if len(t.Name) > len("nms") { // the application's namespaces have three letters
		add("i" + t.Name[len("nms"):] + "id")
		add("bi" + t.Name[len("nms"):] + "id")
	}
	for _, family := range []logFamily{trackingLogs, deliveryLogs} {
		add(family.key, family.columns...)
	}
	for _, key := range []string{"iPropositionId", "biPropositionId"} {
		add(key, "tsLastModified")
	}
	return ids
}
