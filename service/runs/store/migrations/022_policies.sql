-- The policies: retention rules for tables that the tasks of the application do not know. proven is the basis of the rule
-- when a run last did it by a saved plan: until it is that of the current rule, a guard refuses the policy in other runs.
CREATE TABLE cleanupd.policy (
  name   text COLLATE "C" PRIMARY KEY,
  rule   jsonb NOT NULL,
  proven text NOT NULL DEFAULT ''
);

---- create above / drop below ----

DROP TABLE cleanupd.policy;
