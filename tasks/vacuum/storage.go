package vacuum

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

type Storage struct {
	OID          uint32
	Schema, Name string
	// Parent is set for a partitioned table, whose rows are in its partitions.
	Parent bool
}

func (s Storage) Quoted() string { return pgx.Identifier{s.Schema, s.Name}.Sanitize() }

// storages returns tables of the application's schema $1 and the service's own, and emptied tables ($3). If $2 is
// set, it returns those that the role may vacuum, as their owner or, since PostgreSQL 17, by a grant; otherwise the
// others. Emptied tables come first, in their order, and parents after their partitions. Unless $4 is set, it
// returns only the emptied tables and their parents. Parents of foreign tables are left out, since ANALYZE would
// read these from their server. Nothing in this query waits for a lock, as pg_partition_tree would.
const storages = `
WITH emptied AS (SELECT to_regclass(name)::oid AS oid, place
  FROM unnest($3::text[]) WITH ORDINALITY AS given (name, place)),
tree AS (SELECT oid FROM emptied UNION SELECT a.relid FROM emptied, pg_partition_ancestors(emptied.oid) a)
SELECT c.oid, n.nspname, c.relname, c.relkind = 'p' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT
  JOIN emptied ON emptied.oid = c.oid
WHERE (n.nspname IN ($1, 'cleanupd') OR c.oid IN (SELECT oid FROM tree)) AND c.relkind IN ('r', 'm', 'p') AND
	c.relpersistence <> 't'
  AND (pg_has_role(c.relowner, 'USAGE') OR CASE WHEN current_setting('server_version_num')::int >= 170000
    THEN has_table_privilege(c.oid, 'MAINTAIN') END IS TRUE) = $2
  AND NOT EXISTS (SELECT FROM pg_class f, pg_partition_ancestors(f.oid) a WHERE f.relkind = 'f' AND a.relid = c.oid)
  AND ($4 OR c.oid IN (SELECT oid FROM tree))
ORDER BY CASE c.relkind WHEN 'p' THEN (SELECT count(*)
  FROM pg_partition_ancestors(c.oid)) END DESC NULLS FIRST, emptied.place, n.nspname, c.relname`

// All returns all tables that the role may vacuum, the emptied ones first. others is how many belong to other
// roles.
func All(
	ctx context.Context, db campaign.Querier, schema string, emptied []string,
) (own []Storage, others int, err error) {
	if own, err = list(ctx, db, schema, true, emptied, true); err != nil {
		return nil, 0, err
	}
	foreign, err := list(ctx, db, schema, false, nil, true)
	return own, len(foreign), err
}

// Emptied returns the emptied tables, given by their quoted names, and their parents, without those that the role
// may not vacuum.
func Emptied(ctx context.Context, db campaign.Querier, schema string, emptied []string) ([]Storage, error) {
	return list(ctx, db, schema, true, emptied, false)
}

func list(
	ctx context.Context, db campaign.Querier, schema string, own bool, emptied []string, all bool,
) ([]Storage, error) {
	rows, _ := db.Query(ctx, storages, schema, own, emptied, all)
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Storage])
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return tables, nil
}

type Commander struct {
	Catalog *campaign.Catalog
	// Mode is the mode of the option XtkCleanup_NoStats, as campaign.Options.Statistics returns it.
	Mode int
	// Truncate lets VACUUM return free space at the end of a table to the file system, for which it locks the table
	// exclusively.
	Truncate bool
}

// Command returns the command for a table, without its name. VACUUM of a parent would vacuum its partitions again,
// and so would ANALYZE before PostgreSQL 18. A parent needs ANALYZE, since autovacuum never analyzes parents. Citus
// does not forward an ANALYZE with SKIP_LOCKED.
func (c Commander) Command(s Storage) string {
	analyze := s.Parent || c.Mode == campaign.AnalyzeOnly
	switch {
	case analyze && c.Catalog.Locations[s.OID] == campaign.Distributed:
		return "ANALYZE (VERBOSE)"
	case s.Parent && c.Catalog.Version >= 180_000:
		return "ANALYZE (VERBOSE, SKIP_LOCKED) ONLY"
	case analyze:
		return "ANALYZE (VERBOSE, SKIP_LOCKED)"
	case c.Truncate:
		return "VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED)"
	}
	return "VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED, TRUNCATE false)"
}

type Group struct {
	Command string
	Tables  []Storage
}

func (c Commander) Groups(tables []Storage) (groups []Group) {
	byCommand := map[string][]Storage{}
	for _, s := range tables {
		command := c.Command(s)
		byCommand[command] = append(byCommand[command], s)
	}
	for _, command := range slices.Sorted(maps.Keys(byCommand)) {
		groups = append(groups, Group{command, byCommand[command]})
	}
	return groups
}
