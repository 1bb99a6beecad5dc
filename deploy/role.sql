-- Creates the least-privileged role for `cleanupd serve`, or brings it up to date. Run it with psql as a superuser, in the
-- database that is cleaned (and in those of mid-sourcing servers), and again after an update of cleanupd and when the
-- application gets a new delivery mapping or partition:
--
--   psql -d campaign [-v role=cleanupd] [-v schema=public] [-v list_tables='TABLE …'] [-v included_tables='TABLE …'] -f role.sql
--
-- role is the role's name, schema the schema of the application's tables, list_tables are those that serve is given as
-- --related-list-table, included_tables those in its --include. No password is set: use \password cleanupd.
--
-- What the role may do with the application's data afterwards, whatever it was granted before:
--   * read the tables that the pipeline's rules depend on, delete from those that it cleans, and write where it does;
--   * drop the application's work tables, only by cleanupd.drop_work_tables, and not read them.
-- In addition it owns the schema cleanupd, in which serve creates its tables, and sees what other sessions do
-- (pg_read_all_stats), including the text of their statements: otherwise batches would wait neither for them nor for replicas.
--
-- It may not VACUUM the application's tables. PostgreSQL 14 to 16 let only a table's owner do so, and whoever may act as the
-- owner may do everything else, too. They are left to autovacuum, and the task statistics says so. If the service should
-- nevertheless do it, GRANT it the application's role.
--
-- On PostgreSQL 14 everyone may create tables in the schema public, unless that right has been revoked.
\set ON_ERROR_STOP on
\if :{?role}
\else
  \set role cleanupd
\endif
\if :{?schema}
\else
  \set schema public
\endif
\if :{?list_tables}
\else
  \set list_tables ''
\endif
\if :{?included_tables}
\else
  \set included_tables ''
\endif

BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp; -- this is a superuser's session: it must not call functions of others

-- The application's role owns NmsDelivery. Work tables are dropped as that role, so it must not be a superuser.
SELECT max(o.rolname::text) AS owner FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :'schema') AND c.relname = 'nmsdelivery' AND c.relkind IN ('r', 'p') AND NOT o.rolsuper \gset
\if :{?owner}
\else
  DO $$ BEGIN RAISE 'there is no table NmsDelivery in that schema, or it belongs to a superuser: the application must have a role of its own'; END $$;
\endif
SELECT :'role' = :'owner' OR EXISTS (SELECT FROM pg_roles WHERE rolname = :'role' AND rolsuper) AS taken \gset
\if :taken
  DO $$ BEGIN RAISE 'that role is the application''s own, or a superuser: the service must have another one'; END $$;
\endif

SELECT format('CREATE ROLE %I', :'role') WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'role') \gexec
ALTER ROLE :"role" LOGIN INHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
GRANT CONNECT ON DATABASE :"DBNAME" TO :"role";
GRANT USAGE ON SCHEMA :"schema" TO :"role";
GRANT pg_read_all_stats TO :"role";

-- The service's own schema, which another role may have created.
CREATE SCHEMA IF NOT EXISTS cleanupd;
ALTER SCHEMA cleanupd OWNER TO :"role";
SELECT format('ALTER TABLE %s OWNER TO %I', oid::regclass, :'role') FROM pg_class WHERE relnamespace = 'cleanupd'::regnamespace AND relkind IN ('r', 'p') \gexec

-- The relations where privileges are needed.
CREATE TEMPORARY TABLE needed (relation regclass, privileges text) ON COMMIT DROP;

