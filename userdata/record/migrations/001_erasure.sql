CREATE TABLE cleanupd.erasure (
  id            uuid PRIMARY KEY,
  state         text NOT NULL DEFAULT 'RUNNING' CHECK (state IN ('RUNNING', 'SUCCEEDED', 'FAILED')),
  requested_by  text NOT NULL,
  create_time   timestamptz NOT NULL DEFAULT clock_timestamp(),
  end_time      timestamptz,
  user_id_hash  text NOT NULL,             -- salted; empty when ids were given
  salt          text NOT NULL,
  last_sequence bigint NOT NULL DEFAULT 0
);

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
  session_id text PRIMARY KEY,
  erasure_id uuid NOT NULL REFERENCES cleanupd.erasure, -- the one that must delete them
  kind       text NOT NULL,                             -- of the item they come from
  item_id    bigint NOT NULL
);

CREATE TABLE cleanupd.erasure_event (
  erasure_id uuid NOT NULL REFERENCES cleanupd.erasure,
  sequence   bigint NOT NULL,
  time       timestamptz NOT NULL DEFAULT clock_timestamp(),
  body       jsonb NOT NULL,
  PRIMARY KEY (erasure_id, sequence)
);

---- create above / drop below ----

DROP TABLE cleanupd.erasure_event, cleanupd.erasure_session, cleanupd.erasure_rows, cleanupd.erasure_item, cleanupd.erasure;
