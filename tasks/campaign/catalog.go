package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrNotCampaign says that the database has none of the tables that the cleanup knows.
var ErrNotCampaign = errors.New(
	"this is no Campaign database: none of the known tables was found; check the database's name, and that the role " +
		"may use the schema that holds NmsDelivery",
)

// knownTables are those that a cleanup run cleans or reads; a Campaign database has at least one of them.
var knownTables = []string{
	"xtkoption", "nmsgroup", "nmsrcpgrprel", "nmsdelivery", "nmsdeliverymapping", "nmsextaccount", "nmsdeliverypart",
	"nmsdlvexclusion", "nmscouponvalue", "nmsmirrorpageinfo", "nmsmirrorpagesearch", "nmsattachments",
	"nmstrackingurl", "nmsdeliverystat", "nmsdeliverylogstats", "nmsbroadlogrcp", "nmsexcludelogrcp",
	"nmsbroadlogmid", "nmsbroadlogmsg", "nmsprovidermsgid", "nmstrackinglogrcp", "nmswebtrackinglog",
	"nmstrackingstats", "xtkjob", "xtkjoblog", "xtkreject", "xtkworkflow", "xtkworkflowlog", "xtkworkflowtask",
	"xtkworkflowevent", "xtkworkflowlogin", "nmsvisitor", "nmsaddress", "nmsservice", "nmssubscription",
	"nmsmobileapp", "nmsappsubscriptionrcp", "nmsemailerrorstat", "nmsemailerror", "nmsmxdomain",
	"nmspropositionrcp", "nmspropositionvisitor", "nmssimulation", "xtksessioninfo", "xtkaudit", "nmsrtevent",
	"nmsbatchevent", "nmseventhisto", "nmsremahypothesis", "nmsremamatchrcp",
}

// Catalog is what the database's own catalog says about the Campaign tables at one moment.
type Catalog struct {
	// Schema is the schema that holds NmsDelivery, as stored (not quoted).
	Schema string
	// OtherSchemas are further schemas that hold known tables, which are not read.
	OtherSchemas []string
	// Role is the role the service is connected as, as stored.
	Role string
	// Version is the server's, as a number: 150004 is 15.4.
	Version int
	// Elsewhere is that of relations, by their object ids.
	Elsewhere map[uint32]string
	// Zone is that of dates without a time zone.
	Zone      Zone
	tables    map[string]*Table
	sequences map[string]sequence
	mapped    map[string][]string // what the delivery mappings name, by their columns
	unmapped  error               // why the mappings could not be read; nil: they were
}

// Table is an ordinary, partitioned or foreign table. A partition is not a Table of its own.
type Table struct {
	OID       uint32
	Schema    string
	Name      string // as stored: lower case in a Campaign database
	Key       string // the single integer column that identifies a row; empty if the table has no such column
	CanSelect bool   // at least some of its columns
	CanInsert bool   // into some
	CanDelete bool
	CanUpdate bool
	// RowSecurity says that policies may hide rows from this role.
	RowSecurity bool
	// HasChildren says that there are also rows in partitions or inheriting tables.
	HasChildren bool
	// Elsewhere says where rows of it are for which there is no heap here, such as Distributed; empty: all are here.
	Elsewhere string
	// Leaves are the relations that have its rows: it itself, or its partitions at any depth, ordered by name.
	Leaves []Leaf
	// OfLists says that a foreign key makes its column iGroupId the id of a list.
	OfLists bool
	// OfRecipients says that a foreign key makes another column than iRecipientId the id of a recipient.
	OfRecipients bool
	// Cascades are the foreign keys by which rows of other tables, of whatever schema, go with its own.
	Cascades []Cascade
	columns  []string
	integers []string // the columns of type int2, int4 or int8
	local    []string // the columns that are dates without a time zone
	keys     []string // all columns that identify a row by themselves, in the relations that have the rows
}

// Quoted is the table's name for an SQL statement, with its schema.
func (t *Table) Quoted() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// Has reports whether the table has all of these columns, written as Campaign writes them.
func (t *Table) Has(columns ...string) bool { return len(t.Missing(columns...)) == 0 }

// HasInteger reports whether the table has a column, and that is an integer.
func (t *Table) HasInteger(column string) bool {
	return slices.Contains(t.integers, strings.ToLower(column))
}

// Columns are the table's columns, as stored.
func (t *Table) Columns() []string { return t.columns }

// Missing returns those of the columns that the table does not have.
func (t *Table) Missing(columns ...string) []string {
	var missing []string
	for _, c := range columns {
		if !slices.Contains(t.columns, strings.ToLower(c)) {
			missing = append(missing, c)
		}
	}
	return missing
}

// findSchema ranks the schemas that hold known tables: NmsDelivery decides, then the search path, then the number.
const findSchema = `
SELECT n.nspname, bool_or(c.relname = 'nmsdelivery') AS holds_delivery, array_position(current_schemas(false),
  n.nspname) IS NOT NULL AS on_path
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = ANY ($1) AND c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\_%'
  AND n.nspname <> 'information_schema'
  AND has_schema_privilege(n.oid, 'USAGE')
GROUP BY n.nspname
ORDER BY holds_delivery DESC, array_position(current_schemas(false), n.nspname) NULLS LAST, count(*) DESC, n.nspname`

