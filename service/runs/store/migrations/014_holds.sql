-- What stays, whatever the rules say. Holds are never deleted. Their numbers tell a run whether one was created since it read them.
CREATE TABLE cleanupd.hold (
  number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id           uuid NOT NULL UNIQUE,
  kind         text NOT NULL CHECK (kind IN ('DELIVERIES', 'LISTS', 'WORKFLOWS', 'TABLE', 'RECIPIENTS', 'EVERYTHING')),
  ids          bigint[] NOT NULL,    -- of the rows that it is about
  table_name   text NOT NULL,        -- the table that it is about
  not_covered  text[] NOT NULL,      -- tables that reach its recipients otherwise
  reason       text NOT NULL,
  created_by   text NOT NULL,
  create_time  timestamptz NOT NULL DEFAULT clock_timestamp(),
  expire_time  timestamptz,
  release_time timestamptz,
  released_by  text NOT NULL DEFAULT '');

-- Ends a batch that began before a hold was created. The SQLSTATE is the service's own.
CREATE FUNCTION cleanupd.held_meanwhile() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RAISE 'a hold was created since the task began' USING ERRCODE = 'CU002';
END $$;

ALTER TABLE cleanupd.task ADD rows_held bigint NOT NULL DEFAULT 0;  -- obsolete rows that stay since they are held

---- create above / drop below ----

ALTER TABLE cleanupd.task DROP rows_held;
DROP FUNCTION cleanupd.held_meanwhile();
DROP TABLE cleanupd.hold;
