-- The files that are about to go from the folder: one of them that is no more was deleted, whoever was to tell of it.
CREATE TABLE cleanupd.erasure_file (
  erasure_id uuid NOT NULL REFERENCES cleanupd.erasure,
  name       bytea NOT NULL -- a path within the folder, as the file system spells it
);

---- create above / drop below ----

DROP TABLE cleanupd.erasure_file;
