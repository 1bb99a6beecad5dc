-- What is unusual needs somebody's word: the settings of the guards, and what they compare with.
CREATE TABLE cleanupd.guards (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  settings jsonb NOT NULL);

-- The guards that tripped, until a plan that accepted them has run, or an option or the guard has changed.
CREATE TABLE cleanupd.latch (
  task       text NOT NULL,
  guard      text NOT NULL,
  table_name text NOT NULL,  -- quoted, with its schema; or the mask of work tables
  number     bigint NOT NULL,
  most       bigint NOT NULL,
  options    jsonb NOT NULL, -- those that the task reads, as they were
  run_id     uuid NOT NULL,  -- the first that was refused
  trip_time  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (task, guard, table_name));

-- What cutoffs were when tasks last succeeded.
CREATE TABLE cleanupd.cutoff (
  task           text NOT NULL,
  delay          text NOT NULL,        -- its option; empty: the run's clock
  cutoff         timestamptz NOT NULL,
  reference_time timestamptz NOT NULL,
  clock_offset   bigint NOT NULL,      -- microseconds that the replica's clock was ahead of the database's
  PRIMARY KEY (task, delay));

-- What runs that have ended took of tables; kept for longer than the runs.
CREATE TABLE cleanupd.taken (
  run_id       uuid NOT NULL,
  table_name   text NOT NULL,  -- quoted, with its schema
  start_time   timestamptz NOT NULL,
  rows_deleted bigint NOT NULL,
  rows_updated bigint NOT NULL,
  usual        boolean NOT NULL,  -- no guard refused the run, and none was passed
  PRIMARY KEY (run_id, table_name));
CREATE INDEX ON cleanupd.taken (start_time);

ALTER TABLE cleanupd.space
  ADD root         text NOT NULL DEFAULT '',  -- the table that the relation is a part of; empty: unknown
  ADD rows_updated bigint NOT NULL DEFAULT 0;
ALTER TABLE cleanupd.run ADD accepted jsonb;  -- the guards that it may pass, with the numbers that were accepted

INSERT INTO cleanupd.taken
SELECT r.id, s.relation, r.start_time, sum(s.rows_deleted), 0, true
FROM cleanupd.run r JOIN cleanupd.space s ON s.run_id = r.id
WHERE NOT r.dry_run AND r.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED') AND s.rows_deleted > 0 GROUP BY 1, 2, 3;

---- create above / drop below ----

ALTER TABLE cleanupd.run DROP accepted;
ALTER TABLE cleanupd.space DROP root, DROP rows_updated;
DROP TABLE cleanupd.taken;
DROP TABLE cleanupd.cutoff;
DROP TABLE cleanupd.latch;
DROP TABLE cleanupd.guards;
