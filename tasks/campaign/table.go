package campaign

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/flags"
)

// Table is an ordinary, partitioned or foreign table. Only InPlaceOf returns relations of other kinds.
type Table struct {
	OID    uint32
	Schema string
	Name   string // as stored: lower case in a Campaign database
	Kind   string // empty for a table; otherwise the kind of relation that has a table's name, such as a view
	Key    string // the integer column that identifies a row; empty if no single column does
	Rights
	Facts string
	// RowSecurity is set if row security of the table, or of a partition or child, may hide rows from the role.
	RowSecurity bool
	// RowSecurityAbove is set if row security of the table may hide rows that a query of a partition or child returns.
	RowSecurityAbove bool
	// HasChildren is set if some rows are in partitions or inheriting tables.
	HasChildren bool
	// Location says where the rows are if this server has no heap for them, such as Distributed; it is empty if all
	// are in heaps here.
	Location string
	// Leaves are the relations with the rows, ordered by name: the table itself, or its partitions at any depth.
	Leaves []Leaf
	// Ancestors are the unquoted names of the tables of which it is a partition or child, at any depth.
	Ancestors []string
	// OfLists is set if the column iGroupId is the id of a list, by a foreign key.
	OfLists bool
	// OfRecipients is set if another column than iRecipientId is the id of a recipient, by a foreign key.
	OfRecipients bool
	// Cascades are the foreign keys, in all schemas, that delete or change rows with rows of the table.
	Cascades []*Cascade
	// Refusals are the foreign keys that keep a row from being deleted while others refer to it: all to a table that
	// the scope names, for other tables only those between tables of the catalog.
	Refusals []*Cascade
	// ForeignKeys are the foreign keys of the table, and of its partitions and the tables that inherit from it, to tables
	// of the catalog. Keys with columns that the table lacks are in ChildKeys.
	ForeignKeys, ChildKeys []*Cascade
	// UpdateTriggers are the triggers of a table that the scope names, and of its partitions or children.
	UpdateTriggers []Trigger
	columns        []string
	// integers are the types of columns of integers: smallint, integer or bigint, also for a domain over it.
	integers   map[string]string
	localDates []string   // columns that are dates without a time zone
	keys       []string   // columns that each identify a row
	details    []Column   // the columns of a table that the scope names
	indexes    [][]string // the columns of each complete B-tree of such a table
	// hasZeroRecord is set if the row with key 0 is the zero record, as in a Campaign database.
	hasZeroRecord bool
}

// Rights are the role's rights on the rows of a relation.
type Rights struct {
	CanUse               bool // the relation's schema
	CanSelect, CanInsert bool // on at least one column; CanSelect also needs CanUse
	CanDelete, CanUpdate bool
}

// KeysTo returns the foreign keys of other tables that refer to the table.
func (t *Table) KeysTo() []*Cascade {
	return slices.DeleteFunc(slices.Concat(t.Cascades, t.Refusals), func(k *Cascade) bool { return k.Table == t })
}

// lowerName matches names that mean the same with and without quotes.
var lowerName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// FullName returns the name with the schema, as a policy may write it: in quotes only where these are needed.
func (t *Table) FullName() string { return FullName(t.Schema, t.Name) }

var quotedName = regexp.MustCompile(`^("(?:[^"]|"")+")\.("(?:[^"]|"")+")$`)

// SplitQuoted returns the parts of a table's name as Table.Quoted returns it; ok is false for another text.
func SplitQuoted(quoted string) (schema, name string, ok bool) {
	parts := quotedName.FindStringSubmatch(quoted)
	if parts == nil {
		return "", "", false
	}
	return flags.Unquote(parts[1]), flags.Unquote(parts[2]), true
}

// Names reports whether a text names a table: with its schema or without, each in quotes or not.
func Names(text, schema, name string) bool {
	n, ok := parseTableName(text)
	return text == name || text == schema+"."+name ||
		ok && n.name.text == name && (n.schema.text == schema || n.schema.text == "")
}

func FullName(schema, name string) string {
	if lowerName.MatchString(schema) && lowerName.MatchString(name) {
		return schema + "." + name
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

func (t *Table) Quoted() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// Has reports whether the table has all these columns, named as in the catalog or in the application's spelling.
func (t *Table) Has(columns ...string) bool { return len(t.Missing(columns...)) == 0 }

func (t *Table) HasInteger(column string) bool { return t.IntegerType(column) != "" }

// IntegerType returns smallint, integer or bigint for a column of that type or of a domain over it; empty for another.
func (t *Table) IntegerType(column string) string { return t.integers[t.Stored(column)] }

// HasZeroRecord reports whether the table has a zero record. All tables of a Campaign database that have a key do.
func (t *Table) HasZeroRecord() bool { return t.Key != "" && t.hasZeroRecord }

// stored returns the stored name of a column, which is its name in the catalog, and whether the table has the column.
// The column is given by that name or in the application's spelling.
func (t *Table) stored(column string) (name string, ok bool) {
	if slices.Contains(t.columns, column) {
		return column, true
	}
	name = strings.ToLower(column)
	return name, slices.Contains(t.columns, name)
}

// Stored returns the stored name of a column, given by that name or in the application's spelling.
func (t *Table) Stored(column string) string {
	name, _ := t.stored(column)
	return name
}

// plainName matches names that SQL accepts without quotes, in any case, unless they are reserved words.
var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsKey reports whether a unique index finds a row by a column, and by it alone.
func (t *Table) IsKey(column string) bool {
	inherited := t.HasChildren && slices.ContainsFunc(t.Leaves, func(l Leaf) bool { return l.OID == t.OID })
	return slices.Contains(t.keys, t.Stored(column)) && !inherited
}

// Spell returns a column's name for SQL. A name in the application's spelling stays as it is; a name as in the
// catalog is quoted.
func (t *Table) Spell(column string) string {
	stored, _ := t.stored(column)
	if stored != column && plainName.MatchString(column) {
		return column
	}
	return pgx.Identifier{stored}.Sanitize()
}

func (t *Table) Columns() []string { return t.columns }

func (t *Table) Missing(columns ...string) []string {
	var missing []string
	for _, c := range columns {
		if _, ok := t.stored(c); !ok {
			missing = append(missing, c)
		}
	}
	return missing
}

const materialized = "a materialized view"

// ShowsAllRows reports whether a query returns all current rows.
func (t *Table) ShowsAllRows() bool { return t.Kind != materialized && !t.RowSecurity }

// Unreadable returns the columns (unquoted names) that the role cannot read.
func (t *Table) Unreadable(ctx context.Context, db Querier, columns ...string) ([]string, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT attname::text FROM pg_attribute WHERE attrelid = $1 AND attname = ANY ($2) AND attnum > 0
			AND NOT attisdropped
		AND NOT has_column_privilege(attrelid, attnum, 'SELECT') ORDER BY attname`,
		t.OID, columns,
	)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (t *Table) Empty(ctx context.Context, db Querier) (bool, error) {
	var exists bool
	err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+t.Quoted()+")").Scan(&exists)
	return !exists, err
}
