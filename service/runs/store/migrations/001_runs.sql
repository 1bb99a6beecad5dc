CREATE TABLE cleanupd.run (
  id                uuid PRIMARY KEY,
  slot              smallint NOT NULL,      -- 0 for a run that deletes, 1 and 2 for dry runs
  state             text NOT NULL DEFAULT 'QUEUED' CHECK (state IN ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  dry_run           boolean NOT NULL,
  continue_on_error boolean NOT NULL,
  max_duration      interval,
  requested_by      text NOT NULL,
  reference_time    timestamptz,
  create_time       timestamptz NOT NULL DEFAULT clock_timestamp(),
  start_time        timestamptz,
  end_time          timestamptz,
  error             text NOT NULL DEFAULT '',
  cause             text NOT NULL DEFAULT '',
  cancel_requested  boolean NOT NULL DEFAULT false,
  epoch             bigint NOT NULL DEFAULT 0,
  lease_until       timestamptz,
  holder            text NOT NULL DEFAULT '', -- the replica that works on it
  last_sequence     bigint NOT NULL DEFAULT 0
);

-- One active run that deletes, and at most two dry ones beside it.
CREATE UNIQUE INDEX run_one_active_a_slot ON cleanupd.run (slot) WHERE state IN ('QUEUED', 'RUNNING');
CREATE INDEX run_newest_first ON cleanupd.run (create_time DESC, id DESC);

CREATE TABLE cleanupd.task (
  run_id         uuid NOT NULL REFERENCES cleanupd.run ON DELETE CASCADE,
  position       smallint NOT NULL,         -- in the pipeline, from 1
  name           text NOT NULL,
  chosen         boolean NOT NULL,
  state          text NOT NULL CHECK (state IN ('PENDING', 'RUNNING', 'SUCCEEDED', 'SKIPPED', 'FAILED', 'NOT_RUN', 'CANCELLED')),
  rows_deleted   bigint NOT NULL DEFAULT 0,
  rows_updated   bigint NOT NULL DEFAULT 0,
  tables_dropped bigint NOT NULL DEFAULT 0,
  batches        bigint NOT NULL DEFAULT 0,
  start_time     timestamptz,
  end_time       timestamptz,
  error          text NOT NULL DEFAULT '',
  cursor         jsonb NOT NULL DEFAULT '{}',
  epoch          bigint NOT NULL DEFAULT 0, -- that of its run, which fences batches
  PRIMARY KEY (run_id, position)
);

CREATE TABLE cleanupd.event (
  run_id   uuid NOT NULL REFERENCES cleanupd.run ON DELETE CASCADE,
  sequence bigint NOT NULL,
  time     timestamptz NOT NULL DEFAULT clock_timestamp(),
  body     jsonb NOT NULL,
  PRIMARY KEY (run_id, sequence)
);

---- create above / drop below ----

DROP TABLE cleanupd.event, cleanupd.task, cleanupd.run;
