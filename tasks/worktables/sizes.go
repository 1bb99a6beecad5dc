package worktables

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sizes returns the size in bytes of the relations $1 with their partitions, without the files that VACUUM adds,
// and that of the database.
const sizes = `WITH RECURSIVE leaf AS (SELECT to_regclass(name)::oid AS oid FROM unnest($1::text[]) AS name UNION
	SELECT i.inhrelid FROM leaf JOIN pg_inherits i ON i.inhparent = leaf.oid JOIN pg_class p ON p.oid = leaf.oid
	AND p.relkind = 'p')
SELECT COALESCE(sum(pg_relation_size(c.oid) + COALESCE(pg_relation_size(NULLIF(c.reltoastrelid, 0)),
  0) + pg_indexes_size(c.oid)), 0)::bigint, pg_database_size(current_database())
FROM leaf JOIN pg_class c ON c.oid = leaf.oid WHERE c.relkind IN ('r', 'm')`

// Sizes returns the size in bytes of tables, given by their quoted names, and of the database.
func Sizes(ctx context.Context, pool *pgxpool.Pool, names []string) (tables, database int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, sizes, names).Scan(&tables, &database)
	})
	return tables, database, err
}
