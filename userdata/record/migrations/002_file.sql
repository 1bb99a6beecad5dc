-- The files that are about to be deleted from the folder: one that no longer exists was deleted, even if that was not reported.
CREATE TABLE cleanupd.erasure_file (
  erasure_id uuid NOT NULL REFERENCES cleanupd.erasure,
  name       bytea NOT NULL -- a path within the folder, as the file system spells it
);

---- create above / drop below ----

DROP TABLE cleanupd.erasure_file;
