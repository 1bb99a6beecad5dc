ALTER TABLE cleanupd.schedule
  ADD more_crons        text[] NOT NULL DEFAULT '{}',   -- beside cron
  ADD continue_on_error boolean NOT NULL DEFAULT true;  -- of its runs

---- create above / drop below ----

ALTER TABLE cleanupd.schedule DROP more_crons, DROP continue_on_error;
