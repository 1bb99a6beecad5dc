-- The sessions of documents whose task or form data a sweep has not found, since when: only what stays missing is swept.
CREATE TABLE cleanupd.dead_session (
  forms      text NOT NULL,
  session_id text NOT NULL,
  found_time timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (forms, session_id)
);
-- The highest ids that sweeps have seen, by table of the Forms database.
CREATE TABLE cleanupd.highest_id (
  forms    text NOT NULL,
  relation text NOT NULL,
  id       bigint NOT NULL,
  PRIMARY KEY (forms, relation)
);

---- create above / drop below ----

DROP TABLE cleanupd.dead_session, cleanupd.highest_id;
