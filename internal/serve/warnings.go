package serve

import (
	"context"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// unprivilegedOwner selects an owner of tables who is not a superuser, if the session's role is one. The statement
// calls no function that such an owner may have created.
const unprivilegedOwner = `
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT o.rolname
FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner
WHERE NOT o.rolsuper
	AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
	AND EXISTS (SELECT FROM pg_roles WHERE rolname IN (session_user, current_user) AND rolsuper)
LIMIT 1`

// warnOfSuperuser warns if the role is a superuser and the owner of some table is not: reading that table, or just
// planning a query on it, can run the owner's code as superuser, for example a function in an index expression.
func warnOfSuperuser(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		results, err := conn.Conn().PgConn().Exec(ctx, unprivilegedOwner).ReadAll()
		if err != nil {
			return err
		}
		if found := results[len(results)-1].Rows; len(found) > 0 {
			log.Warn("connected as a superuser: any table owner in this database could run code with superuser rights",
				"database", pool.Config().ConnConfig.Database, "owner", string(found[0][0]),
				"remedy", "connect as the role created by deploy/role.sql, or as the owner of the tables")
		}
		return nil
	})
}

// warnOfOwners logs owners whose code, such as triggers, runs of this service would execute with access to tables of
// other owners.
func warnOfOwners(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool) error {
	owners, err := campaign.Owners(ctx, pool, 0)
	for _, o := range owners {
		m := message.SeveralOwners.With("table", o.Table, "owner", o.Name, "others", o.Others)
		log.Warn(m.Text, "code", m.Code, "remedy", message.SeveralOwners.Remedy)
	}
	return err
}

// backupRoles selects roles that own tables outside the schema cleanupd and cannot read all tables in it, so that their
// pg_dump fails.
const backupRoles = `
SELECT r.rolname::text FROM pg_roles r WHERE EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid =
	c.relnamespace
    WHERE c.relowner = r.oid AND c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\_%'
    AND n.nspname NOT IN ('information_schema', 'cleanupd', 'cleanupd_trash'))
  AND EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'cleanupd' AND c.relkind = 'r' AND NOT (has_schema_privilege(r.oid, n.oid, 'USAGE')
    AND has_table_privilege(r.oid, c.oid, 'SELECT')))
ORDER BY 1`

// warnOfBackups logs roles whose backups fail because of the schema cleanupd.
func warnOfBackups(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool) error {
	rows, _ := pool.Query(ctx, backupRoles)
	roles, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(roles) > 0 {
		log.Warn(
			"pg_dump and vacuumdb of the whole database fail as these roles, which cannot read the schema cleanupd",
			"roles", strings.Join(roles, ", "),
			"remedy", "pg_dump -N cleanupd; vacuumdb -N cleanupd, from version 16 on")
	}
	return nil
}

// warnOfPublishedSchema logs publications that contain the service's own tables, and have done so since these were
// created.
func warnOfPublishedSchema(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool) error {
	var publications string
	err := pool.QueryRow(ctx, cleanup.PublishingSchema).Scan(&publications)
	if publications != "" {
		m := message.SchemaPublished.With("publications", publications)
		log.Warn(m.Text, "code", m.Code, "remedy", message.SchemaPublished.Remedy)
	}
	return err
}

// openSchemas selects the schemas of the search path, and the service's own schema, if roles may create objects in
// them, with these roles and a statement that prevents it. Superusers, the role itself, the owner of the table $1, and
// the owners of tables that the role may delete from or update, whose code runs with its rights anyway, are trusted. So
// is the owner of a schema who has tables there: before anything is granted, that is the application. If PUBLIC may
// create objects in a schema, no other role is listed for it.
const openSchemas = `
WITH used AS (
	SELECT oid, nspname, nspowner FROM pg_namespace
	WHERE nspname = ANY (current_schemas(false)) OR nspname = 'cleanupd'
), trusted AS (
	SELECT oid, rolname FROM pg_roles r
	WHERE rolsuper OR rolname = current_user
		OR oid = (SELECT relowner FROM pg_class WHERE oid = to_regclass($1))
		OR oid IN (SELECT relowner FROM pg_class WHERE relkind IN ('r', 'p')
			AND (has_table_privilege(oid, 'DELETE') OR has_table_privilege(oid, 'UPDATE')))
		OR EXISTS (SELECT FROM used u JOIN pg_class c ON c.relnamespace = u.oid AND c.relowner = r.oid
			WHERE u.nspname <> 'cleanupd' AND c.relkind IN ('r', 'p') AND pg_has_role(r.oid, u.nspowner, 'USAGE'))
), able AS (
	SELECT nspname, 'PUBLIC' AS who, false AS owns FROM used WHERE has_schema_privilege('public', oid, 'CREATE')
	UNION ALL
	SELECT nspname, quote_ident(rolname), pg_has_role(r.oid, nspowner, 'USAGE')
	FROM used u JOIN pg_roles r ON has_schema_privilege(r.oid, u.oid, 'CREATE')
	WHERE NOT has_schema_privilege('public', u.oid, 'CREATE') AND rolname <> 'pg_database_owner'
		AND NOT EXISTS (SELECT FROM trusted t WHERE pg_has_role(r.oid, t.oid, 'MEMBER'))
)
SELECT nspname::text, string_agg(who, ', ' ORDER BY who),
	CASE
		WHEN owns THEN format('ALTER SCHEMA %I OWNER TO NEW_OWNER', nspname)
		ELSE format('REVOKE CREATE ON SCHEMA %I FROM %s', nspname, string_agg(who, ', ' ORDER BY who))
	END
FROM able GROUP BY nspname, owns ORDER BY nspname, owns`

// warnOfOpenSchemas warns of roles that may create objects in these schemas: functions, operators and triggers of
// tables that are named like the application's could run with the rights of the service's role.
func warnOfOpenSchemas(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool, table string) error {
	rows, err := pool.Query(ctx, openSchemas, table)
	if err != nil {
		return err
	}
	var schema, roles, remedy string
	_, err = pgx.ForEachRow(rows, []any{&schema, &roles, &remedy}, func() error {
		log.Warn("others may create objects in a schema that this role uses: they could run code with its rights",
			"database", pool.Config().ConnConfig.Database, "schema", schema, "roles", roles, "remedy", remedy)
		return nil
	})
	return err
}
