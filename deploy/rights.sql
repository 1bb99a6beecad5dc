-- Grants the service's role, which role.sql creates, what it may do with the application's tables. Run it with psql as the
-- application's role, the owner of these tables, after role.sql, and again when the application gets a new delivery mapping or partition:
--
--   psql -X -d campaign -U neolane [-v role=cleanupd] [-v schema=public] -f rights.sql
--
-- role is the service's role, schema the schema of the application's tables.
--
-- What the role may do with the application's tables afterwards, whatever it was granted before: read those that the pipeline's rules
-- depend on, delete from those that it cleans, and write where it does. A table of another owner is named in a warning, with its GRANT.
--
-- It reads a table, NmsDeliveryMapping, and therefore refuses to run as anyone but its owner: see role.sql.
\set ON_ERROR_STOP on
\if :{?role}
\else
  \set role cleanupd
\endif
\if :{?schema}
\else
  \set schema public
\endif

BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp; -- functions of others must not be called
SELECT format('DO %L', format('BEGIN RAISE USING MESSAGE = %L; END', why)) FROM (
  SELECT 'run this as the application''s role, the owner of NmsDelivery in that schema, which must not be a superuser'
  WHERE session_user <> current_user OR NOT EXISTS (SELECT FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner
    WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :'schema') AND c.relname = 'nmsdelivery' AND c.relkind IN ('r', 'p') AND o.rolname = session_user AND NOT o.rolsuper)
  UNION ALL SELECT 'that role is the application''s own: the service must have another one' WHERE :'role' = session_user
  UNION ALL SELECT 'there is no such role: run role.sql first' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'role')
) AS refused (why) LIMIT 1 \gexec

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
  ('SELECT, DELETE, INSERT', 'XtkJobLog NmsEmailErrorStat'),         -- an entry for purged mirror pages; sums of deleted rows
  ('SELECT, DELETE, UPDATE', 'NmsDelivery NmsGroup NmsBroadLogMid'), -- states; a list is locked before it is deleted
  ('SELECT (iOptionId, sName, iDataType, iLongValue, sStringValue, tsTimeStampValue), UPDATE (iLongValue, sStringValue, tsTimeStampValue),
    INSERT (iOptionId, sName, iDataType, iLongValue, tsTimeStampValue), DELETE', 'XtkOption') -- a number may be stored as a text; no memos
) AS n (privileges, names)
JOIN pg_class c ON c.relname = ANY (regexp_split_to_array(lower(n.names), '\s+'))
WHERE c.relnamespace = quote_ident(:'schema')::regnamespace AND c.relkind IN ('r', 'p', 'f');

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
SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass(format('%I.nmsdeliverymapping', :'schema')) AND relkind IN ('r', 'p') AND pg_get_userbyid(relowner) = session_user) AS mapped \gset
\if :mapped
LOCK TABLE :"schema".nmsdeliverymapping IN ACCESS SHARE MODE; -- it stays what it is found to be: a table, and its columns texts
SELECT format('INSERT INTO named SELECT lower(replace(%1$I, '':'', '''')), %2$L, %3$L FROM %4$s WHERE %1$I ~ ''^\w+:\w+$''', f.schema, f.columns, f.privileges, m.oid::regclass)
FROM (VALUES
  ('sbroadlogschema', '{ibroadlogid, ideliveryid, istatus, tslastmodified}', 'SELECT, DELETE, UPDATE'),
  ('sbroadlogexclschema', '{ibroadlogid, ideliveryid, istatus, tslastmodified}', 'SELECT, DELETE'),
  ('strackinglogschema', '{itrackinglogid, ideliveryid, tslog}', 'SELECT, DELETE')) AS f (schema, columns, privileges)
JOIN pg_class m ON m.oid = to_regclass(format('%I.nmsdeliverymapping', :'schema')) AND m.relkind IN ('r', 'p') AND pg_get_userbyid(m.relowner) = session_user
JOIN pg_attribute a ON a.attrelid = m.oid AND a.attname = f.schema AND a.atttypid IN ('text'::regtype, 'varchar'::regtype) \gexec
\endif
INSERT INTO needed
SELECT c.oid, n.privileges FROM named n JOIN pg_class c ON c.relname ~ ('^' || n.name || '$')
WHERE c.relnamespace = quote_ident(:'schema')::regnamespace AND c.relkind IN ('r', 'p', 'f')
  AND n.columns <@ ARRAY(SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped);

-- The rows of a partitioned table are deleted from its partitions.
INSERT INTO needed
WITH RECURSIVE tree AS (TABLE needed UNION SELECT i.inhrelid, tree.privileges FROM pg_inherits i JOIN tree ON i.inhparent = tree.relation)
TABLE tree EXCEPT TABLE needed;

-- Only its owner may grant a table.
SELECT format('DO %L', format('BEGIN RAISE WARNING USING MESSAGE = %L; END', format('%1$s belongs to %2$I: GRANT %3$s ON %1$s TO %4$I', relation, pg_get_userbyid(relowner), privileges, :'role')))
FROM needed JOIN pg_class c ON c.oid = relation WHERE NOT pg_has_role(relowner, 'USAGE') \gexec
DELETE FROM needed USING pg_class c WHERE c.oid = relation AND NOT pg_has_role(relowner, 'USAGE');

SELECT format('REVOKE ALL ON %s FROM %I', oid::regclass, :'role') FROM pg_class c
WHERE relnamespace = quote_ident(:'schema')::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_has_role(relowner, 'USAGE')
  AND EXISTS (SELECT FROM (SELECT relacl UNION ALL SELECT attacl FROM pg_attribute WHERE attrelid = c.oid) AS a (acl) CROSS JOIN LATERAL aclexplode(acl) WHERE grantee = quote_ident(:'role')::regrole) \gexec
SELECT format('GRANT %s ON %s TO %I', privileges, relation, :'role') FROM needed \gexec

-- Skipping rows that others have locked needs the right to update one column, whichever: the first.
SELECT format('GRANT UPDATE (%I) ON %s TO %I', a.attname, n.relation, :'role') FROM needed n
CROSS JOIN LATERAL (SELECT attname FROM pg_attribute WHERE attrelid = n.relation AND attnum > 0 AND NOT attisdropped ORDER BY attnum LIMIT 1) a
WHERE n.privileges LIKE 'SELECT, DELETE%' \gexec

-- New ids come from the application's own sequences, as far as it has them.
SELECT format('GRANT USAGE ON SEQUENCE %s TO %I', oid::regclass, :'role') FROM pg_class
WHERE relnamespace = quote_ident(:'schema')::regnamespace AND relname IN ('xtknewid', 'xtkjoblogid', 'xtkoptionid') AND relkind = 'S' AND pg_has_role(relowner, 'USAGE') \gexec

COMMIT;
