-- Who cleans this database: the name of the service's instance, and the database as it was then. A copy has another identity.
CREATE TABLE cleanupd.instance (
  only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  name              text NOT NULL,
  system_identifier text NOT NULL,
  database_oid      bigint NOT NULL,
  adopt_time        timestamptz NOT NULL DEFAULT clock_timestamp());

---- create above / drop below ----

DROP TABLE cleanupd.instance;
