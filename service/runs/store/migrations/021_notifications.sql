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

-- Times of the schedule at which no run started.
CREATE TABLE cleanupd.missed_run (
  due_time  timestamptz PRIMARY KEY,
  find_time timestamptz NOT NULL DEFAULT clock_timestamp(),
  notified  boolean NOT NULL DEFAULT false -- its notifications are stored
);

-- Whether the notifications of a run that ended are stored. Runs that ended before this migration have none.
ALTER TABLE cleanupd.run ADD notified boolean NOT NULL DEFAULT true;
ALTER TABLE cleanupd.run ALTER notified SET DEFAULT false;
UPDATE cleanupd.run SET notified = false WHERE end_time IS NULL;
CREATE INDEX run_not_notified ON cleanupd.run (create_time) WHERE end_time IS NOT NULL AND NOT dry_run AND NOT notified;

---- create above / drop below ----

ALTER TABLE cleanupd.run DROP notified;
DROP TABLE cleanupd.missed_run;
DROP TABLE cleanupd.notification;
