-- Creates the least-privileged role for `cleanupd serve`, or brings it up to date: the part for a superuser. Run it with psql in the
-- database that is cleaned (and in those of mid-sourcing servers), and again after an update of cleanupd. Then run rights.sql as the
-- application's role: it grants what the service may do with the application's tables.
--
--   psql -X -d campaign [-v role=cleanupd] [-v schema=public] -f role.sql
--   psql -X -d campaign -U neolane [-v role=cleanupd] [-v schema=public] … -f rights.sql
--
-- role is the role's name, from that of the role as which cleanupd ran before, if it did, schema the schema of the application's tables. No password is set: use \password cleanupd.
--
-- In a database without the application's tables (without NmsDelivery in any schema), the role gets no rights but to the schema
-- cleanupd: `cleanupd policies grants FILE` prints those that policies need, in place of rights.sql.
--
-- The role owns the schemas cleanupd, in which serve creates its tables, and cleanupd_trash, in which runs with undo keep what they
-- delete; others lose what rights they have on these. It drops the
-- application's work tables only by cleanupd.drop_work_tables, moves them to the trash and back only by trash_work_table and
-- restore_work_table, and cannot read them. It inserts what comes back from the trash only by restore_rows. It sees what other sessions do (pg_read_all_stats),
-- including the text of their statements: otherwise batches would wait neither for them nor for replicas.
--
-- It may not VACUUM the application's tables. PostgreSQL 14 to 16 let only a table's owner do so, and whoever may act as the
-- owner may do everything else, too. They are left to autovacuum, and the task statistics says so. If the service should
-- nevertheless do it, GRANT it MAINTAIN on the tables, or before PostgreSQL 17 the application's role.
--
-- Whoever owns a table can run code with the rights of whoever reads, plans over or writes it: by indexes, statistics, constraints,
-- defaults, rules and triggers. So this script touches no table of the application: it reads the catalog alone.
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

BEGIN ISOLATION LEVEL REPEATABLE READ; -- what is created below was not there when it was looked for
SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp; -- this is a superuser's session: it must not call functions of others

-- The application's role owns NmsDelivery. Work tables are dropped as that role, so it must not be a superuser.
SELECT coalesce(max(o.rolname::text), '') AS owner FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :'schema') AND c.relname = 'nmsdelivery' AND c.relkind IN ('r', 'p') AND NOT o.rolsuper \gset
SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'nmsdelivery' AND relkind IN ('r', 'p')) AS campaign \gset

-- After first runs as another role, -v from=ROLE gives what they stored to the new one; the sequences of tables go with them.
\if :{?from}
SELECT format('CREATE ROLE %I', :'role') WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'role') \gexec
SELECT format('ALTER SCHEMA %I OWNER TO %I', nspname, :'role') FROM pg_namespace
WHERE nspname = 'cleanupd' AND pg_get_userbyid(nspowner) = :'from' OR nspname = 'cleanupd_trash' AND pg_get_userbyid(nspowner) = :'from'
  AND NOT EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = pg_namespace.oid) \gexec
SELECT format('ALTER %s %s OWNER TO %I', o.type, o.identity, :'role')
FROM pg_shdepend d CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) AS o
WHERE d.deptype = 'o' AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND d.refobjid = (SELECT oid FROM pg_roles WHERE rolname = :'from') AND o.schema = 'cleanupd'
  AND NOT EXISTS (SELECT FROM pg_depend s WHERE s.classid = d.classid AND s.objid = d.objid AND s.deptype IN ('a', 'i')) \gexec
\endif

