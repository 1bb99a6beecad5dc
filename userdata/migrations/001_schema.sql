-- The record of erasures, which is also their receipt.
CREATE TABLE cleanupd.erasure (
  id              uuid PRIMARY KEY,
  forms_id        text NOT NULL, -- which Forms database it is of, as that database's own table says
  -- PURGING: a run works on it, and replicas leave it to that run.
  state           text NOT NULL DEFAULT 'RUNNING' CHECK (state IN ('RUNNING', 'PURGING', 'SUCCEEDED', 'FAILED')),
  requested_by    text NOT NULL,
  run_id          uuid,          -- the run, and the rule, that it was made for; NULL: somebody has requested it
  purge           jsonb,
  sweep           boolean NOT NULL DEFAULT false, -- of no items, but of the documents whose tasks and form data do not exist
  create_time     timestamptz NOT NULL DEFAULT clock_timestamp(),
  end_time        timestamptz,
  heartbeat       timestamptz,   -- when the replica that works on it last said that it is alive; NULL: none has said so yet
  user_id_hash    text NOT NULL, -- salted; empty when ids were given
  salt            text NOT NULL,
  entries_applied bigint NOT NULL DEFAULT 0, -- entries of the ledger in the Forms database that are recorded here
  last_sequence   bigint NOT NULL DEFAULT 0, -- of its events
  verification    jsonb          -- what was found when it was last searched again; NULL: it was not
);
CREATE INDEX erasure_run_id ON cleanupd.erasure (run_id) WHERE run_id IS NOT NULL;

-- The process instances and orphan tasks that an erasure is about.
CREATE TABLE cleanupd.erasure_item (
  erasure_id uuid NOT NULL REFERENCES cleanupd.erasure,
  kind       text NOT NULL CHECK (kind IN ('instance', 'task')),
  item_id    bigint NOT NULL,
  state      text NOT NULL DEFAULT 'PENDING' CHECK (state IN ('PENDING', 'PURGING', 'DONE', 'FAILED')),
  PRIMARY KEY (erasure_id, kind, item_id)
);

-- How many rows were deleted, by table.
CREATE TABLE cleanupd.erasure_rows (
  erasure_id uuid NOT NULL REFERENCES cleanupd.erasure,
  relation   text NOT NULL,
  rows       bigint NOT NULL,
  PRIMARY KEY (erasure_id, relation)
);

-- The session ids whose documents must be deleted from the folder: nothing else is left to find them by.
CREATE TABLE cleanupd.erasure_session (
  forms_id   text NOT NULL,
  session_id text NOT NULL,
  erasure_id uuid NOT NULL REFERENCES cleanupd.erasure, -- the one that must delete them
  kind       text NOT NULL,                             -- of the item they come from
  item_id    bigint NOT NULL,
  PRIMARY KEY (forms_id, session_id)
);

-- The files that are about to be deleted from the folder: one that no longer exists was deleted, even if that was not
-- reported.
CREATE TABLE cleanupd.erasure_file (
  erasure_id uuid NOT NULL REFERENCES cleanupd.erasure,
  name       bytea NOT NULL -- a path within the folder, as the file system spells it
);

CREATE TABLE cleanupd.erasure_event (
  erasure_id uuid NOT NULL REFERENCES cleanupd.erasure,
  sequence   bigint NOT NULL,
  time       timestamptz NOT NULL DEFAULT clock_timestamp(),
  body       jsonb NOT NULL,
  PRIMARY KEY (erasure_id, sequence)
);

-- Purges of process instances that have ended long ago, each a task of runs: the rules.
CREATE TABLE cleanupd.forms_purge (
  forms_id    text NOT NULL,
  name        text NOT NULL,
  application text NOT NULL,
  workflow    text NOT NULL,   -- empty: all of the application
  date_column text NOT NULL,   -- of tb_process_instance
  days        integer NOT NULL,
  enabled     boolean NOT NULL,
  PRIMARY KEY (forms_id, name)
);

-- The sessions of documents whose task or form data a sweep has not found, since when: only what stays missing is swept.
CREATE TABLE cleanupd.dead_session (
  forms_id   text NOT NULL,
  session_id text NOT NULL,
  found_time timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (forms_id, session_id)
);

-- The highest ids that sweeps have seen, by table of the Forms database.
CREATE TABLE cleanupd.highest_id (
  forms_id text NOT NULL,
  relation text NOT NULL,
  id       bigint NOT NULL,
  PRIMARY KEY (forms_id, relation)
);

---- create above / drop below ----

DROP TABLE cleanupd.highest_id, cleanupd.dead_session, cleanupd.forms_purge, cleanupd.erasure_event, cleanupd.erasure_file,
  cleanupd.erasure_session, cleanupd.erasure_rows, cleanupd.erasure_item, cleanupd.erasure;
