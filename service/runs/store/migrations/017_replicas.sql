-- The replicas of the service, as they tell of themselves every half minute.
CREATE TABLE cleanupd.replica (
  name       text PRIMARY KEY,
  version    text NOT NULL,
  schedule   boolean NOT NULL, -- it starts the runs of the schedule
  start_time timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_time  timestamptz NOT NULL DEFAULT clock_timestamp()
);

---- create above / drop below ----

DROP TABLE cleanupd.replica;
