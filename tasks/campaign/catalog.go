package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// ErrNotCampaign means that the database has none of the application's tables.
var ErrNotCampaign = failure.New(
	failure.Precondition,
	"this is not a Campaign database: none of the known tables was found; check the database's name, and that the role "+
		"may use the schema that holds NmsDelivery",
)

// knownTables are the tables that a run cleans or reads. A Campaign database has at least one of them.
var knownTables = []string{
	"xtkoption", "nmsgroup", "nmsrcpgrprel", "nmsdelivery", "nmsdeliverymapping", "nmsextaccount", "nmsdeliverypart",
	"nmsdlvexclusion", "nmscouponvalue", "nmsmirrorpageinfo", "nmsmirrorpagesearch", "nmsattachments", "nmstrackingurl",
	"nmsdeliverystat", "nmsdeliverylogstats", "nmsbroadlogrcp", "nmsexcludelogrcp", "nmsbroadlogmid", "nmsbroadlogmsg",
	"nmsprovidermsgid", "nmstrackinglogrcp", "nmswebtrackinglog", "nmstrackingstats", "xtkjob", "xtkjoblog",
	"xtkreject", "xtkworkflow", "xtkworkflowlog", "xtkworkflowtask", "xtkworkflowevent", "xtkworkflowlogin",
	"nmsvisitor", "nmsaddress", "nmsservice", "nmssubscription", "nmsmobileapp", "nmsappsubscriptionrcp",
	"nmsemailerrorstat", "nmsemailerror", "nmsmxdomain", "nmspropositionrcp", "nmspropositionvisitor", "nmssimulation",
	"xtksessioninfo", "xtkaudit", "nmsrtevent", "nmsbatchevent", "nmseventhisto", "nmsremahypothesis",
	"nmsremamatchrcp",
}

// Catalog is what PostgreSQL's catalog contained at one time.
type Catalog struct {
	// Schema is the unquoted name of the schema with NmsDelivery; empty if the database is not a Campaign database.
	Schema string
	// OtherSchemas are the unquoted names of other schemas with known tables, even if the role cannot use them. If the
	// scope says NoCampaign, they are all schemas with known tables. They are not read.
	OtherSchemas []string
	Role         string
	// Version is server_version_num, which is 150004 for 15.4.
	Version   int
	Publishes bool
	// Locations are the locations of relations, as in Table.Location, by object id.
	Locations map[uint32]string
	// Zone is the time zone of dates without one.
	Zone Zone
	// DeliveryLogs, ExclusionLogs and TrackingLogs return the tables that the delivery mappings name; the first also
	// NmsBroadLogMid. They fail if the mappings could not be read.
	DeliveryLogs, ExclusionLogs, TrackingLogs func() (Logs, error)
	// types are those of integers and of dates without a time zone, by object id: "bigint" also for a domain over it.
	types map[uint32]string
	// ofLists and ofRecipients are the tables with Table.OfLists and Table.OfRecipients.
	ofLists, ofRecipients []uint32
	tables                map[string]*Table
	inPlace               map[string]*Table // views, and partitions of other tables, that have the names of known tables
	// named and namedInPlace are like tables and inPlace, but have the relations that the scope names, by the scope's
	// names.
	named, namedInPlace map[string]*Table
	sequences           map[string]sequence
	mappings            map[string][]string // names of the application's schemas, by column of the delivery mappings
	mappingsErr         error
}

// findSchema ranks the schemas that hold known tables. Schemas that the role can use come first, then those with
// NmsDelivery, then those on the search path; after that the number of known tables decides.
const findSchema = `
SELECT n.nspname, bool_or(c.relname = 'nmsdelivery') AS holds_delivery, array_position(current_schemas(false),
  n.nspname) IS NOT NULL AS on_path, COALESCE(has_schema_privilege(n.oid, 'USAGE'), false)
  AS usable
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = ANY ($1) AND c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\_%'
  AND n.nspname <> 'information_schema'
GROUP BY n.oid, n.nspname
ORDER BY usable DESC, holds_delivery DESC, array_position(current_schemas(false), n.nspname) NULLS LAST, count(*) DESC,
  n.nspname`

