package campaign

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Scope is what a catalog covers in addition to the tables of the application.
type Scope struct {
	// Named are further tables of any schema, as policies name them.
	Named []string
	// Held are further tables that have rows on hold. If there are any, all tables with foreign keys are covered, since
	// rows may refer to those on hold by keys of any kind.
	Held []string
	// NoCampaign is set if the database is not treated as a Campaign database, whatever tables it has.
	NoCampaign bool
}

type Column struct {
	Number int16
	Name   string
	// Type is the SQL of the column's type, or of the type below it if it is a domain, without a length or precision,
	// so that a value of this type is neither cut nor rounded. Full is the SQL of the column's type itself. Kind is
	// its category in pg_type: A for arrays, N for numbers, D for dates and times, S for texts.
	Type, Full, Kind string
	// IsDate is set for a date, timestamp or timestamptz, or a domain over one of these.
	IsDate bool
	// Bytewise is set for a text, varchar, char or name whose values are equal exactly if their bytes are. It is not
	// set for citext, or for a collation that ignores case.
	Bytewise bool
	// NotNull is set if new values cannot be NULL, and HasNulls if stored ones may be. A constraint that is NOT VALID
	// (since PostgreSQL 18) holds only for new values.
	NotNull, HasNulls bool
	// Unique is set if a unique index or an exclusion constraint depends on the column, even through an expression or
	// its condition. Generated is set if the column cannot be assigned a value.
	Unique, Generated bool
	// NullCollides is set if the column is Unique and NULL may collide with the value of another row: the column, or one
	// that is generated from it, is in the primary key, in an index with NULLS NOT DISTINCT (since PostgreSQL 15), or in
	// an expression or condition of an index. Anywhere else, a row with NULL is different from all others.
	NullCollides bool
	// Primary is set if the column is in the primary key.
	Primary bool
	// Referenced is set if a foreign key refers to the column, in the table or in a partition or child.
	Referenced bool
	// Generates are the unquoted names of the columns that are generated from this one.
	Generates []string
	// Indexed is set if a complete index begins with the column.
	Indexed              bool
	CanSelect, CanUpdate bool
	Identity             string
	// operators are those of the type's default B-tree operator class; nil if it has none.
	operators []string
	// comparable is the same for columns whose values can be compared with each other. Their operators are of one
	// operator family and, if this is the family for all enum, array, range or composite types, their types are the
	// same. It is empty without operators.
	comparable string
}

// ColumnIdentity is SQL that distinguishes a column a from another one of the same name that was added later or has
// another type.
const ColumnIdentity = "concat_ws(' ', a.attnum, a.atttypid)"

type tableName struct{ schema, name namePart }

// namePart is one part of a name as a policy writes it. Without quotes, it may also mean the same name in lower case.
type namePart struct {
	text   string
	quoted bool
}

// folded returns the lower-case name that an unquoted part may also mean, or the name itself.
func (p namePart) folded() string {
	if p.quoted {
		return p.text
	}
	return strings.ToLower(p.text)
}

// candidates returns the unquoted names that a part may mean, in order of preference.
func (p namePart) candidates() []string { return slices.Compact([]string{p.text, p.folded()}) }

// namePattern matches one part of a name, in quotes or not, and the dot after it.
var namePattern = regexp.MustCompile(`^(?:"((?:[^"]|"")+)"|([^".]+))(\.|$)`)

func parseTableName(text string) (n tableName, ok bool) {
	var parts []namePart
	for rest := text; ; {
		found := namePattern.FindStringSubmatch(rest)
		if found == nil {
			return n, false
		}
		quoted := found[1] != ""
		parts = append(parts, namePart{strings.ReplaceAll(found[1], `""`, `"`) + found[2], quoted})
		if rest = rest[len(found[0]):]; found[3] == "" {
			break
		}
	}
	switch len(parts) {
	case 1:
		return tableName{name: parts[0]}, true
	case 2:
		return tableName{parts[0], parts[1]}, true
	}
	return n, false
}

func BaseName(text string) string {
	n, _ := parseTableName(text)
	return n.name.text
}