-- Tables by name, if they exist.
INSERT INTO needed
SELECT c.oid, n.privileges
FROM (VALUES
  ('SELECT (iExtAccountId, sName, iActive)', 'NmsExtAccount'), -- not the passwords
  ('SELECT', 'NmsDeliveryMapping NmsBroadLogMsg XtkJob XtkWorkflow NmsService NmsMobileApp NmsSimulation NmsRemaHypothesis'),
  ('SELECT, DELETE', 'NmsRcpGrpRel NmsDeliveryPart NmsDlvExclusion NmsCouponValue NmsMirrorPageInfo NmsMirrorPageSearch NmsAttachments
    NmsTrackingUrl NmsDeliveryStat NmsDeliveryLogStats NmsProviderMsgId NmsWebTrackingLog NmsTrackingStats XtkReject
    XtkWorkflowLog XtkWorkflowTask XtkWorkflowEvent XtkWorkflowLogin NmsVisitor NmsAddress NmsSubscription NmsEmailError
    NmsMxDomain XtkAudit XtkSessionInfo NmsRtEvent NmsBatchEvent NmsEventHisto NmsRemaMatchRcp'),
  ('SELECT, DELETE', :'list_tables'), ('SELECT, DELETE', :'included_tables'),
  ('SELECT, DELETE, INSERT', 'XtkJobLog NmsEmailErrorStat'),         -- an entry for purged mirror pages; sums of deleted rows
  ('SELECT, DELETE, UPDATE', 'NmsDelivery NmsGroup NmsBroadLogMid'), -- states; a list is locked before it is deleted
  ('SELECT (iOptionId, sName, iDataType, iLongValue, sStringValue, tsTimeStampValue), UPDATE (iLongValue, sStringValue, tsTimeStampValue),
    INSERT (iOptionId, sName, iDataType, iLongValue, tsTimeStampValue), DELETE', 'XtkOption') -- a number may be stored as a text; no memos
) AS n (privileges, names)
JOIN pg_class c ON c.relname = ANY (regexp_split_to_array(lower(n.names), '\s+'))
WHERE c.relnamespace = quote_ident(:'schema')::regnamespace AND c.relkind IN ('r', 'p');

-- Tables with a foreign key to lists.
INSERT INTO needed
SELECT k.conrelid, 'SELECT, DELETE' FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[1]
WHERE k.contype = 'f' AND k.confrelid = to_regclass(format('%I.nmsgroup', :'schema')) AND cardinality(k.conkey) = 1 AND a.attname = 'igroupid';

-- Tables of modules and of customers: which names they may have, including those in the delivery mappings, and which columns
-- they must have.
CREATE TEMPORARY TABLE named (name text, columns name[], privileges text) ON COMMIT DROP;
INSERT INTO named VALUES
  ('nmsproposition[a-z0-9]*', '{ipropositionid}', 'SELECT, DELETE'), ('nmsproposition[a-z0-9]*', '{bipropositionid}', 'SELECT, DELETE'),
  ('nmsappsubscription[a-z0-9]*', '{imobileappid, idisabled}', 'SELECT, DELETE');
SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass(format('%I.nmsdeliverymapping', :'schema')) AND relkind IN ('r', 'p')) AS mapped \gset
\if :mapped
LOCK TABLE :"schema".nmsdeliverymapping IN ACCESS SHARE MODE; -- it stays what it is found to be: a table, and its columns texts
SELECT format('INSERT INTO named SELECT lower(replace(%1$I, '':'', '''')), %2$L, %3$L FROM %4$s WHERE %1$I ~ ''^\w+:\w+$''', f.schema, f.columns, f.privileges, m.oid::regclass)
FROM (VALUES
  ('sbroadlogschema', '{ibroadlogid, ideliveryid, istatus, tslastmodified}', 'SELECT, DELETE, UPDATE'),
  ('sbroadlogexclschema', '{ibroadlogid, ideliveryid, istatus, tslastmodified}', 'SELECT, DELETE'),
  ('strackinglogschema', '{itrackinglogid, ideliveryid, tslog}', 'SELECT, DELETE')) AS f (schema, columns, privileges)
JOIN pg_class m ON m.oid = to_regclass(format('%I.nmsdeliverymapping', :'schema')) AND m.relkind IN ('r', 'p')
JOIN pg_attribute a ON a.attrelid = m.oid AND a.attname = f.schema AND a.atttypid IN ('text'::regtype, 'varchar'::regtype) \gexec
\endif
INSERT INTO needed
SELECT c.oid, n.privileges FROM named n JOIN pg_class c ON c.relname ~ ('^' || n.name || '$')
WHERE c.relnamespace = quote_ident(:'schema')::regnamespace AND c.relkind IN ('r', 'p')
  AND n.columns <@ ARRAY(SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped);

-- The rows of a partitioned table are deleted from its partitions.
INSERT INTO needed
WITH RECURSIVE tree AS (TABLE needed UNION SELECT i.inhrelid, tree.privileges FROM pg_inherits i JOIN tree ON i.inhparent = tree.relation)
TABLE tree EXCEPT TABLE needed;

REVOKE ALL ON ALL TABLES IN SCHEMA :"schema" FROM :"role";
SELECT format('GRANT %s ON %s TO %I', privileges, relation, :'role') FROM needed \gexec

-- Skipping rows that others have locked needs the right to update one column, whichever: the first.
SELECT format('GRANT UPDATE (%I) ON %s TO %I', a.attname, n.relation, :'role') FROM needed n
CROSS JOIN LATERAL (SELECT attname FROM pg_attribute WHERE attrelid = n.relation AND attnum > 0 AND NOT attisdropped ORDER BY attnum LIMIT 1) a
WHERE n.privileges LIKE 'SELECT, DELETE%' \gexec

-- New ids come from the application's own sequences, as far as it has them.
SELECT format('GRANT USAGE ON SEQUENCE %s TO %I', oid::regclass, :'role') FROM pg_class
WHERE relnamespace = quote_ident(:'schema')::regnamespace AND relname IN ('xtknewid', 'xtkjoblogid', 'xtkoptionid') AND relkind = 'S' \gexec

-- Work tables come and go, and only their owner may drop them: this function does so as the owner, for work tables only.
CREATE OR REPLACE FUNCTION cleanupd.drop_work_tables(relations regclass[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  others text;
  command text;
BEGIN
  SELECT string_agg(r::text, ', ') INTO others FROM unnest(relations) AS r WHERE NOT EXISTS (
    SELECT FROM pg_class WHERE oid = r AND relkind IN ('r', 'p', 'v') AND pg_get_userbyid(relowner) = current_user
      AND relname ~ '^(grp[1-9][0-9]*|(wkdlv_|wkf|wkfhisto|wksimu_)[1-9][0-9]*(_.*)?)$');
  IF others IS NOT NULL THEN
    RAISE insufficient_privilege USING MESSAGE = 'no work tables of the application: ' || others;
  END IF;
  FOR command IN
    SELECT format('DROP %s %s', kind, string_agg(oid::regclass::text, ', '))
    FROM (SELECT oid, CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END AS kind FROM pg_class WHERE oid = ANY (relations)) AS c
    GROUP BY kind ORDER BY kind DESC -- views first, since tables that they depend on could not be dropped before them
  LOOP
    EXECUTE command;
  END LOOP;
END $$;
ALTER FUNCTION cleanupd.drop_work_tables OWNER TO :"owner";
REVOKE ALL ON FUNCTION cleanupd.drop_work_tables FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cleanupd.drop_work_tables TO :"role";

COMMIT;
