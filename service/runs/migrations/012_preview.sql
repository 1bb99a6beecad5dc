-- What a dry run has found of a task: table by table, and what a run needs to do that and no more.
ALTER TABLE cleanupd.task
  ADD preview  jsonb,
  ADD planned  jsonb,
  ADD reason   text NOT NULL DEFAULT '',  -- why it was refused, for programs
  ADD metadata jsonb;
ALTER TABLE cleanupd.run ADD plan uuid;   -- the dry run that it does

---- create above / drop below ----

ALTER TABLE cleanupd.run DROP plan;
ALTER TABLE cleanupd.task DROP preview, DROP planned, DROP reason, DROP metadata;
