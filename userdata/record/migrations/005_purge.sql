-- Purges of process instances that have ended long ago, as tasks of runs: the rules, and which erasures they have made.
CREATE TABLE cleanupd.forms_purge (
  forms       text NOT NULL,   -- which Forms database, as its own table says
  name        text NOT NULL,
  application text NOT NULL,
  workflow    text NOT NULL,   -- empty: all of the application
  date_column text NOT NULL,   -- of tb_process_instance
  days        integer NOT NULL,
  enabled     boolean NOT NULL,
  PRIMARY KEY (forms, name)
);
-- The state PURGING is that of an erasure which a run works on: replicas leave it to that run.
ALTER TABLE cleanupd.erasure DROP CONSTRAINT erasure_state_check,
  ADD CONSTRAINT erasure_state_check CHECK (state IN ('RUNNING', 'PURGING', 'SUCCEEDED', 'FAILED'));
ALTER TABLE cleanupd.erasure ADD run_id uuid, ADD purge jsonb; -- NULL: somebody has requested it
CREATE INDEX erasure_run_id ON cleanupd.erasure (run_id) WHERE run_id IS NOT NULL;

---- create above / drop below ----

DROP INDEX cleanupd.erasure_run_id;
UPDATE cleanupd.erasure SET state = 'FAILED' WHERE state = 'PURGING';
ALTER TABLE cleanupd.erasure DROP run_id, DROP purge, DROP CONSTRAINT erasure_state_check,
  ADD CONSTRAINT erasure_state_check CHECK (state IN ('RUNNING', 'SUCCEEDED', 'FAILED'));
DROP TABLE cleanupd.forms_purge;
