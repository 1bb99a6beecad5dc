-- Who did what: appended in the transaction of the change where there is one, and never deleted by the service.
CREATE TABLE cleanupd.audit (
  id      bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  time    timestamptz NOT NULL DEFAULT clock_timestamp(),
  subject text NOT NULL, -- empty without authentication
  role    text NOT NULL,
  by      text NOT NULL, -- certificate, token or jwt
  address text NOT NULL,
  rpc     text NOT NULL,
  details jsonb NOT NULL,
  result  text NOT NULL  -- a status code, such as OK or PERMISSION_DENIED
);

---- create above / drop below ----

DROP TABLE cleanupd.audit;
