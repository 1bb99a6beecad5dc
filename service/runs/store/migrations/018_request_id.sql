-- The id that a caller gave its request to start a run, and a digest of that request: a repeated request starts nothing.
ALTER TABLE cleanupd.run ADD COLUMN request_id uuid, ADD COLUMN request_digest bytea;
CREATE UNIQUE INDEX run_request_id ON cleanupd.run (request_id);

---- create above / drop below ----

ALTER TABLE cleanupd.run DROP COLUMN request_digest, DROP COLUMN request_id;
