-- The pace of runs, pauses, and the windows of the schedule in which its runs may work.
ALTER TABLE cleanupd.run
  DROP CONSTRAINT run_state_check,
  ADD CONSTRAINT run_state_check CHECK (state IN ('QUEUED', 'RUNNING', 'PAUSED', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  ADD pace text NOT NULL DEFAULT 'BALANCED' CHECK (pace IN ('GENTLE', 'BALANCED', 'FAST')),
  ADD pause_time timestamptz,                 -- since when it is paused
  ADD paused_by text NOT NULL DEFAULT '',     -- a caller, or "schedule" outside of its windows
  ADD paused_for interval NOT NULL DEFAULT '0', -- the time of earlier pauses
  ADD pause_stops_clock boolean NOT NULL DEFAULT false,
  ADD window_until timestamptz;               -- when the windows apply anew; NULL without windows
DROP INDEX cleanupd.run_one_active_a_slot;
CREATE UNIQUE INDEX run_one_active_a_slot ON cleanupd.run (slot) WHERE state IN ('QUEUED', 'RUNNING', 'PAUSED');

ALTER TABLE cleanupd.schedule
  ADD pace text NOT NULL DEFAULT '',          -- of its runs; '' for that of the service
  ADD windows jsonb NOT NULL DEFAULT '[]',
  ADD pause_stops_clock boolean NOT NULL DEFAULT false;

---- create above / drop below ----

UPDATE cleanupd.run SET state = 'CANCELLED', error = 'the version was rolled back while the run was paused',
  end_time = clock_timestamp() WHERE state = 'PAUSED';
ALTER TABLE cleanupd.schedule DROP pause_stops_clock, DROP windows, DROP pace;
DROP INDEX cleanupd.run_one_active_a_slot;
CREATE UNIQUE INDEX run_one_active_a_slot ON cleanupd.run (slot) WHERE state IN ('QUEUED', 'RUNNING');
ALTER TABLE cleanupd.run
  DROP window_until, DROP pause_stops_clock, DROP paused_for, DROP paused_by, DROP pause_time, DROP pace,
  DROP CONSTRAINT run_state_check,
  ADD CONSTRAINT run_state_check CHECK (state IN ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED'));