-- What another role made is not adopted: it would keep its grants and dependencies, and its triggers would run with the service's rights.
WITH ours AS (SELECT n.oid, nspowner AS owner, r.rolname AS owner_name FROM pg_namespace n JOIN pg_roles r ON r.oid = nspowner WHERE nspname = 'cleanupd'),
  held (what, owner) AS (
    SELECT oid::regclass::text, relowner FROM pg_class WHERE relnamespace = (SELECT oid FROM ours)
    UNION ALL SELECT oid::regtype::text, typowner FROM pg_type WHERE typnamespace = (SELECT oid FROM ours)
    UNION ALL SELECT oid::regoperator::text, oprowner FROM pg_operator WHERE oprnamespace = (SELECT oid FROM ours)
    UNION ALL SELECT oid::regprocedure::text, proowner FROM pg_proc WHERE pronamespace = (SELECT oid FROM ours) AND NOT (proname IN ('drop_work_tables', 'count_work_table', 'trash_work_table', 'restore_work_table', 'restore_rows') AND pg_get_userbyid(proowner) = :'owner')
    UNION ALL SELECT format('the function of the trigger %I on %s', tgname, tgrelid::regclass), p.proowner
      FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid JOIN pg_proc p ON p.oid = tgfoid WHERE c.relnamespace = (SELECT oid FROM ours) AND NOT tgisinternal),
  refused (why) AS (
    SELECT 'there is no table NmsDelivery in that schema, or it belongs to a superuser: the application must have a role of its own' WHERE :'campaign' AND :'owner' = ''
    UNION ALL SELECT 'that role is the application''s own, or a superuser: the service must have another one'
      WHERE :'role' = :'owner' OR EXISTS (SELECT FROM pg_roles WHERE rolname = :'role' AND rolsuper)
    UNION ALL SELECT format('that role owns %1$s: the service must have another one; if cleanupd trash restore --into has made that table, ALTER TABLE %1$s OWNER TO …', min(c.oid::regclass::text)) FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
      WHERE NOT :'campaign' AND r.rolname = :'role' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
        AND c.relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname IN ('cleanupd', 'cleanupd_trash')) HAVING count(*) > 0
    UNION ALL SELECT format('the application''s role is a member of that role, and would see what all sessions do: REVOKE %I FROM %I', :'role', :'owner')
      FROM pg_roles r JOIN pg_roles o ON pg_has_role(o.oid, r.oid, 'MEMBER') WHERE r.rolname = :'role' AND o.rolname = :'owner' AND r.oid <> o.oid
    UNION ALL SELECT format('the event trigger %I would call a function of %I with your rights: drop or disable it', evtname, pg_get_userbyid(proowner))
      FROM pg_event_trigger JOIN pg_proc p ON p.oid = evtfoid JOIN pg_roles o ON o.oid = proowner WHERE NOT o.rolsuper AND evtenabled <> 'D'
    UNION ALL SELECT format('the schema cleanupd_trash belongs to %I, and has rows that could be restored: cleanupd trash restore or purge them first', rolname)
      FROM pg_namespace n JOIN pg_roles r ON r.oid = nspowner WHERE nspname = 'cleanupd_trash' AND rolname <> :'role' AND EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid)
    UNION ALL SELECT format('the schema %1$s belongs to %2$I, not to %3$I: -v from=%2$I gives it to %3$I, with the policies, runs and audit that first runs as %2$I stored; if you do not know what is in it, ALTER SCHEMA %1$s RENAME TO %1$s_before moves it out of the way', nspname, rolname, :'role')
      FROM pg_namespace JOIN pg_roles r ON r.oid = nspowner WHERE nspname IN ('cleanupd', 'cleanupd_trash') AND rolname <> :'role'
    UNION ALL SELECT format('in the schema cleanupd, which belongs to %I, %s belongs to %I: drop it', owner_name, what, pg_get_userbyid(held.owner))
      FROM ours JOIN held ON held.owner <> ours.owner)
SELECT format('DO %L', format('BEGIN RAISE USING MESSAGE = %L; END', why)) FROM refused LIMIT 1 \gexec

SELECT format('CREATE ROLE %I', :'role') WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'role') \gexec
ALTER ROLE :"role" LOGIN INHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
GRANT CONNECT ON DATABASE :"DBNAME" TO :"role";
GRANT pg_read_all_stats TO :"role";
SELECT format('CREATE SCHEMA cleanupd AUTHORIZATION %I', :'role') WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'cleanupd') \gexec
SELECT format('CREATE SCHEMA cleanupd_trash AUTHORIZATION %I', :'role') WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'cleanupd_trash') \gexec

DROP FUNCTION IF EXISTS cleanupd.drop_work_tables(regclass[]), cleanupd.count_work_table(regclass), cleanupd.trash_work_table(regclass, text, text[]),
  cleanupd.restore_work_table(regclass, text, text, text[]), cleanupd.restore_rows(regclass, regclass, text[], text[], tid[]);
\if :campaign
GRANT USAGE ON SCHEMA :"schema" TO :"role";

-- Work tables come and go, and only their owner may drop them: this function does so as the owner, for work tables only.
CREATE FUNCTION cleanupd.drop_work_tables(relations regclass[]) RETURNS void
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