// findNamed finds the relations that names mean. A name is given as its text ($1), its schema ($2, or else $3), and its
// base name ($4, or else $5). Without a schema, the name means a relation of the application's schema ($6), or else of
// the first possible schema on the search path.
const findNamed = `
SELECT given.text, found.oid
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
  AS given (text, schema, folded_schema, name, folded_name)
CROSS JOIN LATERAL (
  SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relname = ANY (ARRAY[given.name, given.folded_name]) AND c.relkind IN ('r', 'p', 'f', 'v', 'm')
    AND c.relpersistence <> 't'
    AND n.nspname = ANY (CASE WHEN given.schema = '' THEN current_schemas(false) || $6::name
      ELSE ARRAY[given.schema, given.folded_schema]::name[] END)
  ORDER BY given.schema <> '' AND n.nspname <> given.schema, n.nspname <> $6,
    array_position(current_schemas(false), n.nspname), c.relname <> given.name
  LIMIT 1) AS found`

func readNamed(ctx context.Context, db Querier, c *Catalog, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var texts, schemas, foldedSchemas, bases, foldedBases []string
	for _, text := range names {
		n, ok := parseTableName(text)
		if !ok {
			continue
		}
		texts = append(texts, text)
		schemas, foldedSchemas = append(schemas, n.schema.text), append(foldedSchemas, n.schema.folded())
		bases, foldedBases = append(bases, n.name.text), append(foldedBases, n.name.folded())
	}
	oids := map[string]uint32{}
	var (
		text string
		oid  uint32
	)
	rows, _ := db.Query(ctx, findNamed, texts, schemas, foldedSchemas, bases, foldedBases, c.Schema)
	if _, err := pgx.ForEachRow(rows, []any{&text, &oid}, func() error {
		oids[text] = oid
		return nil
	}); err != nil {
		return fmt.Errorf("find the tables of policies: %w", err)
	}
	known := map[uint32]*Table{}
	for _, t := range c.tables {
		known[t.OID] = t
	}
	var others []uint32
	for _, oid := range oids {
		if known[oid] == nil && !slices.Contains(others, oid) {
			others = append(others, oid)
		}
	}
	list, err := c.loadTables(ctx, db, relationsByOID, others)
	if err != nil {
		return err
	}
	for _, t := range list {
		known[t.OID] = t
	}
	for text, oid := range oids {
		if t := known[oid]; t == nil { // the table was dropped in the meantime
			continue
		} else if t.Kind == "" {
			c.named[text] = t
		} else {
			c.namedInPlace[text] = t
		}
	}
	return readColumns(ctx, db, c)
}

