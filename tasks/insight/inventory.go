package insight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Table is a table of the application, with its partitions, or all work tables of a kind.
type Table struct {
	// Name has the schema and is quoted where needed: shop.orders, shop."Order Lines". For work tables it is a pattern
	// for LIKE: public.wkf%.
	Name string
	// OID is 0 for work tables.
	OID          uint32
	Schema, Base string // stored names
	Kind         TableKind
	Figures
	Relations []Relation
	// Members are the figures of the single work tables of a kind, by stored names.
	Members map[string]Figures
}

func (t *Table) Quoted() string { return pgx.Identifier{t.Schema, t.Base}.Sanitize() }

type Inventory struct {
	// Tables are sorted by name.
	Tables []*Table
}

type Mask struct {
	Prefix string
	Bare   bool
}

func Masks(tasks []rules.Task) (masks []Mask) {
	add := func(w rules.WorkTables) {
		if m := (Mask{w.Prefix, w.Bare}); !slices.Contains(masks, m) {
			masks = append(masks, m)
		}
	}
	for _, t := range tasks {
		for _, d := range t.Drops {
			add(d)
		}
	}
	return masks
}

// ofApplication is the name of the table by which the application's schema is recognized. Only that schema has work
// tables.
const ofApplication = "nmsdelivery"

func group(tables []named, relations []Relation, masks []Mask) *Inventory {
	schemas := map[string]bool{}
	for _, t := range tables {
		if t.Name == ofApplication && (t.Kind == "r" || t.Kind == "p") {
			schemas[t.Schema] = true
		}
	}
	byOID, byName, list := make(map[uint32]*Table, len(tables)), map[string]*Table{}, []*Table{}
	members := map[uint32]string{}
	for _, n := range tables {
		t := &Table{Name: n.Quoted, OID: n.OID, Schema: n.Schema, Base: n.Name, Kind: kinds[n.Kind]}
		if schemas[n.Schema] {
			if m, ok := maskOf(n.Name, masks); ok {
				t.Base = cleanup.WorkTableMask(m.Prefix)
				t.Name = strings.TrimSuffix(n.Quoted, quotedPart(n)) + t.Base
				t.OID, t.Kind, t.Members = 0, WorkTables, map[string]Figures{}
				members[n.OID] = n.Name
			}
		}
		if known := byName[t.Name]; known != nil {
			t = known
		} else {
			byName[t.Name], list = t, append(list, t)
		}
		byOID[n.OID] = t
	}
	for _, r := range relations {
		t := byOID[r.Root]
		if t == nil { // a table that was created since the tables were listed, or a partition of a table of the service
			continue
		}
		t.Relations, t.Figures = append(t.Relations, r), t.plus(r.Figures)
		if name, ok := members[r.Root]; ok {
			t.Members[name] = t.Members[name].plus(r.Figures)
		}
	}
	slices.SortFunc(list, func(a, b *Table) int { return strings.Compare(a.Name, b.Name) })
	return &Inventory{list}
}

func maskOf(name string, masks []Mask) (Mask, bool) {
	for _, m := range masks {
		if campaign.IsWorkTableName(name, m.Prefix, m.Bare) {
			return m, true
		}
	}
	return Mask{}, false
}

// quotedPart returns the table's part, at the end of n's quoted name.
func quotedPart(n named) string {
	for _, part := range []string{n.Name, pgx.Identifier{n.Name}.Sanitize()} {
		if strings.HasSuffix(n.Quoted, "."+part) {
			return part
		}
	}
	return ""
}

type Details struct {
	// DeadBytes is the space that VACUUM would free, and FreeBytes the space for new rows; nil if unknown.
	DeadBytes, FreeBytes *int64
	Dates                []DateColumn
	ReferencedBy         []ForeignKey
}

type ForeignKey struct {
	Name string
	// Table is the table that has the key, with its schema and quoted where needed. Columns are stored names.
	Table   string
	Columns []string
	// OnDelete is NO ACTION, RESTRICT, CASCADE, SET NULL or SET DEFAULT, or NOT ENFORCED if the key does nothing.
	OnDelete string
}