-- With undo, a work table moves to the schema cleanupd_trash, with its indexes and sequences, which are called as in parts, and gets the name
-- of its entry there. For the transaction, the service lends the owner the rights to that schema. A partitioned table is left alone, and so
-- are one that inherits and one with foreign keys, which would keep the application from deleting rows.
CREATE FUNCTION cleanupd.count_work_table(relation regclass) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  rows bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_class WHERE oid = relation AND relkind IN ('r', 'p') AND pg_get_userbyid(relowner) = current_user
      AND relname ~ '^(grp[1-9][0-9]*|(wkdlv_|wkf|wkfhisto|wksimu_)[1-9][0-9]*(_.*)?)$') THEN
    RAISE insufficient_privilege USING MESSAGE = 'no work table of the application: ' || relation;
  END IF;
  EXECUTE format('LOCK TABLE %s IN SHARE MODE', relation); -- no row is added between this and the move
  EXECUTE format('SELECT count(*) FROM %s', relation) INTO rows;
  RETURN rows;
END $$;

CREATE FUNCTION cleanupd.trash_work_table(relation regclass, entry text, parts text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  command text;
BEGIN
  IF entry !~ '^table_[1-9][0-9]*$' OR NOT EXISTS (SELECT FROM pg_class WHERE oid = relation AND relkind = 'r' AND NOT relispartition
      AND pg_get_userbyid(relowner) = current_user AND relname ~ '^(grp[1-9][0-9]*|(wkdlv_|wkf|wkfhisto|wksimu_)[1-9][0-9]*(_.*)?)$'
      AND NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = relation AND contype = 'f')
      AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = relation)) THEN
    RAISE insufficient_privilege USING MESSAGE = 'no work table of the application that could be moved: ' || relation;
  END IF;
  EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', relation);
  BEGIN
    EXECUTE format('DROP TABLE %s', relation); -- fails if anything depends on it
    RAISE SQLSTATE 'CU001';
  EXCEPTION WHEN SQLSTATE 'CU001' THEN -- takes the DROP back
  END;
  FOR command IN
    SELECT format('ALTER %s %s RENAME TO %I', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'INDEX' END, c.oid::regclass, entry || '_' || p.n)
    FROM unnest(parts) WITH ORDINALITY AS p (name, n) JOIN pg_class c ON c.relname = p.name
    WHERE EXISTS (SELECT FROM pg_index WHERE indexrelid = c.oid AND indrelid = relation)
      OR c.relkind = 'S' AND EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND refobjid = relation AND deptype IN ('a', 'i'))
  LOOP
    EXECUTE command;
  END LOOP;
  EXECUTE format('ALTER TABLE %s RENAME TO %I', relation, entry);
  EXECUTE format('ALTER TABLE %s SET SCHEMA cleanupd_trash', relation);
END $$;

CREATE FUNCTION cleanupd.restore_work_table(relation regclass, schema text, name text, parts text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  entry text := (SELECT relname FROM pg_class WHERE oid = relation AND relkind = 'r' AND pg_get_userbyid(relowner) = current_user
    AND relnamespace = 'cleanupd_trash'::regnamespace AND relname ~ '^table_[1-9][0-9]*$');
  command text;
BEGIN
  IF entry IS NULL OR name !~ '^(grp[1-9][0-9]*|(wkdlv_|wkf|wkfhisto|wksimu_)[1-9][0-9]*(_.*)?)$' OR NOT EXISTS (SELECT FROM pg_class
      WHERE relname = 'nmsdelivery' AND relnamespace = quote_ident(schema)::regnamespace AND pg_get_userbyid(relowner) = current_user) THEN
    RAISE insufficient_privilege USING MESSAGE = 'no work table of the application in the trash: ' || relation;
  END IF;
  EXECUTE format('ALTER TABLE %s SET SCHEMA %I', relation, schema);
  EXECUTE format('ALTER TABLE %s RENAME TO %I', relation, name);
  FOR command IN
    SELECT format('ALTER %s %s RENAME TO %I', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'INDEX' END, c.oid::regclass, p.name)
    FROM unnest(parts) WITH ORDINALITY AS p (name, n) JOIN pg_class c ON c.relname = entry || '_' || p.n
    WHERE EXISTS (SELECT FROM pg_index WHERE indexrelid = c.oid AND indrelid = relation)
      OR c.relkind = 'S' AND EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND refobjid = relation AND deptype IN ('a', 'i'))
  LOOP
    EXECUTE command;
  END LOOP;
END $$;

