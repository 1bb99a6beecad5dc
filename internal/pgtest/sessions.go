package pgtest

import "fmt"

// Sessions inserts n obsolete rows into XtkSessionInfo, which a run deletes in several batches. The second half waits
// for release, and then takes a millisecond a row, so that the run cannot end before the test stops it, however slow
// the test is.
func (db *DB) Sessions(n int) (release func()) {
	db.t.Helper()
	db.Do(fmt.Sprintf(`ALTER TABLE XtkSessionInfo ADD filler text; -- four rows a block
		ALTER TABLE XtkSessionInfo ALTER filler SET STORAGE PLAIN;
		INSERT INTO XtkSessionInfo SELECT i::text, 'x', '2000-01-01', repeat('y', 1900) FROM generate_series(1, %[1]d) i;
		CREATE TABLE released ();
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
			WHILE OLD.sKey::int > %[1]d / 2 AND NOT EXISTS (SELECT FROM released) LOOP PERFORM pg_sleep(0.01); END LOOP;
			PERFORM pg_sleep(0.001); RETURN OLD; END';
		CREATE TRIGGER slow BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION slow()`, n))
	return func() { db.Do("INSERT INTO released DEFAULT VALUES") }
}