func ReadDetails(ctx context.Context, pool *pgxpool.Pool, tables []*Table) ([]Details, error) {
	r := reader{pool: pool, tables: tables, details: make([]Details, len(tables))}
	for i, t := range tables {
		for _, leaf := range t.Relations {
			r.positions, r.leaves = append(r.positions, int32(i)), append(r.leaves, leaf.OID)
		}
		r.oids = append(r.oids, t.OID)
	}
	for _, read := range []func(context.Context) error{r.readSpace, r.readForeignKeys, r.readDates} {
		if err := read(ctx); err != nil {
			return nil, fmt.Errorf("read the details of tables: %w", err)
		}
	}
	return r.details, nil
}

type reader struct {
	pool    *pgxpool.Pool
	tables  []*Table
	details []Details
	// oids are the object ids of the tables; 0 for work tables.
	oids []uint32
	// leaves are the relations that store rows. positions are the indexes of their tables in tables.
	positions []int32
	leaves    []uint32
}

// settings keep the reader from waiting long for a lock, and from making others wait.
const settings = "SET LOCAL lock_timeout = '50ms'; SET LOCAL statement_timeout = '%dms'"

// within runs statements in a transaction, each limited to some milliseconds. done is false if the server refuses
// one or it takes longer.
func (r *reader) within(ctx context.Context, milliseconds int, read func(tx pgx.Tx) error) (done bool, err error) {
	err = pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(settings, milliseconds)); err != nil {
			return err
		}
		return read(tx)
	})
	if sqlstate.Of(err) != "" && !sqlstate.Lost(err) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// selectSpace returns the dead and the free space, by the positions of tables ($1) and the relations with their
// rows ($2). The width of a row comes from the statistics of its columns.
const selectSpace = `
SELECT position, sum(least(dead * width, heap))::bigint,
  sum(greatest(heap - (least(dead * width, heap) + live * width), 0))::bigint
FROM (SELECT u.position, c.relpages * (current_setting('block_size')::numeric - 24) AS heap,
    pg_stat_get_dead_tuples(c.oid) AS dead,
    COALESCE(NULLIF(pg_stat_get_live_tuples(c.oid), 0), greatest(c.reltuples, 0)::bigint) AS live, w.width
  FROM unnest($1::int[], $2::oid[]) AS u (position, leaf) JOIN pg_class c ON c.oid = u.leaf
    JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (SELECT 4 + ceil((24 + sum(s.avg_width * (1 - s.null_frac))) / 8) * 8 AS width FROM pg_stats s
      WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND NOT s.inherited) AS w
  WHERE c.relkind IN ('r', 'm') AND w.width IS NOT NULL) AS m
GROUP BY position`

func (r *reader) readSpace(ctx context.Context) error {
	_, err := r.within(ctx, 2000, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, selectSpace, r.positions, r.leaves)
		var (
			position   int
			dead, free int64
		)
		_, err := pgx.ForEachRow(rows, []any{&position, &dead, &free}, func() error {
			dead, free := dead, free
			r.details[position].DeadBytes, r.details[position].FreeBytes = &dead, &free
			return nil
		})
		return err
	})
	return err
}

// selectForeignKeys returns the foreign keys that refer to the tables $1, without their copies in partitions.
const selectForeignKeys = `
SELECT t.position - 1, k.conname::text, quote_ident(n.nspname) || '.' || quote_ident(c.relname),
  ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (n, i)
    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.i),
  CASE WHEN NOT (` + sqlexpr.Enforced + `) THEN 'NOT ENFORCED' ELSE CASE k.confdeltype WHEN 'r' THEN 'RESTRICT'
    WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT' ELSE 'NO ACTION' END END
FROM unnest($1::oid[]) WITH ORDINALITY AS t (oid, position) JOIN pg_constraint k ON k.confrelid = t.oid
  JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conparentid = 0
ORDER BY 3, 2`

func (r *reader) readForeignKeys(ctx context.Context) error {
	rows, _ := r.pool.Query(ctx, selectForeignKeys, r.oids)
	var (
		position int
		key      ForeignKey
	)
	_, err := pgx.ForEachRow(rows, []any{&position, &key.Name, &key.Table, &key.Columns, &key.OnDelete}, func() error {
		d := &r.details[position]
		d.ReferencedBy = append(d.ReferencedBy, key)
		key.Columns = nil
		return nil
	})
	return err
}

// DateSource is where the oldest and the newest value of a column come from.
type DateSource string

