package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Cascade is a foreign key, by what happens when a row of Parent is deleted: the rows of Table that refer to it are
// deleted or changed, or they prevent the deletion.
type Cascade struct {
	// Table has the foreign key: its Columns refer to Keys of Parent. Equal says for each pair how the key and the column
	// are compared.
	Parent, Table *Table
	Columns, Keys []string // quoted
	Equal         []Equality
	Action        Action
	// Indexed is set if an index of Table helps to find rows by Columns.
	Indexed bool
	// Whole is set if the key is one of the tables themselves, and not of partitions, nor of tables that others inherit
	// from, whose indexes do not have the rows of the others.
	Whole bool
}

// On returns the condition that a row of Table refers to a row of Parent, given the aliases of both.
func (k *Cascade) On(parent, child string) string {
	var on []string
	for i := range k.Keys {
		on = append(on, k.Equal[i].Of(parent+"."+k.Keys[i], child+"."+k.Columns[i]))
	}
	return strings.Join(on, " AND ")
}

// Action has the values of pg_constraint.confdeltype.
type Action string

const (
	Deletes Action = "c"
	Clears  Action = "n" // sets the referring columns to NULL or to their default
	Refuses Action = "a" // the row cannot be deleted while others refer to it
)

// isIndexed is the condition that an index helps to find the rows that refer to one by a foreign key k: it is complete
// and begins with one of the key's columns.
const isIndexed = `EXISTS (SELECT FROM pg_index i WHERE i.indrelid = k.conrelid AND i.indkey[0] = ANY (k.conkey)
    AND i.indpred IS NULL AND i.indisvalid)`

// findCascades returns the foreign keys of all schemas. Partitioned tables stand for their partitions: a key of one
// partition, or to one, counts as a key of all of them. Keys with PERIOD are left out: they can only refuse a DELETE,
// which then fails. If a column and its key have different collations, PostgreSQL compares them by the key's. COLLATE
// is added only where this matters, or where PostgreSQL could not determine which collation to use; anywhere else it
// would keep indexes from being used.
const findCascades = `
SELECT COALESCE(pg_partition_root(k.confrelid), k.confrelid)::oid, COALESCE(pg_partition_root(k.conrelid),
  k.conrelid)::oid,
  ARRAY(SELECT quote_ident(a.attname) FROM unnest(k.conkey) WITH ORDINALITY AS u (n, i)
    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.i),
  ARRAY(SELECT quote_ident(a.attname) FROM unnest(k.confkey) WITH ORDINALITY AS u (n, i)
    JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY u.i),
  (SELECT json_agg(json_build_object('Operator', format('OPERATOR(%I.%s)', n.nspname, o.oprname),
      'Type', (SELECT concat(format('%I.%I', tn.nspname, t.typname), (SELECT format(' COLLATE %I.%I', cn.nspname,
          tc.collname) FROM pg_collation tc JOIN pg_namespace cn ON cn.oid = tc.collnamespace
          WHERE tc.oid = p.attcollation))
        FROM pg_type t JOIN pg_namespace tn ON tn.oid = t.typnamespace WHERE t.oid = p.atttypid),
      'Key', CASE WHEN l.typtype <> 'p' AND l.oid <> p.atttypid THEN format('::%I.%I', ln.nspname, l.typname)
        ELSE '' END || coalesce(by.collation, ''),
      'Column', CASE WHEN r.typtype <> 'p' AND r.oid <> f.atttypid THEN format('::%I.%I', rn.nspname, r.typname)
        ELSE '' END || coalesce(by.collation, '')) ORDER BY u.i)
    FROM unnest(k.conpfeqop, k.confkey, k.conkey) WITH ORDINALITY AS u (oid, key, number, i)
    JOIN pg_operator o ON o.oid = u.oid JOIN pg_namespace n ON n.oid = o.oprnamespace
    JOIN pg_type l ON l.oid = o.oprleft JOIN pg_namespace ln ON ln.oid = l.typnamespace
    JOIN pg_type r ON r.oid = o.oprright JOIN pg_namespace rn ON rn.oid = r.typnamespace
    JOIN pg_attribute p ON p.attrelid = k.confrelid AND p.attnum = u.key
    JOIN pg_attribute f ON f.attrelid = k.conrelid AND f.attnum = u.number
    LEFT JOIN LATERAL (SELECT format(' COLLATE %I.%I', cn.nspname, of.collname) AS collation
      FROM pg_collation of JOIN pg_namespace cn ON cn.oid = of.collnamespace
      WHERE of.oid = p.attcollation AND f.attcollation <> 0 AND f.attcollation <> of.oid
        AND (SELECT NOT bool_and(collisdeterministic) OR bool_and(collprovider <> 'd') FROM pg_collation
          WHERE oid IN (p.attcollation, f.attcollation))) AS by ON true),
  CASE k.confdeltype WHEN 'd' THEN 'n' WHEN 'r' THEN 'a' ELSE k.confdeltype END::text,
  ` + isIndexed + `, NOT EXISTS (SELECT FROM pg_class w WHERE w.oid IN (k.conrelid, k.confrelid)
    AND (w.relispartition OR w.relhassubclass AND w.relkind <> 'p'))
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE k.contype = 'f' AND k.conparentid = 0 AND ` + sqlexpr.Enforced + `
  AND (to_jsonb(k) ->> 'conperiod') IS DISTINCT FROM 'true'
ORDER BY c.relname, k.conname`

