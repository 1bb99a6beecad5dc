-- Which Forms database an erasure is of, as its own table says, and how many entries of the journal there are recorded here.
ALTER TABLE cleanupd.erasure ADD forms text NOT NULL DEFAULT '', ADD applied bigint NOT NULL DEFAULT 0;
-- Whether it is a sweep: of no items, but of the documents whose tasks and form data do not exist.
ALTER TABLE cleanupd.erasure ADD sweep boolean NOT NULL DEFAULT false;
-- What was found when it was last searched again; NULL: it was not.
ALTER TABLE cleanupd.erasure ADD verification jsonb;
ALTER TABLE cleanupd.erasure_session ADD forms text NOT NULL DEFAULT '';
ALTER TABLE cleanupd.erasure_session DROP CONSTRAINT erasure_session_pkey, ADD PRIMARY KEY (forms, session_id);

---- create above / drop below ----

ALTER TABLE cleanupd.erasure_session DROP CONSTRAINT erasure_session_pkey, ADD PRIMARY KEY (session_id);
ALTER TABLE cleanupd.erasure_session DROP forms;
ALTER TABLE cleanupd.erasure DROP forms, DROP applied, DROP sweep, DROP verification;