// selectTables reads the tables of a schema ($1), or some of any schema. The privileges on a table that is dropped
// meanwhile are NULL: the statement that needs it finds that it is gone.
const selectTables = `
SELECT c.oid, n.nspname::text, c.relname, c.relhassubclass, c.relpersistence = 'u',
  COALESCE(has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT'), true),
  COALESCE(has_any_column_privilege(c.oid, 'INSERT'), true), COALESCE(has_table_privilege(c.oid, 'DELETE'), true),
  COALESCE(has_table_privilege(c.oid, 'UPDATE'), true),
  row_security_active(c.oid), c.oid = ANY (ARRAY(SELECT k.conrelid FROM pg_constraint k
    JOIN pg_class p ON p.oid = k.confrelid
    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[1]
    WHERE k.contype = 'f' AND p.relname = 'nmsgroup' AND p.relnamespace = (SELECT oid FROM pg_namespace
      WHERE nspname = $1) AND cardinality(k.conkey) = 1 AND a.attname = 'igroupid')),
  c.oid = ANY (ARRAY(SELECT COALESCE(pg_partition_root(k.conrelid), k.conrelid) FROM pg_constraint k
    JOIN pg_class p ON p.oid = k.confrelid JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)
    WHERE k.contype = 'f' AND p.relname = 'nmsrecipient' AND p.relnamespace = (SELECT oid FROM pg_namespace
      WHERE nspname = $1) AND a.attname <> 'irecipientid')),
  ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)),
  ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND a.atttypid = 'timestamp'::regtype)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't' AND NOT c.relispartition`

// Which tables selectTables reads.
const (
	tablesOfSchema = " AND n.nspname = $1"
	tablesByOID    = " AND c.oid = ANY ($2::oid[])"
)

// LoadCatalog reads the catalog. Without any known table it fails with ErrNotCampaign.
func LoadCatalog(ctx context.Context, db Querier) (*Catalog, error) {
	schema, others, err := schemasOf(ctx, db)
	if err != nil {
		return nil, err
	}
	d, err := readDistribution(ctx, db)
	if err != nil {
		return nil, err
	}
	elsewhere, err := readElsewhere(ctx, db, d.relations)
	if err != nil {
		return nil, err
	}
	c := &Catalog{
		Schema:       schema,
		OtherSchemas: others,
		Elsewhere:    elsewhere,
		tables:       map[string]*Table{},
		sequences:    map[string]sequence{},
		mapped:       map[string][]string{},
	}
	list, err := c.loadTables(ctx, db, tablesOfSchema)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		c.tables[t.Name] = t
	}
	if err := db.QueryRow(ctx, "SELECT current_user::text, current_setting('server_version_num')::int").
		Scan(&c.Role, &c.Version); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	if err := c.readKeys(ctx, db, d); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, Querier) error{
		c.readSequences,
		c.readMappings,
		c.readCascades,
		c.readZone,
	} {
		if err := read(ctx, db); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// loadTables reads tables, with their leaves.
func (c *Catalog) loadTables(ctx context.Context, db Querier, which string, args ...any) (list []*Table, err error) {
	rows, err := db.Query(ctx, selectTables+which, append([]any{c.Schema}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		t := &Table{}
		unlogged := false
		if err := rows.Scan(
			&t.OID,
			&t.Schema,
			&t.Name,
			&t.HasChildren,
			&unlogged,
			&t.CanSelect,
			&t.CanInsert,
			&t.CanDelete,
			&t.CanUpdate,
			&t.RowSecurity,
			&t.OfLists,
			&t.OfRecipients,
			&t.columns,
			&t.integers,
			&t.local,
		); err != nil {
			return nil, fmt.Errorf("read the catalog: %w", err)
		}
		t.Elsewhere = c.Elsewhere[t.OID]
		t.Leaves = []Leaf{{t.OID, t.Schema, t.Name, t.Elsewhere, unlogged}}
		list = append(list, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	return list, c.readLeaves(ctx, db, list)
}

// schemasOf returns the schema to clean, and the others that hold known tables.
func schemasOf(ctx context.Context, db Querier) (schema string, others []string, err error) {
	type candidate struct {
		Name                  string
		HoldsDelivery, OnPath bool
	}
	rows, err := db.Query(ctx, findSchema, knownTables)
	if err != nil {
		return "", nil, fmt.Errorf("find the Campaign schema: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[candidate])
	if err != nil {
		return "", nil, fmt.Errorf("find the Campaign schema: %w", err)
	}
	if len(found) == 0 {
		return "", nil, ErrNotCampaign
	}
	best := found[0]
	if len(found) > 1 && !best.OnPath && found[1].HoldsDelivery == best.HoldsDelivery {
		return "", nil, fmt.Errorf(
			"%w: both schema %q and schema %q hold its tables; name one in the role's search_path",
			ErrNotCampaign,
			best.Name,
			found[1].Name,
		)
	}
	for _, other := range found[1:] {
		others = append(others, other.Name)
	}
	return best.Name, others, nil
}

// Table returns the table with a name as Campaign writes it (NmsDelivery), nil when there is none.
func (c *Catalog) Table(name string) *Table { return c.tables[strings.ToLower(name)] }

// Tables returns the tables of a kind, ordered by name.
func (c *Catalog) Tables(kind func(t *Table) bool) []*Table {
	var found []*Table
	for _, t := range c.tables {
		if kind(t) {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b *Table) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Unreadable returns those of the columns, stored as lower case, that the table has and the role may not read.
func (t *Table) Unreadable(ctx context.Context, db Querier, columns ...string) ([]string, error) {
	rows, err := db.Query(
		ctx,
		`SELECT attname::text FROM pg_attribute WHERE attrelid = $1 AND attname = ANY ($2) AND attnum > 0
			AND NOT attisdropped
		AND NOT has_column_privilege(attrelid, attnum, 'SELECT') ORDER BY attname`,
		t.OID,
		columns,
	)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Empty reports whether the table has no row at all.
func (t *Table) Empty(ctx context.Context, db Querier) (bool, error) {
	var any bool
	err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+t.Quoted()+")").Scan(&any)
	return !any, err
}
