-- The obsolete rows that a task left, by the reason, as purge.Left has them; and in words what it left, or why it was not run.
ALTER TABLE cleanupd.task
  ADD rows_refused bigint NOT NULL DEFAULT 0,
  ADD rows_locked  bigint NOT NULL DEFAULT 0,
  ADD rows_kept    bigint NOT NULL DEFAULT 0,
  ADD rows_bound   bigint NOT NULL DEFAULT 0,
  ADD tables_left  bigint NOT NULL DEFAULT 0,
  ADD detail       text NOT NULL DEFAULT '';

---- create above / drop below ----

ALTER TABLE cleanupd.task DROP rows_refused, DROP rows_locked, DROP rows_kept, DROP rows_bound, DROP tables_left, DROP detail;
