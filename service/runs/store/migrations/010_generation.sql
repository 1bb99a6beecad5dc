ALTER TABLE cleanupd.run ADD server_start timestamptz;                 -- when the server was started on which the run was last taken
ALTER TABLE cleanupd.event ADD generation bigint NOT NULL DEFAULT 0;  -- the epoch in which it was written; 0: an earlier version wrote it

---- create above / drop below ----

ALTER TABLE cleanupd.event DROP generation;
ALTER TABLE cleanupd.run DROP server_start;
