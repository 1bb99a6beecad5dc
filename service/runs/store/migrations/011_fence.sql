-- Ends a statement that finds its run no longer held. The SQLSTATE is the service's own.
CREATE FUNCTION cleanupd.fenced() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RAISE 'the run is not held by this replica' USING ERRCODE = 'CU001';
END $$;

---- create above / drop below ----

DROP FUNCTION cleanupd.fenced();
