ALTER TABLE cleanupd.run
  ADD setbacks integer NOT NULL DEFAULT 0,   -- how often in a row it was taken up again without having come further
  ADD progress text NOT NULL DEFAULT '';     -- how far it had come when it was taken up last

---- create above / drop below ----

ALTER TABLE cleanupd.run DROP setbacks, DROP progress;
