-- The tables that a run's tasks deleted from, or vacuumed.
CREATE TABLE cleanupd.space (
  run_id             uuid NOT NULL REFERENCES cleanupd.run ON DELETE CASCADE,
  task               text NOT NULL,
  relation           text NOT NULL,            -- quoted, with its schema
  rows_deleted       bigint NOT NULL,
  table_bytes_before bigint NOT NULL,
  index_bytes_before bigint NOT NULL,
  table_bytes_after  bigint,
  index_bytes_after  bigint,
  dead_bytes         bigint,
  free_bytes         bigint,
  PRIMARY KEY (run_id, task, relation)
);

---- create above / drop below ----

DROP TABLE cleanupd.space;
