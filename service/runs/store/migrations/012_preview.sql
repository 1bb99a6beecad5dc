-- What a dry run has found of a task: table by table, and what a run needs to do that and no more.
ALTER TABLE cleanupd.task
  ADD preview  jsonb,
  ADD planned  jsonb,
  ADD reason   text NOT NULL DEFAULT '',  -- why it was refused, for programs
  ADD metadata jsonb;
ALTER TABLE cleanupd.run
  ADD plan    uuid,   -- the dry run that it does
  ADD what_if jsonb;  -- the options that a dry run supposes to be stored
ALTER TABLE cleanupd.schedule ADD next_plan uuid;  -- the dry run that the next run does

---- create above / drop below ----

ALTER TABLE cleanupd.schedule DROP next_plan;
ALTER TABLE cleanupd.run DROP plan, DROP what_if;
ALTER TABLE cleanupd.task DROP preview, DROP planned, DROP reason, DROP metadata;
