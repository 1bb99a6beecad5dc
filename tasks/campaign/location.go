package campaign

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// These are values of Table.Location. For a table with another access method than heap, the method follows
// storedBy.
const (
	Foreign     = "in a foreign table"
	Distributed = "distributed by Citus"
	storedBy    = "stored by the access method "
)

// distribution has the tables that Citus distributes, and the number of the distribution column of each; 0 if it has
// none.
type distribution struct {
	relations []uint32
	columns   []int16
}

// readDistribution reads which tables Citus distributes. On its coordinator, the catalog shows them as ordinary,
// empty tables.
func readDistribution(ctx context.Context, db Querier) (d distribution, err error) {
	var installed bool
	if err := db.QueryRow(ctx, "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL").
		Scan(&installed); err != nil ||
		!installed {
		return distribution{[]uint32{}, []int16{}}, err
	}
	err = db.QueryRow(ctx, `
SELECT COALESCE(array_agg(p.logicalrelid::oid), '{}'), COALESCE(array_agg(COALESCE(a.attnum, 0)), '{}')
FROM pg_catalog.pg_dist_partition AS p LEFT JOIN pg_attribute AS a
  ON a.attrelid = p.logicalrelid AND p.partkey IS NOT NULL
    AND a.attname = pg_catalog.column_to_column_name(p.logicalrelid, p.partkey)`).Scan(&d.relations, &d.columns)
	if err != nil {
		return d, fmt.Errorf("read Citus's distributed tables: %w", err)
	}
	return d, nil
}

// findLocations finds the relations whose rows this server does not store in a heap, and the parents of such
// partitions and children. $1 are the tables that Citus distributes.
const findLocations = `
WITH RECURSIVE away (oid, place) AS (
  SELECT c.oid, CASE WHEN c.oid = ANY ($1::oid[]) THEN $2 WHEN c.relkind = 'f' THEN $3 ELSE $4 || a.amname END
  FROM pg_class c LEFT JOIN pg_am a ON a.oid = c.relam WHERE c.oid = ANY ($1::oid[]) OR c.relkind = 'f'
    OR c.relkind = 'r' AND a.amname <> 'heap'
  UNION SELECT i.inhparent, away.place FROM pg_inherits i JOIN away ON i.inhrelid = away.oid)
SELECT oid, min(place) FROM away GROUP BY oid`

func readLocations(ctx context.Context, db Querier, distributed []uint32) (map[uint32]string, error) {
	rows, _ := db.Query(ctx, findLocations, distributed, Distributed, Foreign, storedBy)
	places := map[uint32]string{}
	var (
		oid   uint32
		place string
	)
	if _, err := pgx.ForEachRow(
		rows, []any{&oid, &place}, func() error { places[oid] = place; return nil },
	); err != nil {
		return nil, fmt.Errorf("read the locations of tables: %w", err)
	}
	return places, nil
}
