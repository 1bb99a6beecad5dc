package serve

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ownersBelow are the owners of tables who have fewer rights than the session: one of them, if the session is a
// superuser's. The statement must itself call nothing that they may have planted.
const ownerWithFewerRights = `SET LOCAL search_path = pg_catalog, pg_temp;
	SELECT o.rolname FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner WHERE NOT o.rolsuper
		AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
	AND EXISTS (SELECT FROM pg_roles WHERE rolname IN (session_user, current_user) AND rolsuper) LIMIT 1`

// warnOfSuperuser warns of a superuser's role where tables belong to others. Whoever owns a table can have code run
// with the rights of whoever reads it, or plans over it: by its indexes, for example.
func warnOfSuperuser(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		results, err := conn.Conn().PgConn().Exec(ctx, ownerWithFewerRights).ReadAll()
		if err != nil {
			return err
		}
		if found := results[len(results)-1].Rows; len(found) > 0 {
			log.Warn(
				"the role is a superuser: an owner of tables in the database could run code with its rights",
				"database",
				pool.Config().ConnConfig.Database,
				"owner",
				string(found[0][0]),
				"remedy",
				"connect as a role made by deploy/role.sql, or as the owner of the tables",
			)
		}
		return nil
	})
}

// openSchemas are the schemas that the role uses, its own one included, in which roles may create objects other than
// itself, superusers and the owner of a table, $1: which roles, and what ends it. Where everyone may, no other is
// listed.
const openSchemasQuery = `
WITH used AS (SELECT oid, nspname, nspowner FROM pg_namespace WHERE nspname = ANY (current_schemas(false))
  OR nspname = 'cleanupd'),
	trusted AS (SELECT oid, rolname FROM pg_roles WHERE rolsuper OR rolname = current_user OR oid = (SELECT relowner
		FROM pg_class WHERE oid = to_regclass($1))),
	able AS (
		SELECT nspname, 'PUBLIC' AS who, false AS owns FROM used WHERE has_schema_privilege('public', oid, 'CREATE')
		UNION ALL SELECT nspname, quote_ident(rolname), pg_has_role(r.oid, nspowner, 'USAGE') FROM used u
			JOIN pg_roles r ON has_schema_privilege(r.oid, u.oid, 'CREATE')
			WHERE NOT has_schema_privilege('public', u.oid, 'CREATE') AND rolname <> 'pg_database_owner'
				AND NOT EXISTS (SELECT FROM trusted t WHERE pg_has_role(r.oid, t.oid, 'MEMBER')))
SELECT nspname::text, string_agg(who, ', ' ORDER BY who),
	CASE
		WHEN owns THEN format('ALTER SCHEMA %I OWNER TO NEW_OWNER',
		nspname) ELSE format('REVOKE CREATE ON SCHEMA %I FROM %s', nspname, string_agg(who, ', ' ORDER BY who)) END
FROM able GROUP BY nspname, owns ORDER BY nspname, owns`

// warnOfOpenSchemas warns of schemas in which others than the owner of a table of the application's may create objects:
// functions and operators there, and triggers of tables that are named like the application's, could run with the
// role's rights.
func warnOfOpenSchemas(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool, table string) error {
	rows, err := pool.Query(ctx, openSchemasQuery, table)
	if err != nil {
		return err
	}
	var schema, roles, remedy string
	_, err = pgx.ForEachRow(rows, []any{&schema, &roles, &remedy}, func() error {
		log.Warn(
			"others may create objects in a schema that this role uses: they could run code with its rights",
			"database",
			pool.Config().ConnConfig.Database,
			"schema",
			schema,
			"roles",
			roles,
			"remedy",
			remedy,
		)
		return nil
	})
	return err
}
