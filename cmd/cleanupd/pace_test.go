package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// runs pause, resume and pace change an active run and print what became of it; runs show, runs and runs watch say why
// it stands still. Completion offers active runs and the paces. The audit has each change.
func TestPaceCommands(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('1', '2000-01-01');
		CREATE TABLE released (); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN WHILE NOT EXISTS (SELECT FROM released) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN OLD; END';
		CREATE TRIGGER wait BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION wait()`)
	r := startServer(t, "--database-url", db.URL(), "--pace", "fast", "--max-pause", "1h")
	do := func(command string) (int, string, string) {
		return r.run(t, command)
	}
	code, out, errs := do("run --detach --task sessions --max-duration 2h --pause-stops-clock")
	found := regexp.MustCompile(`Run (\S+) started`).FindStringSubmatch(out)
	if code != 0 || found == nil {
		t.Fatal(code, out, errs)
	}
	id := found[1]
	db.Until("SELECT count(*) FROM cleanupd.task WHERE state = 'RUNNING'")
	for _, c := range []struct {
		command string
		code    int
		prints  []string // "=" before the whole output
	}{
		{"runs show " + id, 0, []string{"Its pace is fast.", "It has not ended"}},
		{"runs pace " + id + " gentle", 0, []string{"=run " + id + " has the pace gentle"}},
		{"runs pace " + id + " PACE_BALANCED -o json", 0, []string{`"pace":"PACE_BALANCED"`}},
		{"runs show " + id, 0, []string{"Its pace is balanced."}},
		{"runs resume " + id, 0, []string{"=run " + id + " is running"}},
		{"runs pause " + id, 0, []string{"=run " + id + " is paused"}},
		{"runs pause " + id + " -o json", 0, []string{`"state":"RUN_STATE_PAUSED"`, `"pausedBy":"127.0.0.1"`}},
		{"runs show " + id, 0, []string{
			"It is paused by 127.0.0.1 since 20", "cleanupd runs resume " + id, "Run " + id + " paused.",
		}},
		{"runs --state paused", 0, []string{"RUN ", id + "  paused "}},
		{"runs --state running -o json", 0, []string{`"runs":[]`}},
		{"run --yes --task sessions", 1, []string{"run " + id, "watch it with cleanupd runs watch " + id}},
		{"runs pace " + id + " gentle", 0, []string{"=run " + id + " has the pace gentle"}},
		{"runs resume " + id, 0, []string{"=run " + id + " is running"}},

		{"runs pause", 2, []string{"the id of one run"}},
		{"runs resume a b", 2, []string{"the id of one run"}},
		{"runs pace " + id, 2, []string{"give the id of one run and a pace: gentle, balanced, fast"}},
		{"runs pace " + id + " slow", 2, []string{`the pace "slow" must be gentle, balanced, fast`}},
		{"run --pace slow", 2, []string{`"slow" for "--pace" flag: must be gentle, balanced, fast`}},
		{"runs pause nonsense", 1, []string{"no such run"}},
		{"runs resume 01a20609-283b-755d-90ec-99cde01f104d", 1, []string{"no such run"}},
		{"runs pace nonsense fast", 1, []string{"no such run"}},
	} {
		code, out, errs := do(c.command)
		all := out + errs
		if strings.Contains(c.command, "json") {
			all = regexp.MustCompile(`([:,{[]) *\n? *`).ReplaceAllString(all, "$1")
		}
		for _, part := range c.prints {
			whole, exact := strings.CutPrefix(part, "=")
			if code != c.code || (exact && out != whole+"\n") || (!exact && !strings.Contains(all, part)) {
				t.Errorf("%s: %d %s, want %q", c.command, code, out+errs, part)
			}
		}
	}
	for line, want := range map[string]string{
		"runs pause --server " + r.grpc + " ":           id + "\trun, running, ",
		"runs resume --server " + r.grpc + " ":          id + "\trun, running, ",
		"runs pace --server " + r.grpc + " ":            id + "\trun, running, ",
		"runs pace --server " + r.grpc + " " + id + " ": "gentle",
		"run --pace ":          "balanced",
		"schedule set --pace ": "fast",
		"serve --pace ":        "gentle",
		"runs --state pa":      "paused",
		"runs pace --server " + r.grpc + " " + id + " fast x ": "",
	} {
		if want == "" {
			if offered, _ := complete(t, line); len(offered) > 0 {
				t.Errorf("%s: %q", line, offered)
			}
		} else if offered, _, found := completeUntil(t, line, want); !found {
			t.Errorf("%s: %q", line, offered)
		}
	}
	db.Do("INSERT INTO released DEFAULT VALUES")
	code, out, errs = do("runs watch " + id)
	last := 0
	for _, part := range []string{
		"127.0.0.1 changed the pace to GENTLE", "paused by 127.0.0.1", "resumed by 127.0.0.1",
		"Run " + id + " succeeded.",
	} {
		at := strings.Index(out, part)
		if code != 0 || at < last {
			t.Errorf("%q is not in its place in %d %s%s", part, code, out, errs)
		}
		last = max(at, last)
	}
	for _, command := range []string{"pause " + id, "resume " + id, "pace " + id + " fast"} {
		if code, out, errs := do("runs " + command); code != 1 || out != "" ||
			!strings.Contains(errs, "the run has ended") {
			t.Errorf("%s: %d %s%s", command, code, out, errs)
		}
	}
	_, out, _ = do("audit")
	for _, part := range []string{
		"CleanupService/SetPace     OK", "pace GENTLE, run id " + id, "CleanupService/PauseRun    OK",
		"CleanupService/ResumeRun   OK", "max duration 2h0m0s, pause stops clock, run id " + id,
	} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in the audit\n%s", part, out)
		}
	}
}

// A run of the schedule says until when it waits, and for which run by hand.
func TestARunThatWaitsForItsWindow(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	r := startServer(t, "--database-url", db.URL(), "--schedule")
	opens := time.Now().UTC().Add(2 * time.Hour).Truncate(time.Minute)
	at := opens.Format(time.RFC3339)
	window := opens.Format("15:04") + "-" + opens.Add(time.Hour).Format("15:04")
	if code, out, errs := r.run(t, "schedule set --enabled --time-zone UTC --window "+window); code != 0 {
		t.Fatal(out, errs)
	}
	db.Do("UPDATE cleanupd.schedule SET next_run_time = now() - interval '1 minute'")
	db.Until("SELECT count(*) FROM cleanupd.run WHERE state = 'PAUSED'")
	waiting := db.Strings("SELECT id::text FROM cleanupd.run")[0]
	shows := func(command, part string) {
		t.Helper()
		if code, out, errs := r.run(t, command); code != 0 || !strings.Contains(out, part) {
			t.Errorf("%s: %d %s%s, want %q", command, code, out, errs, part)
		}
	}
	shows("runs", waiting+"  paused until "+at)
	shows("runs show "+waiting, ", until its window opens at "+at+": cleanupd runs resume "+waiting)
	shows("runs show "+waiting+" -o json", `"windowOpenTime":`)
	db.Do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('1', '2000-01-01');
		CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN OLD; END';
		CREATE TRIGGER wait BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION wait()`)
	shows("run --yes --detach --task sessions", "started")
	byHand := db.Strings("SELECT id::text FROM cleanupd.run WHERE id <> $1", waiting)[0]
	shows("runs show "+waiting, ", until its window opens at "+at+", and run "+byHand+" has ended.")
	if code, _, errs := r.run(t, "runs resume "+waiting); code != 1 ||
		!strings.Contains(errs, "run "+byHand+" is active; watch it with cleanupd runs watch "+byHand) {
		t.Errorf("resumed beside a run by hand: %d %s", code, errs)
	}
	shows("runs cancel "+waiting, "is cancelled")
	_, out, _ := r.run(t, "runs watch "+waiting)
	for _, part := range []string{
		"paused until the schedule's window opens at " + at, "continues in its window after run " + byHand,
	} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in %s", part, out)
		}
	}
}

