-- Who cleans this database: the name of the service's instance, and the database as it was then. A copy has another identity.
CREATE TABLE cleanupd.instance (
  only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  name              text NOT NULL,
  system_identifier text NOT NULL,
  database_oid      bigint NOT NULL,
  adopt_time        timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The replicas of the service, as they tell of themselves every half minute.
CREATE TABLE cleanupd.replica (
  name       text PRIMARY KEY,
  version    text NOT NULL,
  schedule   boolean NOT NULL, -- it starts the runs of the schedule
  start_time timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_time  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Runs ---------------------------------------------------------------------------------------------------------------

CREATE TABLE cleanupd.run (
  id                uuid PRIMARY KEY,
  slot              smallint NOT NULL,      -- 0 for a run that deletes, 1 and 2 for dry runs, 3 for a run that waits for slot 0
  state             text NOT NULL DEFAULT 'QUEUED' CHECK (state IN ('QUEUED', 'RUNNING', 'PAUSED', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  dry_run           boolean NOT NULL,
  plan              uuid,                   -- the dry run that it does
  what_if           jsonb,                  -- the options that a dry run supposes to be stored
  restore           jsonb,                  -- what it brings back from the trash; NULL for a run that deletes
  accepted_guards   jsonb,                  -- the guards that it may pass, with the numbers that were accepted
  continue_on_error boolean NOT NULL,
  max_duration      interval,
  requested_by      text NOT NULL,
  request_id        uuid,                   -- that the caller gave its request: a repeated request starts nothing
  request_digest    bytea,                  -- of that request
  trace_parent      text NOT NULL DEFAULT '', -- the span of the call, in the format of W3C trace context; empty: not traced
  reference_time    timestamptz,
  create_time       timestamptz NOT NULL DEFAULT clock_timestamp(),
  start_time        timestamptz,
  end_time          timestamptz,
  error             text NOT NULL DEFAULT '',
  cause             text NOT NULL DEFAULT '',
  cancel_requested  boolean NOT NULL DEFAULT false,

  -- who works on it
  epoch             bigint NOT NULL DEFAULT 0,
  lease_until       timestamptz,
  replica           text NOT NULL DEFAULT '',
  server_start      timestamptz,                 -- of the database server, when the run was last claimed
  failed_attempts   integer NOT NULL DEFAULT 0,  -- how often in a row it was resumed without progress
  progress_hash     text NOT NULL DEFAULT '',    -- of its progress when it was last resumed

  -- how hard, and when
  pace              text NOT NULL DEFAULT 'BALANCED' CHECK (pace IN ('GENTLE', 'BALANCED', 'FAST')),
  pause_time        timestamptz,                 -- since when it is paused
  paused_by         text NOT NULL DEFAULT '',    -- a caller, or "schedule" outside of its windows
  paused_for        interval NOT NULL DEFAULT '0', -- the time of earlier pauses
  pause_stops_clock boolean NOT NULL DEFAULT false,
  window_until      timestamptz,                 -- when the windows apply again; NULL without windows; in the past while the run waits for slot 0 in an open one

  last_sequence     bigint NOT NULL DEFAULT 0,   -- of its events
  notified          boolean NOT NULL DEFAULT false, -- its notifications are stored
  pruned            boolean NOT NULL DEFAULT false, -- PruneDryRuns has been at it
  CONSTRAINT run_waits_for_its_slot CHECK (slot <> 3 OR state NOT IN ('QUEUED', 'RUNNING'))
);
-- One active run that deletes, at most two dry ones beside it, and one that waits until the first one has ended.
CREATE UNIQUE INDEX run_one_active_a_slot ON cleanupd.run (slot) WHERE state IN ('QUEUED', 'RUNNING', 'PAUSED');
CREATE UNIQUE INDEX run_request_id ON cleanupd.run (request_id);
CREATE INDEX run_newest_first ON cleanupd.run (create_time DESC, id DESC);
CREATE INDEX run_not_notified ON cleanupd.run (create_time) WHERE end_time IS NOT NULL AND NOT dry_run AND NOT notified;
CREATE INDEX run_not_pruned ON cleanupd.run (end_time) WHERE dry_run AND NOT pruned;

CREATE TABLE cleanupd.task (
  run_id         uuid NOT NULL REFERENCES cleanupd.run ON DELETE CASCADE,
  position       smallint NOT NULL,         -- in the pipeline, from 1
  name           text NOT NULL,
  kind           text NOT NULL CHECK (kind IN ('BUILT_IN', 'POLICY', 'EXTERNAL')),
  chosen         boolean NOT NULL,
  state          text NOT NULL CHECK (state IN ('PENDING', 'RUNNING', 'SUCCEEDED', 'SKIPPED', 'FAILED', 'NOT_RUN', 'CANCELLED')),
  undo           interval NOT NULL DEFAULT '0', -- for how long the trash keeps what it deletes; 0: not at all
  epoch          bigint NOT NULL DEFAULT 0, -- that of its run, which fences batches
  cursor         jsonb NOT NULL DEFAULT '{}',
  batches        bigint NOT NULL DEFAULT 0,
  start_time     timestamptz,
  end_time       timestamptz,
  paused_for     interval NOT NULL DEFAULT '0', -- forecasts are about the time in which it worked

  rows_deleted   bigint NOT NULL DEFAULT 0,
  rows_updated   bigint NOT NULL DEFAULT 0, -- with the rows that foreign keys changed
  rows_cascaded  bigint NOT NULL DEFAULT 0, -- that foreign keys deleted; rows_deleted does not have them
  tables_dropped bigint NOT NULL DEFAULT 0,
  partitions_removed bigint NOT NULL DEFAULT 0, -- dropped with all rows, or detached

  -- of a restore
  rows_restored  bigint NOT NULL DEFAULT 0,
  rows_existing  bigint NOT NULL DEFAULT 0, -- that stayed in the trash, since rows with their keys exist again

  -- obsolete and retained, by the reason
  rows_failed                bigint NOT NULL DEFAULT 0,
  rows_locked                bigint NOT NULL DEFAULT 0,
  rows_suppressed            bigint NOT NULL DEFAULT 0,
  rows_dependent             bigint NOT NULL DEFAULT 0,
  rows_on_hold               bigint NOT NULL DEFAULT 0,
  tables_retained            bigint NOT NULL DEFAULT 0,
  remote_deliveries_retained bigint NOT NULL DEFAULT 0,

  error          text NOT NULL DEFAULT '',
  detail         text NOT NULL DEFAULT '',  -- what was retained, or why it was not run, in words
  details        jsonb,                     -- the messages of which detail consists, with their codes
  reason         text NOT NULL DEFAULT '',  -- why it was refused, for programs
  metadata       jsonb,
  preview        jsonb,                     -- what a dry run found, table by table
  saved_plan     jsonb,                     -- what a run needs to do that and no more
  PRIMARY KEY (run_id, position)
);

-- The tables that a run's tasks deleted from, or vacuumed.
CREATE TABLE cleanupd.space (
  run_id             uuid NOT NULL REFERENCES cleanupd.run ON DELETE CASCADE,
  task               text NOT NULL,
  relation           text NOT NULL,             -- quoted, with its schema
  root               text NOT NULL DEFAULT '',  -- the table that the relation is a part of; empty: unknown
  rows_deleted       bigint NOT NULL,           -- with those that foreign keys deleted
  rows_updated       bigint NOT NULL DEFAULT 0, -- the same
  rows_cascaded      bigint NOT NULL DEFAULT 0, -- those that foreign keys deleted or changed
  table_bytes_before bigint NOT NULL,
  index_bytes_before bigint NOT NULL,
  table_bytes_after  bigint,
  index_bytes_after  bigint,
  dead_bytes         bigint,
  free_bytes         bigint,
  PRIMARY KEY (run_id, task, relation)
);

CREATE TABLE cleanupd.event (
  run_id     uuid NOT NULL REFERENCES cleanupd.run ON DELETE CASCADE,
  sequence   bigint NOT NULL,
  time       timestamptz NOT NULL DEFAULT clock_timestamp(),
  generation bigint NOT NULL DEFAULT 0, -- the epoch in which it was written
  body       jsonb NOT NULL,
  PRIMARY KEY (run_id, sequence)
);

-- These end a batch. Their SQLSTATEs are the service's own.
CREATE FUNCTION cleanupd.fenced() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RAISE 'the run is not held by this replica' USING ERRCODE = 'CU001';
END $$;
CREATE FUNCTION cleanupd.hold_created() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RAISE 'a hold was created since the task began' USING ERRCODE = 'CU002';
END $$;
CREATE FUNCTION cleanupd.policy_changed() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RAISE 'the policy was changed since the task began' USING ERRCODE = 'CU003';
END $$;

-- The deliveries that stay on mid-sourcing servers, since they were deleted here alone: an entry is written with the
-- deletion, and goes when its delivery is gone there, however old its run is.
CREATE TABLE cleanupd.remote_delivery (
  account     text COLLATE "C" NOT NULL, -- the name of the external account; empty: there was none
  remote_id   bigint NOT NULL,           -- the delivery's id there
  delivery_id bigint NOT NULL,           -- its id here
  label       text NOT NULL,
  run_id      uuid NOT NULL,             -- the run may be forgotten
  retain_time timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (account, remote_id, delivery_id)
);

-- What runs with undo deleted. An entry has its rows in a table of the schema cleanupd_trash, which the first such run makes.
CREATE TABLE cleanupd.trash (
  id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of deletion
  run_id        uuid NOT NULL,             -- the run may be forgotten
  task          text NOT NULL,
  kind          text NOT NULL CHECK (kind IN ('ROWS', 'TABLE', 'PARTITION', 'VIEW')),
  root          text NOT NULL,             -- the quoted name of the table into which the rows belong
  name          text NOT NULL GENERATED ALWAYS AS (lower(kind) || '_' || id::text) STORED, -- in cleanupd_trash
  columns       jsonb NOT NULL,            -- with their types; empty for a dropped relation
  relation      jsonb,                     -- how a dropped relation is made again
  rows_trashed  bigint NOT NULL DEFAULT 0, -- all that came
  rows_restored bigint NOT NULL DEFAULT 0,
  rows_purged   bigint NOT NULL DEFAULT 0, -- that an administrator deleted
  rows_expired  bigint NOT NULL DEFAULT 0,
  keep          interval NOT NULL,
  create_time   timestamptz NOT NULL DEFAULT clock_timestamp(),
  expire_time   timestamptz,               -- NULL until its run has ended
  end_time      timestamptz                -- when nothing of it was left; NULL before
);
CREATE INDEX trash_of_run ON cleanupd.trash (run_id);

-- When runs begin --------------------------------------------------------------------------------------------------------

CREATE TABLE cleanupd.schedule (
  only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  cron              text,
  more_crons        text[] NOT NULL DEFAULT '{}',
  once              timestamptz,
  time_zone         text NOT NULL,
  enabled           boolean NOT NULL,
  continue_on_error boolean NOT NULL DEFAULT true,
  max_duration      interval,
  pace              text NOT NULL DEFAULT '',   -- of its runs; empty: that of the service
  windows           jsonb NOT NULL DEFAULT '[]', -- in which its runs may work
  pause_stops_clock boolean NOT NULL DEFAULT false,
  undo              interval,                   -- of its runs; NULL: that of the service
  next_plan         uuid,                       -- the dry run that the next run does
  next_run_time     timestamptz,                -- authoritative; NULL: none
  pending           boolean NOT NULL DEFAULT false, -- a time came while a run was active
  -- The server's timeline when the next time was set, or seen to be in the future; empty: not known. On another one,
  -- times that passed are not caught up.
  timeline          text NOT NULL DEFAULT '',
  last_run_id       uuid REFERENCES cleanupd.run ON DELETE SET NULL,
  CHECK ((cron IS NULL) <> (once IS NULL))
);

-- Times of the schedule at which no run started.
CREATE TABLE cleanupd.missed_run (
  due_time  timestamptz PRIMARY KEY,
  find_time timestamptz NOT NULL DEFAULT clock_timestamp(),
  notified  boolean NOT NULL DEFAULT false -- its notifications are stored
);

-- Notifications of what happened, one for each subject, cause and target. A subject is a run, or a time of the schedule.
CREATE TABLE cleanupd.notification (
  subject     text NOT NULL,        -- the id of the run, or the time in UTC
  cause       text NOT NULL,
  target      text NOT NULL,        -- where it is sent, without secrets
  event       jsonb NOT NULL,       -- as it is sent
  state       text NOT NULL DEFAULT 'PENDING' CHECK (state IN ('PENDING', 'SENT', 'GIVEN_UP')),
  create_time timestamptz NOT NULL,
  attempts    integer NOT NULL DEFAULT 0,
  next_time   timestamptz NOT NULL, -- of the next attempt; while a replica sends it, when another one may
  end_time    timestamptz,          -- when it was sent or given up
  error       text NOT NULL DEFAULT '', -- of the last attempt
  PRIMARY KEY (subject, cause, target)
);
CREATE INDEX notification_pending ON cleanupd.notification (target, next_time) WHERE state = 'PENDING';

-- What people decide -----------------------------------------------------------------------------------------------------

-- Who did what: appended in the transaction of the change where there is one, and never deleted by the service.
CREATE TABLE cleanupd.audit (
  id      bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  time    timestamptz NOT NULL DEFAULT clock_timestamp(),
  subject text NOT NULL, -- empty without authentication
  role    text NOT NULL,
  by      text NOT NULL, -- certificate, token or jwt
  address text NOT NULL,
  rpc     text NOT NULL,
  details jsonb NOT NULL,
  result  text NOT NULL  -- a status code, such as OK or PERMISSION_DENIED
);

-- Legal holds. They are never deleted. Their numbers tell a run whether one was created since it read them.
CREATE TABLE cleanupd.hold (
  number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id           uuid NOT NULL UNIQUE,
  kind         text NOT NULL CHECK (kind IN ('DELIVERIES', 'LISTS', 'WORKFLOWS', 'TABLE', 'RECIPIENTS', 'ROWS', 'EVERYTHING')),
  ids          bigint[] NOT NULL,    -- of the rows that it is about
  relation     oid NOT NULL,         -- the table that it is about, whatever its name is now; 0: none
  schema_name  text NOT NULL,        -- the table's when the hold was created
  table_name   text NOT NULL,        -- the same
  rows         jsonb,                -- the rows of a table that it is about, by their values
  not_covered  text[] NOT NULL,      -- tables that reach its recipients otherwise
  reason       text NOT NULL,
  created_by   text NOT NULL,
  create_time  timestamptz NOT NULL DEFAULT clock_timestamp(),
  expire_time  timestamptz,
  release_time timestamptz,
  released_by  text NOT NULL DEFAULT ''
);

-- Retention rules for tables that the tasks of the application do not know.
CREATE TABLE cleanupd.policy (
  name           text COLLATE "C" PRIMARY KEY,
  rule           jsonb NOT NULL,
  relations      jsonb, -- the tables that its names stood for when it was set: it is for these, and for no namesakes
  proven_basis text NOT NULL DEFAULT '' -- of the rule, when a run last did it by a saved plan; while it is not that of
                                          -- the current rule, a guard refuses the policy in other runs
);

-- The limits of the guards.
CREATE TABLE cleanupd.guards (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  settings jsonb NOT NULL
);

-- What guards know -------------------------------------------------------------------------------------------------------

-- What guards refused: it stays refused until a plan that accepted it has run, or an option or the guard has changed.
CREATE TABLE cleanupd.guard_refusal (
  task         text NOT NULL,
  task_kind    text NOT NULL,  -- as in task
  guard        text NOT NULL,
  table_name   text NOT NULL,  -- quoted, with its schema; or the mask of work tables
  number       bigint NOT NULL,
  number_limit bigint NOT NULL,
  at_least     boolean NOT NULL DEFAULT false, -- whether the run stopped counting at number
  options      jsonb NOT NULL, -- those that the task reads, as they were
  run_id       uuid NOT NULL,  -- the first that was refused
  trip_time    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (task, guard, table_name)
);

-- What cutoffs were when tasks last succeeded.
CREATE TABLE cleanupd.cutoff (
  task           text NOT NULL,
  delay          text NOT NULL,        -- its option; empty: the run's clock
  cutoff         timestamptz NOT NULL,
  reference_time timestamptz NOT NULL,
  clock_offset   bigint NOT NULL,      -- microseconds that the replica's clock was ahead of the database's
  PRIMARY KEY (task, delay)
);

-- What runs that have ended deleted from tables, or changed in them; kept for longer than the runs.
CREATE TABLE cleanupd.deletion (
  run_id       uuid NOT NULL,
  table_name   text NOT NULL,     -- quoted, with its schema
  start_time   timestamptz NOT NULL,
  rows_deleted bigint NOT NULL,
  rows_updated bigint NOT NULL,
  is_typical   boolean NOT NULL,  -- no guard refused the run, and none was accepted
  PRIMARY KEY (run_id, table_name)
);
CREATE INDEX ON cleanupd.deletion (start_time);

-- The first run that somebody started by hand, or that followed a saved plan, and that succeeded in deleting. Until
-- there is one, the guard "first" refuses scheduled runs.
CREATE TABLE cleanupd.first_run (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  run_id   uuid NOT NULL,
  end_time timestamptz NOT NULL
);

-- How the database grows -------------------------------------------------------------------------------------------------

-- How large the tables of the database were, by the estimates of the server. A table has a row in table_sample only for
-- a sampling at which something had changed since the row before: most tables of an application rest, and 50,000 of
-- them would otherwise make 50,000 rows a night. A table is known by its name, so that its history survives a restore.
CREATE TABLE cleanupd.table_sampling (
  time timestamptz PRIMARY KEY
);

CREATE TABLE cleanupd.sampled_table (
  id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text NOT NULL UNIQUE,      -- with the schema, quoted where needed; of work tables, the mask of their names
  first_time timestamptz NOT NULL,      -- of the sampling that found it first
  drop_time  timestamptz                -- of the sampling that did not find it any more; NULL while it exists
);

CREATE TABLE cleanupd.table_sample (
  table_id    integer NOT NULL REFERENCES cleanupd.sampled_table ON DELETE CASCADE,
  time        timestamptz NOT NULL,     -- of the sampling
  rows        bigint NOT NULL,
  bytes       bigint NOT NULL,          -- with TOAST
  index_bytes bigint NOT NULL,
  inserted    bigint NOT NULL DEFAULT 0, -- rows since the row before
  deleted     bigint NOT NULL DEFAULT 0, -- the same
  reset       boolean NOT NULL DEFAULT false, -- statistics were reset since: more may have been inserted and deleted
  PRIMARY KEY (table_id, time)
);

-- The server's counters at the last sampling, of tables and partitions.
CREATE TABLE cleanupd.table_counter (
  relation oid PRIMARY KEY,
  inserted bigint NOT NULL,
  deleted  bigint NOT NULL
);

-- The replica that samples locks the row.
CREATE TABLE cleanupd.table_sampler (
  only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  last_time timestamptz
);
INSERT INTO cleanupd.table_sampler DEFAULT VALUES;

-- The last values of the sequences that give ids, one a day, to know when they reach their limits.
CREATE TABLE cleanupd.sequence_sample (
  sequence    text NOT NULL,        -- its quoted name with the schema
  sample_time timestamptz NOT NULL,
  last_value  bigint NOT NULL,
  PRIMARY KEY (sequence, sample_time)
);

-- The last forecast, for metrics: whether runs keep up with each task.
CREATE TABLE cleanupd.forecast (
  task          text PRIMARY KEY,
  trend         text NOT NULL,
  bound         text NOT NULL,
  forecast_time timestamptz NOT NULL
);

---- create above / drop below ----

DROP TABLE cleanupd.trash, cleanupd.forecast, cleanupd.sequence_sample, cleanupd.table_sampler, cleanupd.table_counter, cleanupd.table_sample,
  cleanupd.sampled_table, cleanupd.table_sampling, cleanupd.first_run, cleanupd.deletion, cleanupd.cutoff,
  cleanupd.guard_refusal, cleanupd.guards, cleanupd.policy, cleanupd.hold, cleanupd.audit, cleanupd.notification,
  cleanupd.missed_run, cleanupd.schedule, cleanupd.remote_delivery, cleanupd.event, cleanupd.space, cleanupd.task,
  cleanupd.run, cleanupd.replica, cleanupd.instance;
DROP FUNCTION cleanupd.fenced(), cleanupd.hold_created(), cleanupd.policy_changed();
