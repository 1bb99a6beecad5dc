ALTER TABLE cleanupd.run
  ADD setbacks integer NOT NULL DEFAULT 0,   -- how often in a row it was resumed without progress
  ADD progress text NOT NULL DEFAULT '';     -- a hash of its progress when it was last resumed

---- create above / drop below ----

ALTER TABLE cleanupd.run DROP setbacks, DROP progress;