// A run has the pace that it requests, and otherwise that of the server.
func TestPaceOfRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	r := startServer(t, "--database-url", db.URL(), "--pace", "gentle")
	for flag, want := range map[string]string{"": "PACE_GENTLE", "--pace fast": "PACE_FAST", "--pace=": "PACE_GENTLE"} {
		code, out, errs := r.run(t, "run --yes --task sessions -o json "+flag)
		if code != 0 || !strings.Contains(strings.ReplaceAll(out, " ", ""), `"pace":"`+want+`"`) {
			t.Errorf("%q: %d %s%s", flag, code, out, errs)
		}
	}
}

// schedule set stores the pace, the windows and whether pauses stop the clock, and changes only settings that have a
// flag.
func TestScheduleWithWindows(t *testing.T) {
	t.Parallel()
	r := startServer(t, "--database-url", pgtest.Campaign(t).URL())
	for _, c := range []struct {
		args   string
		code   int
		prints []string
	}{
		{"", 0, []string{"pace            that of the server", "windows         always", "max duration    none"}},
		{
			"--pace gentle --window MON,tue§08:00-20:00§gentle --window 22:00-06:00§fast --window SUN§00:00-00:00 " +
				"--pause-stops-clock --max-duration 2h",
			0,
			[]string{
				"max duration    2h0m0s without pauses", "pace            gentle",
				"windows         MON,TUE 08:00-20:00 gentle\n                22:00-06:00 fast\n" +
					"                SUN 00:00-00:00\n",
			},
		},
		{
			"--pace fast", 0,
			[]string{"pace            fast", "windows         MON,TUE 08:00-20:00 gentle\n", "2h0m0s without pauses"},
		},
		{"--pause-stops-clock=false", 0, []string{"max duration    2h0m0s\n", "pace            fast"}},
		{"--window SAT§12:00-13:00", 0, []string{"windows         SAT 12:00-13:00\n"}},
		{"--window= --pace=", 0, []string{"windows         always", "pace            that of the server"}},

		{"--pace slow", 2, []string{`"slow" for "--pace" flag: must be gentle, balanced, fast`}},
		{"--window nonsense", 2, []string{`"--window" flag: must be [DAYS] START-END [PACE]`}},
		{"--window MON§22:00-06:00§fast§x", 2, []string{`"--window" flag: must be [DAYS] START-END [PACE]`}},
		{"--window 22:00-06:00§slow", 2, []string{`"--window" flag: the pace must be gentle, balanced, fast`}},
		{"--window §", 2, []string{`"--window" flag: must be [DAYS] START-END [PACE]`}},
		{"--window MO§22:00-06:00", 2, []string{`--window: "MO" is not a day: SUN, MON`}},
		{"--window 22:00-24:00", 2, []string{`--window: "24:00" is not a time of day`}},
	} {
		args := []string{"schedule", "set"}
		for _, arg := range strings.Fields(c.args) {
			args = append(args, strings.ReplaceAll(arg, "§", " "))
		}
		code, out, errs := cleanupd(t, append(args, "--server", r.grpc)...)
		for _, part := range c.prints {
			if code != c.code || !strings.Contains(out+errs, part) || (code != 0 && strings.Count(errs, "\n") != 1) {
				t.Errorf("%s: %d %s%s, want %q", c.args, code, out, errs, part)
			}
		}
	}
}

// A run is paused, but its replica is killed before the batch ends. Another replica resumes the run, and each row is
// counted once.
func TestPauseOfARunWhoseServerIsKilled(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
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
