-- For how long tasks were paused: forecasts are about the time in which they worked.
ALTER TABLE cleanupd.task ADD paused_for interval NOT NULL DEFAULT '0';

-- Rows that foreign keys deleted (and, of a table, changed) with others. rows_deleted and rows_updated of a table include
-- them, those of a task include the changed ones.
ALTER TABLE cleanupd.task ADD rows_cascaded bigint NOT NULL DEFAULT 0;
ALTER TABLE cleanupd.space ADD rows_cascaded bigint NOT NULL DEFAULT 0;

---- create above / drop below ----

ALTER TABLE cleanupd.space DROP rows_cascaded;
ALTER TABLE cleanupd.task DROP rows_cascaded;
ALTER TABLE cleanupd.task DROP paused_for;