// findTypes returns the types of integers and of dates without a time zone, and the domains over each at any depth.
const findTypes = `WITH RECURSIVE based (oid, base) AS (
  SELECT oid, oid FROM pg_type
    WHERE oid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'date'::regtype, 'timestamp'::regtype)
  UNION ALL
  SELECT d.oid, based.base FROM pg_type d JOIN based ON d.typtype = 'd' AND d.typbasetype = based.oid)
SELECT oid, format_type(base, NULL) FROM based`

// findReferring returns the tables with foreign keys to the lists and the recipients of a schema $1, and whether it is
// to lists.
const findReferring = `
SELECT CASE p.relname WHEN 'nmsgroup' THEN k.conrelid ELSE COALESCE(pg_partition_root(k.conrelid), k.conrelid)::oid END,
  p.relname = 'nmsgroup'
FROM pg_class p JOIN pg_constraint k ON k.confrelid = p.oid AND k.contype = 'f'
  JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)
  JOIN pg_attribute l ON l.attrelid = k.confrelid AND l.attnum = k.confkey[1]
WHERE p.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
  AND (p.relname = 'nmsgroup' AND cardinality(k.conkey) = 1 AND a.attname = 'igroupid' AND l.attname = 'igroupid'
    OR p.relname = 'nmsrecipient' AND a.attname <> 'irecipientid')`

// selectTables reads tables by the filter that follows. If a table is dropped at the same time, its privileges are
// NULL. They then count as granted, and the statement that reads the table fails.
const selectTables = `
SELECT c.oid, n.nspname::text, c.relname,
  ` + FactsSQL + `,
  CASE WHEN c.relkind = 'v' THEN 'a view' WHEN c.relkind = 'm' THEN '` + materialized + `'
    WHEN c.relispartition THEN concat('a partition of ', pg_partition_root(c.oid)::regclass) ELSE '' END,
  c.relhassubclass, c.relpersistence = 'u', c.relkind = 'p',
  COALESCE(has_schema_privilege(n.oid, 'USAGE'), true),
  COALESCE(has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT'), true),
  COALESCE(has_any_column_privilege(c.oid, 'INSERT'), true), COALESCE(has_table_privilege(c.oid, 'DELETE'), true),
  COALESCE(has_table_privilege(c.oid, 'UPDATE'), true),
  row_security_active(c.oid), EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid),
  ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum),
  ARRAY(SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relpersistence <> 't' AND `

const (
	anyTable        = "c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND "
	tablesOfSchema  = anyTable + "n.nspname = $1"
	tablesByOID     = anyTable + "c.oid = ANY ($1::oid[])"
	relationsByOID  = "c.oid = ANY ($1::oid[])"
	inPlaceOfTables = "(c.relkind IN ('v', 'm') OR c.relispartition) AND n.nspname = $1 AND (c.relname = ANY " +
		"($2::text[]) OR c.relname ~ '^nms(proposition|appsubscription)')"
)

// LoadCatalog reads the catalog. It fails with ErrNotCampaign if no known table exists, unless the scope says
// NoCampaign.
func LoadCatalog(ctx context.Context, db Querier, scope Scope) (*Catalog, error) {
	var (
		schema string
		others []string
		err    error
	)
	if scope.NoCampaign {
		var found []candidate
		found, err = candidates(ctx, db)
		others = names(found)
	} else {
		schema, others, err = schemasOf(ctx, db)
	}
	if err != nil {
		return nil, err
	}
	d, err := readDistribution(ctx, db)
	if err != nil {
		return nil, err
	}
	locations, err := readLocations(ctx, db, d.relations)
	if err != nil {
		return nil, err
	}
	c := &Catalog{
		Schema:       schema,
		OtherSchemas: others,
		Locations:    locations,
		types:        map[uint32]string{},
		tables:       map[string]*Table{},
		inPlace:      map[string]*Table{},
		named:        map[string]*Table{},
		namedInPlace: map[string]*Table{},
		sequences:    map[string]sequence{},
		mappings:     map[string][]string{},
	}
	c.DeliveryLogs = c.logTables(deliveryLogs, "nms:broadLogMid")
	c.ExclusionLogs, c.TrackingLogs = c.logTables(exclusionLogs), c.logTables(trackingLogs)
	if err := c.readTypes(ctx, db); err != nil {
		return nil, err
	}
	if err := c.readReferring(ctx, db); err != nil {
		return nil, err
	}
	list, err := c.loadTables(ctx, db, tablesOfSchema, c.Schema)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		c.tables[t.Name] = t
	}
	if err := readNamed(ctx, db, c, slices.Concat(scope.Named, scope.Held)); err != nil {
		return nil, err
	}
	const server = "SELECT current_user::text, current_setting('server_version_num')::int, " +
		"EXISTS (SELECT FROM pg_publication)"
	if err := db.QueryRow(ctx, server).Scan(&c.Role, &c.Version, &c.Publishes); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	if err := c.readKeys(ctx, db, d); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, Querier) error{
		c.readSequences, c.readMappings, c.readInPlace, c.readZone,
	} {
		if err := read(ctx, db); err != nil {
			return nil, err
		}
	}
	return c, c.readCascades(ctx, db, len(scope.Held) > 0)
}

