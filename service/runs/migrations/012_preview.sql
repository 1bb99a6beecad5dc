-- What a dry run foresees of a task, table by table.
ALTER TABLE cleanupd.task ADD preview jsonb;

---- create above / drop below ----

ALTER TABLE cleanupd.task DROP preview;
