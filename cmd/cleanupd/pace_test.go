package main

import (
	"regexp"
	"testing"

	"github.com/cleanupd/cleanupd/internal/suite"
)

// A run is paused, but its replica is killed before the batch ends. Another replica resumes the run, and each row is
// counted once.
func TestPauseOfARunWhoseServerIsKilled(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := campaign(t)
	db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i, '2000-01-01' FROM generate_series(1, 20) i;
		CREATE TABLE released (); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN WHILE NOT EXISTS (SELECT FROM released) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN OLD; END';
		CREATE TRIGGER wait BEFORE DELETE ON XtkSessionInfo FOR EACH ROW WHEN (OLD.sKey = '11') EXECUTE FUNCTION wait()`)
	args := []string{"--database-url", db.URL(), "--lease", "2s"}
	working := startServer(t, args...)
	code, out, errs := working.run(t, "run --detach --task sessions")
	found := regexp.MustCompile(`Run (\S+) started`).FindStringSubmatch(out)
	if code != 0 || found == nil {
		t.Fatal(code, out, errs)
	}
	db.Until("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'")
	other := startServer(t, args...)
	paused := make(chan string, 1)
	go func() {
		_, out, errs := other.run(t, "runs pause", found[1])
		paused <- out + errs
	}()
	db.Until("SELECT count(*) FROM cleanupd.run WHERE state = 'PAUSED'")
	_ = working.cmd.Process.Kill()
	_ = working.cmd.Wait()
	if got, want := <-paused, "run "+found[1]+" is paused\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	code, out, errs = other.run(t, "runs resume", found[1])
	if code != 0 {
		t.Error(code, out, errs)
	}
	db.Until("SELECT count(*) FROM cleanupd.run WHERE epoch > 1") // the other replica has claimed it
	db.Do("INSERT INTO released DEFAULT VALUES")
	code, out, errs = other.run(t, "runs watch", found[1])
	if code != 0 || !regexp.MustCompile(`\nsessions +succeeded +20 `).MatchString(out) {
		t.Error(code, out, errs)
	}
	if n := db.Int("SELECT count(*) FROM XtkSessionInfo"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}
