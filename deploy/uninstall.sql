-- Removes cleanupd from a database: the schema cleanupd with the history of its runs, its schedule, holds and audit, and the rights of its
-- role; and the role itself, when no other database needs it. Stop the service first. Run it with psql as a superuser in every database
-- where role.sql was run, those of mid-sourcing servers too:
--
--   psql -X -d campaign [-v role=cleanupd] -f uninstall.sql
--
-- It changes nothing if the role is connected, if it owns anything outside its schemas (as the application's own role does), if something is
-- in the trash, or if objects of others depend on these schemas. Nothing of the application is dropped, and nothing cascades.
\set ON_ERROR_STOP on
\if :{?role}
\else
  \set role cleanupd
\endif

BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL lock_timeout = '5s';
SET LOCAL search_path = pg_catalog, pg_temp; -- this is a superuser's session: it must not call functions of others

WITH service AS (SELECT oid, rolsuper FROM pg_roles WHERE rolname = :'role'),
  owned AS (
    SELECT o.type, o.identity FROM pg_shdepend d JOIN service ON service.oid = refobjid
      CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) AS o
    WHERE d.deptype = 'o' AND d.dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
      AND COALESCE(o.schema NOT IN ('cleanupd', 'cleanupd_trash'), true)
      AND NOT (o.type = 'schema' AND o.identity IN ('cleanupd', 'cleanupd_trash'))),
  refused (why) AS (
    SELECT format('there is no role %I: give its name by -v role=', :'role') WHERE NOT EXISTS (SELECT FROM service)
    UNION ALL SELECT format('the role %I is a superuser: drop the schema cleanupd by hand', :'role') FROM service WHERE rolsuper
    UNION ALL SELECT format('the role %I owns the %s %s, so it may not be a role of the service alone. If it is not, as the application''s, drop the schemas cleanupd and cleanupd_trash by hand. If it is, and cleanupd trash restore --into has made this, drop it or give it to another role', :'role', type, identity)
      FROM owned
    UNION ALL SELECT format('the role %I is connected to %s: stop the service first', :'role',
        string_agg(DISTINCT COALESCE(datname, 'the server'), ', '))
      FROM service JOIN pg_stat_activity ON usesysid = service.oid HAVING count(*) > 0
    UNION ALL SELECT format('the trash has %s relations that could be restored: cleanupd trash restore or purge them', count(*))
      FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cleanupd_trash') AND relkind IN ('r', 'p') HAVING count(*) > 0)
SELECT format('DO %L', format('BEGIN RAISE USING MESSAGE = %L; END', why)) FROM refused LIMIT 1 \gexec

DROP FUNCTION IF EXISTS cleanupd.drop_work_tables(regclass[]), cleanupd.count_work_table(regclass), cleanupd.trash_work_table(regclass, text, text[]),
  cleanupd.restore_work_table(regclass, text, text, text[]), cleanupd.restore_rows(regclass, regclass, text[], text[], tid[]); -- they belong to the application's role
DROP OWNED BY :"role";
SELECT format('DROP ROLE %I', rolname) FROM pg_roles r
WHERE rolname = :'role' AND NOT EXISTS (SELECT FROM pg_shdepend WHERE refobjid = r.oid) \gexec
SELECT string_agg(DISTINCT COALESCE(datname, 'the whole server'), ', ') AS databases FROM pg_shdepend d
LEFT JOIN pg_database db ON db.oid = d.dbid WHERE refobjid = (SELECT oid FROM pg_roles WHERE rolname = :'role') \gset
COMMIT;

\if :{?databases}
  \echo 'The role remains, since it has rights in:' :databases
\endif
