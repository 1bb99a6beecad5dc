package campaign

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// WorkTable is a table or view that was created for a workflow, a delivery, a list or a simulation.
type WorkTable struct {
	Schema string
	Name   string
	View   bool
	// ByFunction is set if the role may drop it only with DropFunction.
	ByFunction bool
	// Partitions are the unquoted names of its partitions, which are dropped with it.
	Partitions []string
	// Recipients is set for a table with a column iRecipientId, and RecipientTexts if that column has texts.
	Recipients, RecipientTexts bool
	// ID is the id of the workflow, delivery, list or simulation, taken from the name. The name has the unsigned form
	// of a negative id.
	ID int64
}

func (w WorkTable) Quoted() string { return pgx.Identifier{w.Schema, w.Name}.Sanitize() }

// unsignedIDs is the difference between the unsigned form of a negative 32-bit id and the id.
const unsignedIDs = 1 << 32

// workTableID matches an id and what follows it. An id has no leading zeros, so it is not 0.
var workTableID = regexp.MustCompile(`(?s)^([1-9][0-9]{0,9})([^0-9].*)?$`)

func ParseID(text string) (id int64, rest string, ok bool) {
	m := workTableID.FindStringSubmatch(text)
	if m == nil {
		return 0, "", false
	}
	id, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || id >= unsignedIDs {
		return 0, "", false
	}
	if id >= unsignedIDs/2 {
		id -= unsignedIDs
	}
	return id, m[2], true
}

// workTableName matches the names of work tables. These may look like any other table, since a workflow chooses
// their columns.
var workTableName = regexp.MustCompile(`^(wkf|wkdlv_|wksimu_|grp[0-9])`)

func LooksLikeWorkTable(name string) bool { return workTableName.MatchString(name) }

// WorkTableName returns the name of a work table. It has the unsigned form of the id.
func WorkTableName(prefix string, id int64) string {
	if id < 0 {
		id += unsignedIDs
	}
	return prefix + strconv.FormatInt(id, 10)
}

// workTableOwner returns the id in a work table's name. If bare is set, the name must end with the id; otherwise an
// underscore and more may follow.
func workTableOwner(name, prefix string, bare bool) (id int64, ok bool) {
	id, rest, ok := ParseID(strings.TrimPrefix(name, prefix))
	return id, ok && (rest == "" || (!bare && rest[0] == '_'))
}

func IsWorkTableName(name, prefix string, bare bool) bool {
	_, ok := workTableOwner(name, prefix, bare)
	return ok && strings.HasPrefix(name, prefix)
}

// These functions, which deploy/role.sql creates, act as the owner for a role that lacks its rights: they drop work
// tables, count their rows, move them to the trash and back, and insert rows from the trash into their table.
const (
	DropFunction    = "cleanupd.drop_work_tables"
	CountFunction   = "cleanupd.count_work_table"
	TrashFunction   = "cleanupd.trash_work_table"
	RestoreFunction = "cleanupd.restore_work_table"

	RestoreRowsFunction = "cleanupd.restore_rows"
)

// findRelations finds relations that belong to the owner of NmsDelivery, unless that is postgres. Views come before
// the tables that they depend on, and newer views before older ones, because they must be dropped first.
const findRelations = `
SELECT c.relname::text, c.relkind = 'v',
  NOT pg_has_role(c.relowner, 'USAGE') AND to_regprocedure('` + DropFunction + `(regclass[])') IS NOT NULL,
  CASE WHEN c.relkind = 'p' THEN ARRAY(
    SELECT p.relname::text FROM pg_partition_tree(c.oid) JOIN pg_class p ON p.oid = relid WHERE relid <> c.oid) END,
  c.relkind <> 'v' AND r.atttypid IS NOT NULL,
  COALESCE(r.atttypid NOT IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'numeric'::regtype,
    'real'::regtype, 'double precision'::regtype), false)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_attribute r ON r.attrelid = c.oid AND r.attname = 'irecipientid' AND NOT r.attisdropped
  JOIN pg_class d ON d.relnamespace = n.oid AND d.relname = 'nmsdelivery' AND d.relkind IN ('r', 'p')
WHERE n.nspname = $1 AND %s AND c.relkind IN ('r', 'p', 'v') AND c.relpersistence <> 't' AND NOT c.relispartition
  AND c.relowner = d.relowner AND pg_get_userbyid(c.relowner) <> 'postgres'
ORDER BY c.relkind = 'v' DESC, CASE WHEN c.relkind = 'v' THEN c.oid END DESC, c.relname`