const (
	// A value FromIndex is exact. A value FromStatistics is a bound that the last ANALYZE saw.
	FromIndex      DateSource = "INDEX"
	FromStatistics DateSource = "STATISTICS"
)

// DateColumn is a column of type date, timestamp or timestamptz, or of a domain over one.
type DateColumn struct {
	Column string // the stored name
	IsDay  bool   // whether it is a date without a time
	// Indexed is true if an index begins with it.
	Indexed bool
	// IsKey is true if ranges of it are the table's partitions, so that runs read only some of them.
	IsKey bool
	// Oldest and Newest are nil if neither an index nor the statistics have them.
	Oldest, Newest *time.Time
	Source         DateSource
	// Hidden is true if the role may not read the column.
	Hidden bool

	quoted   string
	readable bool // whether an index on the column may be read
}

// dateTypes is a subquery for the types of dates, the domains over them at any depth, and the types below these.
const dateTypes = `(WITH RECURSIVE dates (oid, base) AS (
    SELECT oid, oid FROM unnest('{date,timestamp,timestamptz}'::regtype[]::oid[]) AS oid
    UNION ALL SELECT d.oid, dates.base FROM pg_type d JOIN dates ON d.typtype = 'd' AND d.typbasetype = dates.oid)
  SELECT oid, base FROM dates)`

// finite is true if a timestamp can have the date v, in any time zone.
const finite = "v BETWEEN date '4713-01-01 BC' AND date '294276-01-01'"

// selectDates returns the columns with dates of the tables $1. An index is read only if the owner of the table is
// trusted, since an owner can run code with the rights of a role that plans a query on the table. Trusted are
// superusers, the owners of the database and of NmsDelivery, and the roles that this role may act as.
const selectDates = `
SELECT t.position - 1, a.attname::text, d.base = 'date'::regtype, quote_ident(a.attname), i.indexed,
  EXISTS (SELECT FROM pg_partitioned_table p
    WHERE p.partrelid = c.oid AND p.partstrat = 'r' AND p.partattrs[0] = a.attnum),
  NOT has_column_privilege(c.oid, a.attnum, 'SELECT'),
  i.indexed AND c.relkind <> 'f' AND NOT row_security_active(c.oid) AND has_schema_privilege(c.relnamespace, 'USAGE')
    AND has_column_privilege(c.oid, a.attnum, 'SELECT')
    AND (pg_has_role(c.relowner, 'USAGE') OR (SELECT rolsuper FROM pg_roles r WHERE r.oid = c.relowner)
      OR c.relowner IN (SELECT datdba FROM pg_database WHERE datname = current_database()
        UNION ALL SELECT d.relowner FROM pg_class d WHERE d.relname = '` + ofApplication + `'
          AND d.relkind IN ('r', 'p')))
FROM unnest($1::oid[]) WITH ORDINALITY AS t (oid, position) JOIN pg_class c ON c.oid = t.oid
  JOIN pg_attribute a ON a.attrelid = c.oid JOIN ` + dateTypes + ` AS d ON d.oid = a.atttypid
  CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pg_index x JOIN pg_class ic ON ic.oid = x.indexrelid
    JOIN pg_am m ON m.oid = ic.relam AND m.amname = 'btree'
    WHERE x.indrelid = a.attrelid AND x.indkey[0] = a.attnum AND x.indisvalid AND x.indpred IS NULL) AS indexed) AS i
WHERE a.attnum > 0 AND NOT a.attisdropped
ORDER BY 1, a.attnum`

// selectBounds returns the bounds of dates, by the positions of tables ($1) and the relations with their rows ($2). The
// statistics of a partitioned table ($3) serve a role that has no rights to its partitions. The CASE repeats the
// conditions of the join, because the planner may read the bounds of columns of other types before it joins.
var selectBounds = `
SELECT u.position, a.attname::text, min(b.oldest), max(b.newest)
FROM (SELECT * FROM unnest($1::int[], $2::oid[])
    UNION SELECT position::int - 1, oid FROM unnest($3::oid[]) WITH ORDINALITY AS t (oid, position)
  ) AS u (position, leaf)
  JOIN pg_class c ON c.oid = u.leaf
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN ` + dateTypes + ` AS d ON d.oid = a.atttypid
  JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname
    AND s.inherited = (c.relkind = 'p')
  CROSS JOIN LATERAL (SELECT min(v) AS oldest, max(v) AS newest FROM (
    ` + boundsOf("date") + ` UNION ALL ` + boundsOf("timestamp") + ` UNION ALL ` + boundsOf("timestamptz") + `
  ) AS v (v)) AS b
WHERE b.oldest IS NOT NULL
GROUP BY u.position, a.attname`

