-- For how long tasks were paused: forecasts are about the time in which they worked.
ALTER TABLE cleanupd.task ADD paused_for interval NOT NULL DEFAULT '0';

-- Rows that foreign keys deleted (and, of a table, changed) with others. rows_deleted and rows_updated of a table include
-- them, those of a task include the changed ones.
ALTER TABLE cleanupd.task ADD rows_cascaded bigint NOT NULL DEFAULT 0;
ALTER TABLE cleanupd.space ADD rows_cascaded bigint NOT NULL DEFAULT 0;

-- The tables that a policy's names stood for when it was set: a rule was proven for these, and for no namesakes. A policy
-- from before names its tables anew at each run, so that it must prove its rule again.
ALTER TABLE cleanupd.policy ADD relations jsonb;
UPDATE cleanupd.policy SET proven = '';

-- Whether PruneDryRuns has been at a dry run. The index keeps its steps from reading those that it has been at.
ALTER TABLE cleanupd.run ADD pruned boolean NOT NULL DEFAULT false;
CREATE INDEX run_not_pruned ON cleanupd.run (end_time) WHERE dry_run AND NOT pruned;

---- create above / drop below ----

ALTER TABLE cleanupd.run DROP pruned;
ALTER TABLE cleanupd.policy DROP relations;
ALTER TABLE cleanupd.space DROP rows_cascaded;
ALTER TABLE cleanupd.task DROP rows_cascaded;
ALTER TABLE cleanupd.task DROP paused_for;