-- Rows come back from the trash as the owner of their table, whose triggers, constraints and defaults run then: only into tables from which
-- the service may delete, and only from plain tables of the trash, on which the service lends the owner SELECT for the transaction. Casts are
-- the columns that are kept as text and whose type the application has made.
CREATE FUNCTION cleanupd.restore_rows(entry regclass, target regclass, columns text[], casts text[], rows tid[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  command text;
  inserted bigint;
BEGIN
  -- The service has locked its table, which stays as it is. Whoever reads or plans over it would call what the service has put into rules, row
  -- security, indexes, statistics and casts.
  IF NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'relation' AND pid = pg_backend_pid() AND relation = entry AND mode = 'ShareRowExclusiveLock'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND granted)
    OR NOT EXISTS (SELECT FROM pg_class WHERE oid = entry AND relnamespace = 'cleanupd_trash'::regnamespace AND relkind = 'r'
      AND NOT (relhasrules OR relrowsecurity OR relhasindex OR relhassubclass) AND relchecks = 0 AND relname ~ '^rows_[1-9][0-9]*$'
      AND NOT EXISTS (SELECT FROM pg_statistic_ext WHERE stxrelid = entry)
      AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = entry AND attnum > 0 AND NOT attisdropped AND (atttypid >= 16384 OR attgenerated <> '')))
    OR NOT EXISTS (SELECT FROM pg_class WHERE oid = target AND relkind IN ('r', 'p') AND pg_get_userbyid(relowner) = current_user
      AND has_table_privilege(session_user, oid, 'DELETE')) THEN
    RAISE insufficient_privilege USING MESSAGE = format('no rows of the trash for a table of the application: %s for %s', entry, target);
  END IF;
  SELECT format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s AS t WHERE t.ctid = ANY ($1)', target,
      string_agg(quote_ident(c.attname), ', ' ORDER BY c.attnum),
      string_agg(format(CASE WHEN quote_ident(c.attname) = ANY (casts) THEN 't.%I::varchar::%s' ELSE 't.%I' END, c.attname,
        c.atttypid::regtype), ', ' ORDER BY c.attnum), entry)
  INTO command FROM pg_attribute c JOIN pg_attribute e ON e.attname = c.attname
  WHERE c.attrelid = target AND e.attrelid = entry AND c.attnum > 0 AND e.attnum > 0 AND NOT c.attisdropped AND c.attgenerated = ''
    AND quote_ident(c.attname) = ANY (columns);
  -- Triggers and checks find what they call where their table is.
  PERFORM set_config('search_path', format('%I, pg_temp', nspname), true) FROM pg_namespace
  WHERE oid = (SELECT relnamespace FROM pg_class WHERE oid = target);
  EXECUTE command USING rows;
  GET DIAGNOSTICS inserted = ROW_COUNT;
  SET CONSTRAINTS ALL IMMEDIATE; -- what they defer runs here, too, not as another role
  RETURN inserted;
END $$;
SELECT format('ALTER FUNCTION cleanupd.%s OWNER TO %I', f, :'owner') FROM unnest(ARRAY['drop_work_tables(regclass[])', 'count_work_table(regclass)',
  'trash_work_table(regclass, text, text[])', 'restore_work_table(regclass, text, text, text[])', 'restore_rows(regclass, regclass, text[], text[], tid[])']) AS f \gexec
\endif

-- Nobody else has rights on either, by earlier grants or by default.
SELECT format('REVOKE ALL ON %s FROM %s CASCADE', what, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END)
FROM (
  SELECT 'SCHEMA ' || nspname, nspowner, nspacl FROM pg_namespace WHERE nspname IN ('cleanupd', 'cleanupd_trash')
  UNION ALL SELECT format('FUNCTION %s', oid::regprocedure), proowner, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc
    WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cleanupd') AND proname IN ('drop_work_tables', 'count_work_table', 'trash_work_table', 'restore_work_table', 'restore_rows')
) AS o (what, owner, acl) CROSS JOIN LATERAL aclexplode(acl) WHERE grantee <> owner \gexec
\if :campaign
GRANT EXECUTE ON FUNCTION cleanupd.drop_work_tables(regclass[]), cleanupd.count_work_table(regclass), cleanupd.trash_work_table(regclass, text, text[]),
  cleanupd.restore_work_table(regclass, text, text, text[]), cleanupd.restore_rows(regclass, regclass, text[], text[], tid[]) TO :"role";
\endif

COMMIT;
\if :campaign
\echo Now run rights.sql as the role of the application.
\else
\echo Campaign is not in this database. Now run as the owner of the tables what this prints: cleanupd policies grants FILE
\endif