// boundsOf returns the SELECT for dates of one type. s are the statistics of column a.
func boundsOf(dateType string) string {
	return fmt.Sprintf(
		`SELECT %[3]s FROM unnest(CASE WHEN d.base = '%[1]s'::regtype AND d.oid = a.atttypid AND a.attname =
			s.attname
      THEN COALESCE(s.histogram_bounds::text::%[1]s[], '{}') || COALESCE(s.most_common_vals::text::%[1]s[], '{}')
      END) AS v WHERE %[2]s`,
		dateType,
		finite,
		campaign.Shown("v"),
	)
}

// indexTimeout limits reading the indexes of one table, in milliseconds, and indexesTimeout those of all tables of
// a page. Tests set them, since a busy machine takes longer for what is quick.
var (
	indexTimeout   = 200
	indexesTimeout = 2 * time.Second
)

// Indexes of tables with more partitions are not read.
const maxPartitions = 100

func (r *reader) readDates(ctx context.Context) error {
	rows, _ := r.pool.Query(ctx, selectDates, r.oids)
	var (
		position int
		c        DateColumn
	)
	columns := []any{&position, &c.Column, &c.IsDay, &c.quoted, &c.Indexed, &c.IsKey, &c.Hidden, &c.readable}
	if _, err := pgx.ForEachRow(rows, columns, func() error {
		d := &r.details[position]
		d.Dates = append(d.Dates, c)
		return nil
	}); err != nil {
		return err
	}
	if err := r.readBounds(ctx); err != nil {
		return err
	}
	deadline := time.Now().Add(indexesTimeout)
	for i, t := range r.tables {
		if len(t.Relations) > maxPartitions || time.Now().After(deadline) {
			continue
		}
		if err := r.readIndexes(ctx, t.Name, &r.details[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) readBounds(ctx context.Context) error {
	_, err := r.within(ctx, 2000, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, selectBounds, r.positions, r.leaves, r.oids)
		var (
			position       int
			column         string
			oldest, newest time.Time
		)
		_, err := pgx.ForEachRow(rows, []any{&position, &column, &oldest, &newest}, func() error {
			oldest, newest := oldest, newest
			r.details[position].setDates(column, &oldest, &newest, FromStatistics)
			return nil
		})
		return err
	})
	return err
}

func (d *Details) setDates(column string, oldest, newest *time.Time, from DateSource) {
	i := slices.IndexFunc(d.Dates, func(c DateColumn) bool { return c.Column == column })
	if i >= 0 {
		d.Dates[i].Oldest, d.Dates[i].Newest, d.Dates[i].Source = oldest, newest, from
	}
}

// readIndexes reads the oldest and newest values of dates, which are at the ends of an index.
func (r *reader) readIndexes(ctx context.Context, table string, d *Details) error {
	var selected, names []string
	for _, c := range d.Dates {
		if !c.readable {
			continue
		}
		names = append(names, c.Column)
		for _, end := range []string{"min", "max"} {
			selected = append(selected,
				fmt.Sprintf("(SELECT CASE WHEN %s THEN %s END FROM (SELECT %s(%s) FROM %s) AS e (v))",
					finite, campaign.Shown("v"), end, c.quoted, table))
		}
	}
	if names == nil {
		return nil
	}
	ends, scanned := make([]*time.Time, len(selected)), make([]any, len(selected))
	for i := range ends {
		scanned[i] = &ends[i]
	}
	done, err := r.within(ctx, indexTimeout, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT "+strings.Join(selected, ", ")).Scan(scanned...)
	})
	if err != nil || !done {
		return err
	}
	for i, name := range names {
		if oldest, newest := ends[2*i], ends[2*i+1]; oldest != nil && newest != nil {
			d.setDates(name, oldest, newest, FromIndex)
		}
	}
	return nil
}
