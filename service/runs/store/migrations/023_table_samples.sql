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

---- create above / drop below ----

DROP TABLE cleanupd.table_sampler;
DROP TABLE cleanupd.table_counter;
DROP TABLE cleanupd.table_sample;
DROP TABLE cleanupd.sampled_table;
DROP TABLE cleanupd.table_sampling;
