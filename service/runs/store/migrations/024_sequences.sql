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

DROP TABLE cleanupd.forecast;
DROP TABLE cleanupd.sequence_sample;
