-- The rights that cleanupd needs in a Forms database of PostgreSQL, each where it is needed and no more.
-- Run `cleanupd migrate --forms-database-url` as the database's owner first: it creates the schema cleanupd.
GRANT USAGE ON SCHEMA public TO cleanupd;
GRANT USAGE ON SCHEMA cleanupd TO cleanupd;
-- Who is meant, and in which workflows.
GRANT SELECT ON edcprincipalentity TO cleanupd;
GRANT SELECT ON tb_queue TO cleanupd;
GRANT SELECT ON omd_object_type TO cleanupd;
-- Process instances are set to TERMINATED before they are deleted.
GRANT SELECT, UPDATE (status), DELETE ON tb_process_instance TO cleanupd;
-- Tasks, with what depends on them. A row can be locked only with the right to update a column of it.
GRANT SELECT, UPDATE (id), DELETE ON tb_task TO cleanupd;
GRANT SELECT, DELETE ON tb_assignment TO cleanupd;
GRANT SELECT, DELETE ON tb_form_data TO cleanupd;
GRANT SELECT, DELETE ON tb_task_acl TO cleanupd;
GRANT SELECT, DELETE ON tb_task_attachment TO cleanupd;
-- The documents, with --forms-gds-in-database.
GRANT SELECT, DELETE ON tb_dm_chunk TO cleanupd;
GRANT SELECT, DELETE ON tb_dm_session_reference TO cleanupd;
GRANT SELECT, DELETE ON tb_dm_deletion TO cleanupd;
-- Each workflow's variables: one line for every tb_<number> that SELECT database_table FROM omd_object_type names.
GRANT SELECT, DELETE ON tb_101 TO cleanupd;
GRANT SELECT, DELETE ON tb_102 TO cleanupd;
GRANT SELECT, DELETE ON tb_103 TO cleanupd;
-- The service's own tables: which database this is, which replica works on an erasure, and what each transaction has deleted.
GRANT SELECT ON cleanupd.forms_identity TO cleanupd;
GRANT SELECT, INSERT, UPDATE, DELETE ON cleanupd.forms_erasure TO cleanupd;
GRANT SELECT, INSERT, DELETE ON cleanupd.forms_ledger TO cleanupd;