func readColumns(ctx context.Context, db Querier, c *Catalog) error {
	tables := map[uint32]*Table{}
	var oids []uint32
	for _, t := range c.named {
		tables[t.OID] = t
		oids = append(oids, t.OID)
	}
	// dependsOn is the condition that an index i depends on a column of the table of a, given by its number.
	const dependsOn = `(number = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
        OR (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL) AND EXISTS (SELECT FROM pg_depend d
          WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = a.attrelid AND d.refobjsubid = number))`
	const sql = `
WITH RECURSIVE below (root, oid) AS (
  SELECT oid, oid FROM unnest($1::oid[]) AS oid
  UNION
  SELECT below.root, i.inhrelid FROM below JOIN pg_inherits i ON i.inhparent = below.oid),
based (oid, base, filled) AS ( -- the columns' types, and the types of the elements of arrays
  SELECT DISTINCT atttypid, atttypid, false FROM pg_attribute
    WHERE attrelid = ANY ($1::oid[]) AND attnum > 0 AND NOT attisdropped
  UNION
  SELECT CASE WHEN t.typtype = 'd' THEN based.oid ELSE t.typelem END,
    CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END, t.typtype = 'd' AND (based.filled OR t.typnotnull)
  FROM based JOIN pg_type t ON t.oid = based.base AND (t.typtype = 'd' OR t.typcategory = 'A' AND t.typelem <> 0)),
ordered AS MATERIALIZED ( -- thousands of columns have a few types
  SELECT based.oid, based.base, based.filled, quote_ident(n.nspname) || '.' || quote_ident(t.typname) AS name,
    t.typcategory::text AS category, t.typelem AS element, class.opcfamily, class.opcintype, class.typtype
  FROM based JOIN pg_type t ON t.oid = based.base AND t.typtype <> 'd' JOIN pg_namespace n ON n.oid = t.typnamespace
    LEFT JOIN LATERAL (` + operatorClass + `) AS class ON true),
types AS MATERIALIZED (
  SELECT t.oid, t.base, t.filled, t.name, t.category,
    ARRAY(SELECT format('OPERATOR(%I.%s)', s.nspname, o.oprname)
      FROM pg_amop p JOIN pg_operator o ON o.oid = p.amopopr JOIN pg_namespace s ON s.oid = o.oprnamespace
      WHERE p.amopfamily = t.opcfamily AND p.amoplefttype = t.opcintype AND p.amoprighttype = t.opcintype
        AND p.amoppurpose = 's' AND sorts ORDER BY p.amopstrategy) AS operators,
    CASE WHEN sorts THEN concat_ws(' ', t.opcfamily, CASE WHEN t.typtype = 'p' THEN t.base END) ELSE '' END
      AS comparable
  FROM ordered AS t CROSS JOIN LATERAL (SELECT t.category <> 'A' OR EXISTS (
    SELECT FROM ordered AS e WHERE e.oid = t.element AND e.opcfamily IS NOT NULL)) AS elements (sorts))
SELECT a.attrelid, a.attnum, a.attname::text, t.name, format_type(a.atttypid, a.atttypmod), t.category,
  t.base IN ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype),
  t.base IN ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'name'::regtype)
    AND (SELECT collisdeterministic FROM pg_collation WHERE oid = a.attcollation),
  a.attnotnull OR t.filled,
  NOT a.attnotnull OR EXISTS (SELECT FROM pg_constraint k WHERE k.contype = 'n' AND k.conrelid = a.attrelid
    AND a.attnum = ANY (k.conkey) AND NOT k.convalidated),
  EXISTS (SELECT FROM pg_index i, unnest(a.attnum || generated.numbers) AS number
    WHERE i.indrelid = a.attrelid AND (i.indisunique OR i.indisexclusion) AND ` + dependsOn + `),
  EXISTS (SELECT FROM pg_index i, unnest(a.attnum || generated.numbers) AS number
    WHERE i.indrelid = a.attrelid AND (i.indisunique OR i.indisexclusion)
      AND (i.indisprimary OR (to_jsonb(i) ->> 'indnullsnotdistinct') = 'true'
        OR a.attnum <> ALL ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
      AND ` + dependsOn + `),
  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary
    AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])),
  EXISTS (SELECT FROM below JOIN pg_constraint k ON k.confrelid = below.oid AND k.contype = 'f'
    JOIN pg_attribute key ON key.attrelid = k.confrelid AND key.attnum = ANY (k.confkey)
    WHERE below.root = a.attrelid AND key.attname = a.attname),
  a.attgenerated <> '' OR a.attidentity = 'a',
  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum AND i.indisvalid
    AND i.indisready AND i.indpred IS NULL),
  COALESCE(has_column_privilege(a.attrelid, a.attnum, 'SELECT'), true),
  COALESCE(has_column_privilege(a.attrelid, a.attnum, 'UPDATE'), true),
  t.operators, t.comparable, ` + ColumnIdentity + `, generated.names
FROM pg_attribute a JOIN types t ON t.oid = a.atttypid
  CROSS JOIN LATERAL (
    SELECT COALESCE(array_agg(DISTINCT g.attnum), '{}') AS numbers,
      COALESCE(array_agg(DISTINCT g.attname::text), '{}') AS names
    FROM pg_depend d LEFT JOIN pg_attrdef e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
      JOIN pg_attribute g ON g.attrelid = a.attrelid AND g.attgenerated <> '' AND g.attnum <> a.attnum
        AND (g.attnum = e.adnum OR d.classid = 'pg_class'::regclass AND d.objid = g.attrelid AND d.objsubid = g.attnum)
    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum) AS generated
WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum`
	rows, _ := db.Query(ctx, sql, oids)
	var (
		oid    uint32
		column Column
	)
	scan := []any{
		&oid, &column.Number, &column.Name, &column.Type, &column.Full, &column.Kind, &column.IsDate, &column.Bytewise,
		&column.NotNull,
		&column.HasNulls, &column.Unique, &column.NullCollides, &column.Primary, &column.Referenced, &column.Generated,
		&column.Indexed, &column.CanSelect, &column.CanUpdate, &column.operators, &column.comparable, &column.Identity,
		&column.Generates,
	}
	if _, err := pgx.ForEachRow(rows, scan, func() error {
		column.operators = slices.Clone(column.operators)
		column.Generates = slices.Clone(column.Generates)
		tables[oid].details = append(tables[oid].details, column)
		return nil
	}); err != nil {
		return fmt.Errorf("read the columns: %w", err)
	}
	if err := readTriggers(ctx, db, tables); err != nil {
		return err
	}
	return readIndexes(ctx, db, tables, oids)
}

