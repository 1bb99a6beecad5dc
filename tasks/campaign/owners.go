package campaign

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Owner is a role that gains rights by owning tables whose rows a run deletes or updates: the code of the tables
// (triggers, index expressions, checks and row security) runs with the rights of the session's role.
type Owner struct {
	// Table is the quoted name of one of these tables.
	Table string
	// Name is the quoted name of the role. It is not a superuser and cannot become the session's role in another way.
	Name string
	// Others are the quoted names of the owners of other tables, which the session's role may read or change and this
	// role may not.
	Others string
}

// restored is the condition that the service has made a table c in a schema n for rows that came back from the trash.
// Such a table does not count, since the owner of the rows' table may see them.
const restored = `(pg_get_userbyid(c.relowner) = current_user AND c.relowner = n.nspowner
  AND COALESCE(obj_description(c.oid, 'pg_class') LIKE 'rows of %', false))`

// selectOwners selects the owners of the table $1, or, if that is 0, of all tables outside the service's own schema
// that the role may delete from or update. It includes the owners of their partitions and children, and of the
// tables whose rows foreign keys delete or change with theirs. PostgreSQL runs such a deletion, and BEFORE
// triggers, as the owner of that table; before version 18 it runs AFTER triggers as the role that ran the original
// statement.
const selectOwners = `
WITH RECURSIVE tables AS MATERIALIZED (SELECT c.oid, c.relowner,
    CASE WHEN has_schema_privilege(c.relnamespace, 'USAGE') THEN ARRAY(SELECT p
      FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS p
      WHERE has_table_privilege(c.oid, p)) END AS rights
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\_%'
    AND n.nspname NOT IN ('information_schema', 'cleanupd', 'cleanupd_trash') AND NOT ` + restored + `),
swept (oid) AS (SELECT oid FROM tables
    WHERE CASE WHEN $1::oid = 0 THEN rights && ARRAY['UPDATE', 'DELETE'] ELSE oid = $1::oid END
  UNION SELECT more.oid FROM swept CROSS JOIN LATERAL (
    SELECT inhrelid FROM pg_inherits WHERE inhparent = swept.oid
    UNION SELECT f.conrelid FROM pg_trigger t JOIN pg_constraint f ON f.oid = t.tgconstraint
    WHERE t.tgrelid = swept.oid AND t.tgconstrrelid <> 0 AND f.contype = 'f' AND f.confrelid = swept.oid
      AND f.confdeltype IN ('c', 'n', 'd')) AS more (oid)),
owners AS (SELECT relowner, min(oid) AS example FROM swept JOIN tables USING (oid)
  WHERE NOT pg_has_role(relowner, current_user, 'MEMBER') GROUP BY relowner)
SELECT format('%I.%I', n.nspname, c.relname), quote_ident(pg_get_userbyid(o.relowner)), gain.others
FROM owners o JOIN pg_class c ON c.oid = o.example JOIN pg_namespace n ON n.oid = c.relnamespace
  CROSS JOIN LATERAL (SELECT string_agg(DISTINCT quote_ident(pg_get_userbyid(t.relowner)), ', ')
    FROM tables t WHERE t.relowner <> o.relowner
      AND EXISTS (SELECT FROM unnest(t.rights) AS p WHERE NOT has_table_privilege(o.relowner, t.oid, p)))
    AS gain (others)
WHERE gain.others IS NOT NULL
ORDER BY 2`

// Owners returns the owners of a table, given by its object id, or of any table that a run may change if table is
// 0.
func Owners(ctx context.Context, db Querier, table uint32) ([]Owner, error) {
	rows, _ := db.Query(ctx, selectOwners, table)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Owner])
	if err != nil {
		return nil, fmt.Errorf("read the owners of tables: %w", err)
	}
	return list, nil
}
