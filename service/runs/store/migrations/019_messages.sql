-- The messages in the detail of a task, with their codes; NULL if there are none, or an earlier version wrote the detail.
ALTER TABLE cleanupd.task ADD COLUMN details jsonb;

---- create above / drop below ----

ALTER TABLE cleanupd.task DROP COLUMN details;
