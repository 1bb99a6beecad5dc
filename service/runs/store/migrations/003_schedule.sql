CREATE TABLE cleanupd.schedule (
  only_row      boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  cron          text,
  once          timestamptz,
  time_zone     text NOT NULL,
  enabled       boolean NOT NULL,
  max_duration  interval,
  next_run_time timestamptz,                    -- authoritative; NULL: none
  pending       boolean NOT NULL DEFAULT false, -- a time came while a run was active
  last_run_id   uuid REFERENCES cleanupd.run ON DELETE SET NULL,
  CHECK ((cron IS NULL) <> (once IS NULL))
);

---- create above / drop below ----

DROP TABLE cleanupd.schedule;