// SingleKey returns the only column of the primary key of a table that a policy names; ok is false if there is no
// such key, or if it is neither an integer nor a UUID.
func (t *Table) SingleKey() (key Column, ok bool) {
	for _, c := range t.details {
		if c.Primary && ok {
			return Column{}, false // there are several
		}
		if c.Primary {
			key, ok = c, true
		}
	}
	return key, ok && (t.HasInteger(key.Name) || key.Type == "pg_catalog.uuid")
}

// ShownKey returns the columns that identify a row in messages; nil if no key is known, or if the key has a text or
// another value that may be personal data.
func (t *Table) ShownKey() (columns []string) {
	if t.Key != "" {
		return []string{t.Key}
	}
	for _, c := range t.details {
		switch {
		case !c.Primary:
		case c.Type == "pg_catalog.uuid" || strings.Contains("BDEN", c.Kind): // booleans, dates, enums and numbers
			columns = append(columns, c.Name)
		default:
			return nil
		}
	}
	return columns
}

func readIndexes(ctx context.Context, db Querier, tables map[uint32]*Table, oids []uint32) error {
	const sql = `
SELECT i.indrelid, ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
  WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
WHERE i.indrelid = ANY ($1::oid[]) AND m.amname = 'btree' AND i.indisvalid AND i.indisready AND i.indpred IS NULL
  AND i.indexprs IS NULL`
	var (
		oid     uint32
		columns []string
	)
	rows, _ := db.Query(ctx, sql, oids)
	if _, err := pgx.ForEachRow(rows, []any{&oid, &columns}, func() error {
		tables[oid].indexes = append(tables[oid].indexes, slices.Clone(columns))
		return nil
	}); err != nil {
		return fmt.Errorf("read the indexes: %w", err)
	}
	return nil
}

// HasIndex reports whether an index finds the rows with given values in the columns equal, which may be in any
// order, sorted by the column ordered. Names are unquoted, and the table must be one that a policy names.
func (t *Table) HasIndex(equal []string, ordered string) bool {
	return slices.ContainsFunc(t.indexes, func(index []string) bool {
		if len(index) <= len(equal) || index[len(equal)] != ordered {
			return false
		}
		isFirst := func(column string) bool { return slices.Contains(index[:len(equal)], column) }
		return !slices.ContainsFunc(equal, func(column string) bool { return !isFirst(column) })
	})
}

func (t *Table) Column(name string) (c Column, ok bool) {
	stored, _ := t.stored(name)
	i := slices.IndexFunc(t.details, func(c Column) bool { return c.Name == stored })
	if i < 0 {
		return c, false
	}
	return t.details[i], true
}

// Details returns the columns of a table that a policy names; nil for other tables.
func (t *Table) Details() []Column { return t.details }

// All returns all tables, in no particular order.
func (c *Catalog) All() []*Table {
	tables := slices.Collect(maps.Values(c.tables))
	for _, t := range c.named {
		if !slices.Contains(tables, t) {
			tables = append(tables, t)
		}
	}
	return tables
}

// Find returns the table of a name that a user gave, with or without its schema, or the table that has a partition
// of that name in the application's schema. It returns nil if there is none.
func (c *Catalog) Find(text string) *Table {
	if t := c.Table(text); t != nil {
		return t
	}
	n, ok := parseTableName(text)
	if !ok {
		return nil
	}
	isIn := func(schema string) bool {
		if n.schema.text != "" {
			return slices.Contains(n.schema.candidates(), schema)
		}
		return schema == c.Schema || c.Schema == ""
	}
	for _, name := range n.name.candidates() {
		for _, t := range c.All() {
			isNamed := func(l Leaf) bool { return l.Name == name && isIn(l.Schema) }
			if (t.Name == name && isIn(t.Schema)) || slices.ContainsFunc(t.Leaves, isNamed) {
				return t
			}
		}
	}
	return nil
}
