-- The rights that cleanupd needs in a Forms database of MySQL or MariaDB, named forms here, each where it is needed and no more.
-- Run `cleanupd migrate --forms-database-url` as a user who may create tables first: it creates those that begin with cleanupd_.
-- To find. MySQL hides the tables that a user may not read: what is hidden would not be erased, so an erasure fails without this.
GRANT SELECT ON forms.* TO 'cleanupd'@'localhost';
-- Process instances are set to TERMINATED before they are deleted.
GRANT UPDATE (status), DELETE ON forms.tb_process_instance TO 'cleanupd'@'localhost';
-- Tasks, with what depends on them.
GRANT DELETE ON forms.tb_task TO 'cleanupd'@'localhost';
GRANT DELETE ON forms.tb_assignment TO 'cleanupd'@'localhost';
GRANT DELETE ON forms.tb_form_data TO 'cleanupd'@'localhost';
GRANT DELETE ON forms.tb_task_acl TO 'cleanupd'@'localhost';
GRANT DELETE ON forms.tb_task_attachment TO 'cleanupd'@'localhost';
-- The documents, with --forms-gds-in-database.
GRANT DELETE ON forms.tb_dm_chunk TO 'cleanupd'@'localhost';
GRANT DELETE ON forms.tb_dm_session_reference TO 'cleanupd'@'localhost';
GRANT DELETE ON forms.tb_dm_deletion TO 'cleanupd'@'localhost';
-- Each workflow's variables: one line for every tb_<number> that SELECT database_table FROM omd_object_type names.
GRANT DELETE ON forms.tb_101 TO 'cleanupd'@'localhost';
GRANT DELETE ON forms.tb_102 TO 'cleanupd'@'localhost';
GRANT DELETE ON forms.tb_103 TO 'cleanupd'@'localhost';
-- The service's own tables: which replica works on an erasure, and what each transaction has deleted.
GRANT INSERT, UPDATE, DELETE ON forms.cleanupd_erasure TO 'cleanupd'@'localhost';
GRANT INSERT, DELETE ON forms.cleanupd_ledger TO 'cleanupd'@'localhost';
