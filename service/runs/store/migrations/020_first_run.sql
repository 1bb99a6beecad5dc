-- The first run that somebody started by hand, or that followed a saved plan, and that succeeded in deleting. Until
-- there is one, the guard "first" refuses scheduled runs. A database that has been cleaned before this version needs
-- none.
CREATE TABLE cleanupd.first_run (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  run_id   uuid NOT NULL,
  end_time timestamptz NOT NULL);
INSERT INTO cleanupd.first_run (run_id, end_time)
  SELECT id, end_time FROM cleanupd.run WHERE NOT dry_run AND state = 'SUCCEEDED' ORDER BY end_time LIMIT 1;

---- create above / drop below ----

DROP TABLE cleanupd.first_run;