func (c *Catalog) readTypes(ctx context.Context, db Querier) error {
	var (
		oid  uint32
		base string
	)
	rows, _ := db.Query(ctx, findTypes)
	if _, err := pgx.ForEachRow(rows, []any{&oid, &base}, func() error { c.types[oid] = base; return nil }); err != nil {
		return fmt.Errorf("read the types: %w", err)
	}
	return nil
}

func isInteger(base string) bool { return base == "smallint" || base == "integer" || base == "bigint" }

func (c *Catalog) readReferring(ctx context.Context, db Querier) error {
	if c.Schema == "" {
		return nil
	}
	var (
		oid     uint32
		toLists bool
	)
	rows, _ := db.Query(ctx, findReferring, c.Schema)
	if _, err := pgx.ForEachRow(rows, []any{&oid, &toLists}, func() error {
		if toLists {
			c.ofLists = append(c.ofLists, oid)
		} else {
			c.ofRecipients = append(c.ofRecipients, oid)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the foreign keys: %w", err)
	}
	return nil
}

func (c *Catalog) loadTables(ctx context.Context, db Querier, filter string, args ...any) (list []*Table, err error) {
	var heirs []*Table
	rows, _ := db.Query(ctx, selectTables+filter, args...)
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Table, error) {
		t := &Table{hasZeroRecord: c.Schema != "", integers: map[string]string{}}
		var (
			unlogged, partitioned, inherits bool
			types                           []uint32
		)
		if err := row.Scan(
			&t.OID, &t.Schema, &t.Name, &t.Facts, &t.Kind, &t.HasChildren, &unlogged, &partitioned, &t.CanUse,
			&t.CanSelect, &t.CanInsert, &t.CanDelete, &t.CanUpdate, &t.RowSecurity, &inherits, &t.columns,
			&types,
		); err != nil {
			return nil, err
		}
		t.OfLists, t.OfRecipients = slices.Contains(c.ofLists, t.OID), slices.Contains(c.ofRecipients, t.OID)
		for i, column := range t.columns {
			if base := c.types[types[i]]; isInteger(base) {
				t.integers[column] = base
			} else if base != "" {
				t.localDates = append(t.localDates, column)
			}
		}
		t.Location = c.Locations[t.OID]
		if inherits {
			heirs = append(heirs, t)
		}
		if !partitioned { // a partitioned table stores no rows
			t.Leaves = []Leaf{{
				OID:      t.OID,
				Schema:   t.Schema,
				Name:     t.Name,
				Location: t.Location,
				Unlogged: unlogged,
				Facts:    t.Facts,
				Rights:   t.Rights,
			}}
		}
		return t, nil
	})
	if err == nil {
		err = readAncestors(ctx, db, heirs)
	}
	if err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	return list, c.readLeaves(ctx, db, list)
}