// WorkTables returns the work tables with a prefix. If bare is set, their names end with the id; otherwise an
// underscore and more may follow. strange are the other names with the prefix.
func (c *Catalog) WorkTables(
	ctx context.Context, db Querier, prefix string, bare bool,
) (found []WorkTable, strange []string, err error) {
	all, err := c.findOwned(ctx, db, "c.relname LIKE $2", strings.ReplaceAll(prefix, "_", `\_`)+"%")
	if err != nil {
		return nil, nil, err
	}
	for _, w := range all {
		var ok bool
		if w.ID, ok = workTableOwner(w.Name, prefix, bare); !ok {
			strange = append(strange, w.Name)
			continue
		}
		found = append(found, w)
	}
	slices.Sort(strange)
	return found, strange, nil
}

// OtherWorkTable is a work table that is not dropped because of its owner, kind or schema.
type OtherWorkTable struct {
	WorkTable
	Owner string
	Kind  string // which kind it is, such as "a foreign table"; empty for a table or a view
}

// findOtherRelations finds what findRelations leaves out, and the owner of NmsDelivery. It leaves out partitions of
// a work table, since they are dropped with it.
const findOtherRelations = `
SELECT n.nspname::text, c.relname::text, c.relkind = 'v', pg_get_userbyid(c.relowner)::text,
  CASE WHEN c.relkind = 'm' THEN 'a materialized view' WHEN c.relkind = 'f' THEN 'a foreign table'
    WHEN c.relispartition THEN 'a partition of another table' ELSE '' END, pg_get_userbyid(d.relowner)::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_class d JOIN pg_namespace h ON h.oid = d.relnamespace
WHERE h.nspname = $1 AND d.relname = 'nmsdelivery' AND d.relkind IN ('r', 'p') AND c.relname LIKE $2
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\_%'
    AND n.nspname NOT IN ('information_schema', 'cleanupd', 'cleanupd_trash')
  AND (NOT c.relispartition OR NOT EXISTS (SELECT FROM pg_class r WHERE r.oid = pg_partition_root(c.oid)
    AND r.relname LIKE $2))
  AND (n.oid <> h.oid OR c.relkind IN ('m', 'f') OR c.relispartition OR c.relowner <> d.relowner
    OR pg_get_userbyid(c.relowner) = 'postgres')
ORDER BY n.oid <> h.oid, 1, 2`

// OtherWorkTables returns the relations that WorkTables leaves out: those of other owners or of the superuser
// postgres, of other kinds, or in other schemas. owner is the role that owns NmsDelivery.
func (c *Catalog) OtherWorkTables(
	ctx context.Context, db Querier, prefix string, bare bool,
) (others []OtherWorkTable, owner string, err error) {
	rows, _ := db.Query(ctx, findOtherRelations, c.Schema, strings.ReplaceAll(prefix, "_", `\_`)+"%")
	var w OtherWorkTable
	_, err = pgx.ForEachRow(rows, []any{&w.Schema, &w.Name, &w.View, &w.Owner, &w.Kind, &owner}, func() error {
		var ok bool
		if w.ID, ok = workTableOwner(w.Name, prefix, bare); ok {
			others = append(others, w)
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("list the work tables of others: %w", err)
	}
	return others, owner, nil
}

func (c *Catalog) WorkTablesOf(ctx context.Context, db Querier, prefix string, ids []int64) ([]WorkTable, error) {
	names, byName := make([]string, len(ids)), map[string]int64{}
	for i, id := range ids {
		names[i] = WorkTableName(prefix, id)
		byName[names[i]] = id
	}
	found, err := c.findOwned(ctx, db, "c.relname = ANY ($2)", names)
	for i := range found {
		found[i].ID = byName[found[i].Name]
	}
	return found, err
}

func (c *Catalog) findOwned(ctx context.Context, db Querier, named string, argument any) ([]WorkTable, error) {
	rows, _ := db.Query(ctx, fmt.Sprintf(findRelations, named), c.Schema, argument)
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w WorkTable, err error) {
		w.Schema = c.Schema
		return w, row.Scan(&w.Name, &w.View, &w.ByFunction, &w.Partitions, &w.Recipients, &w.RecipientTexts)
	})
	if err != nil {
		return nil, fmt.Errorf("list the work tables: %w", err)
	}
	return found, nil
}

// ListIDs returns the ids of the lists whose data the work table may have. In its name they follow _grp, at the end
// or before an underscore.
func (w WorkTable) ListIDs() (ids []int64) {
	for _, part := range strings.Split(w.Name, "_grp")[1:] {
		if id, rest, ok := ParseID(part); ok && (rest == "" || rest[0] == '_') {
			ids = append(ids, id)
		}
	}
	return ids
}