// readCascades follows the foreign keys that delete or change rows with rows of the tables, into all schemas. For keys
// that refuse, it loads further tables only if all is set, or if the key refers to a table that the scope names or to
// one whose rows are deleted with the rows of such a table.
func (c *Catalog) readCascades(ctx context.Context, db Querier, all bool) error {
	type key struct {
		Parent, Child  uint32
		Columns, Keys  []string
		Equal          []Equality
		Action         Action
		Indexed, Whole bool
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
	going := map[uint32]bool{} // the tables that the scope names, and those whose rows are deleted with theirs
	for _, t := range c.named {
		going[t.OID] = true
		for _, l := range t.Leaves {
			going[l.OID] = true
		}
	}
	for found := 0; found < len(going); {
		found = len(going)
		for _, k := range keys {
			if k.Action == Deletes && going[k.Parent] {
				going[k.Child] = true
			}
		}
	}
	var others []uint32
	for _, k := range keys {
		for _, oid := range []uint32{k.Parent, k.Child} {
			if tables[oid] == nil && (k.Action != Refuses || all || going[k.Parent]) {
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
			if parent := tables[k.Parent]; parent != nil && t != child && t.includes(child) {
				key := &Cascade{parent, child, k.Columns, k.Keys, k.Equal, k.Action, k.Indexed, k.Whole}
				if t.hasQuoted(k.Columns) {
					t.ForeignKeys = append(t.ForeignKeys, key)
				} else {
					t.ChildKeys = append(t.ChildKeys, key)
				}
			}
			if t.OID == k.Parent || slices.ContainsFunc(t.Leaves, func(l Leaf) bool { return l.OID == k.Parent }) {
				cascade := &Cascade{t, child, k.Columns, k.Keys, k.Equal, k.Action, k.Indexed, k.Whole}
				if t.OID == k.Parent {
					child.ForeignKeys = append(child.ForeignKeys, cascade)
				}
				if k.Action == Refuses {
					t.Refusals = append(t.Refusals, cascade)
				} else {
					t.Cascades = append(t.Cascades, cascade)
				}
			}
		}
	}
	return nil
}

// includes reports whether the table has all rows of another one.
func (t *Table) includes(other *Table) bool {
	isOwn := func(l Leaf) bool {
		return slices.ContainsFunc(t.Leaves, func(own Leaf) bool { return own.OID == l.OID })
	}
	return len(other.Leaves) > 0 && !slices.ContainsFunc(other.Leaves, func(l Leaf) bool { return !isOwn(l) })
}

// hasQuoted reports whether the table has all columns, given as quote_ident writes them.
func (t *Table) hasQuoted(columns []string) bool {
	return !slices.ContainsFunc(columns, func(c string) bool {
		return !slices.Contains(t.columns, flags.Unquote(c))
	})
}

// NameIn omits the schema if it is the given one.
func (t *Table) NameIn(schema string) string {
	if t.Schema == schema {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// Dependents returns the tables whose rows foreign keys delete or change with rows of the table, directly or
// through other tables whose rows are deleted. The table itself is included if keys lead back to it.
func (t *Table) Dependents() (list []*Table) {
	t.followCascades(func(k *Cascade) {
		if !slices.Contains(list, k.Table) {
			list = append(list, k.Table)
		}
	})
	return list
}

func (t *Table) followCascades(visit func(*Cascade)) {
	followed := map[*Table]bool{}
	var follow func(t *Table)
	follow = func(t *Table) {
		followed[t] = true
		for _, k := range t.Cascades {
			visit(k)
			if k.Action == Deletes && !followed[k.Table] {
				follow(k.Table)
			}
		}
	}
	follow(t)
}

// Going returns the table, and the tables whose rows foreign keys delete with its rows.
func (t *Table) Going() []*Table {
	list := []*Table{t}
	t.followCascades(func(k *Cascade) {
		if k.Action == Deletes && !slices.Contains(list, k.Table) {
			list = append(list, k.Table)
		}
	})
	return list
}

// Clears reports whether foreign keys change rows of another table when rows of the table are deleted.
func (t *Table) Clears(other *Table) (clears bool) {
	t.followCascades(func(k *Cascade) { clears = clears || k.Action == Clears && k.Table == other })
	return clears
}

// Keeping returns the foreign keys of other tables that refuse to delete a row of the table, or a row that would be
// deleted with it. A referring row that would be deleted as well does not prevent the deletion.
func (t *Table) Keeping() (keys []*Cascade) {
	for _, parent := range t.Going() {
		for _, k := range parent.Refusals {
			if k.Table != t {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// References are the foreign keys that refer to a table, or to the tables whose rows are deleted with its rows.
type References struct {
	// Refusing are the quoted names of tables with keys that refuse: a row cannot be deleted while rows of these
	// tables refer to it.
	Refusing []string
	// Unindexed are CREATE INDEX statements for keys without an index.
	Unindexed []string
}

// findReferences returns the foreign keys that refer to the tables $1.
const findReferences = `
SELECT DISTINCT format('%I.%I', n.nspname, c.relname), k.confdeltype IN ('a', 'r') AND k.conrelid <> ALL ($1::oid[]),
  CASE WHEN NOT ` + isIndexed + ` AND c.relkind IN ('r', 'p')
    THEN format('CREATE INDEX ON %I.%I (%s)', n.nspname, c.relname, (SELECT string_agg(quote_ident(a.attname), ', '
      ORDER BY u.i) FROM unnest(k.conkey) WITH ORDINALITY AS u (number, i)
      JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.number)) ELSE '' END
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conparentid = 0 AND ` + sqlexpr.Enforced + `
  AND COALESCE(pg_partition_root(k.confrelid), k.confrelid) = ANY ($1::oid[]) ORDER BY 1, 3`

func (t *Table) References(ctx context.Context, db Querier) (r References, err error) {
	var oids []uint32
	for _, going := range t.Going() {
		oids = append(oids, going.OID)
	}
	var (
		table, statement string
		refuses          bool
	)
	rows, _ := db.Query(ctx, findReferences, oids)
	_, err = pgx.ForEachRow(rows, []any{&table, &refuses, &statement}, func() error {
		if refuses && !slices.Contains(r.Refusing, table) {
			r.Refusing = append(r.Refusing, table)
		}
		if statement != "" && !slices.Contains(r.Unindexed, statement) {
			r.Unindexed = append(r.Unindexed, statement)
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("read the foreign keys to %s: %w", t.Quoted(), err)
	}
	return r, nil
}