func readAncestors(ctx context.Context, db Querier, heirs []*Table) error {
	if len(heirs) == 0 {
		return nil
	}
	tables, oids := map[uint32]*Table{}, []uint32{}
	for _, t := range heirs {
		tables[t.OID], oids = t, append(oids, t.OID)
	}
	const sql = `
WITH RECURSIVE up (heir, oid) AS (SELECT inhrelid, inhparent FROM pg_inherits WHERE inhrelid = ANY ($1::oid[])
  UNION SELECT up.heir, i.inhparent FROM pg_inherits i JOIN up ON i.inhrelid = up.oid)
SELECT up.heir, c.relname::text FROM up JOIN pg_class c USING (oid) ORDER BY 2`
	var (
		oid  uint32
		name string
	)
	rows, _ := db.Query(ctx, sql, oids)
	_, err := pgx.ForEachRow(rows, []any{&oid, &name}, func() error {
		tables[oid].Ancestors = append(tables[oid].Ancestors, name)
		return nil
	})
	return err
}

type candidate struct {
	Name                          string
	HoldsDelivery, OnPath, Usable bool
}

// candidates returns the schemas that hold known tables, the best one first.
func candidates(ctx context.Context, db Querier) ([]candidate, error) {
	rows, _ := db.Query(ctx, findSchema, knownTables)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[candidate])
	if err != nil {
		return nil, fmt.Errorf("find the Campaign schema: %w", err)
	}
	return found, nil
}

func names(found []candidate) (list []string) {
	for _, c := range found {
		list = append(list, c.Name)
	}
	return list
}

func schemasOf(ctx context.Context, db Querier) (schema string, others []string, err error) {
	found, err := candidates(ctx, db)
	if err != nil {
		return "", nil, err
	}
	if len(found) == 0 || !found[0].Usable {
		return "", nil, ErrNotCampaign
	}
	best := found[0]
	if len(found) > 1 && !best.OnPath && found[1].Usable && found[1].HoldsDelivery == best.HoldsDelivery {
		return "", nil, fmt.Errorf(
			"%w: both schema %q and schema %q hold its tables; name one in the role's search_path", ErrNotCampaign,
			best.Name, found[1].Name)
	}
	return best.Name, names(found[1:]), nil
}

func HasKnownTables(ctx context.Context, db Querier) (known bool, err error) {
	err = db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM ("+findSchema+") AS found WHERE usable)", knownTables).
		Scan(&known)
	return known, err
}

// Table returns a table by its name in the application's spelling, such as NmsDelivery, or as in the scope; nil if
// there is no such table.
func (c *Catalog) Table(name string) *Table {
	if t := c.named[name]; t != nil {
		return t
	}
	return c.tables[strings.ToLower(name)]
}

// InPlaceOf returns a view, or a partition of another table, that has the given name of a table. It may only be
// read. InPlaceOf returns nil if there is a table, or no relation, of that name.
func (c *Catalog) InPlaceOf(name string) *Table {
	if t := c.namedInPlace[name]; t != nil {
		return t
	}
	return c.inPlace[strings.ToLower(name)]
}

func (c *Catalog) DescribeMissing(name string) string {
	if t := c.InPlaceOf(name); t != nil {
		return fmt.Sprintf("%s is %s, not a table", name, t.Kind)
	}
	return fmt.Sprintf("table %s is missing", name)
}

// readInPlace reads views and partitions that have the names of known tables, of tables that the mappings name, or of
// tables of propositions or mobile subscriptions.
func (c *Catalog) readInPlace(ctx context.Context, db Querier) error {
	names := slices.Clone(knownTables)
	for _, schemas := range c.mappings {
		for _, schema := range schemas {
			if name, ok := TableName(schema); ok {
				names = append(names, name)
			}
		}
	}
	list, err := c.loadTables(ctx, db, inPlaceOfTables, c.Schema, names)
	if err != nil {
		return err
	}
	for _, t := range list {
		c.inPlace[t.Name] = t
	}
	if c.InPlaceOf("NmsDeliveryMapping") != nil {
		c.mappingsErr = fmt.Errorf("read the delivery mappings: %s", c.DescribeMissing("NmsDeliveryMapping"))
	}
	return nil
}

func (c *Catalog) Tables(kind func(t *Table) bool) []*Table { return filter(c.tables, kind) }

func (c *Catalog) InPlaceOfTables(kind func(t *Table) bool) []*Table { return filter(c.inPlace, kind) }

func filter(tables map[string]*Table, kind func(t *Table) bool) []*Table {
	var found []*Table
	for _, t := range tables {
		if kind(t) {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b *Table) int { return strings.Compare(a.Name, b.Name) })
	return found
}
