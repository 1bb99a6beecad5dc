package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// runs lists the runs in a state, of a task, or since a time; runs show shows one, whether it succeeded or not. A run
// that is cancelled ends; one that has ended is not cancelled, with exit status 1.
func TestRunsCommands(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	r := startServer(t, "--database-url", db.URL())
	do := func(command string) (int, string, string) {
		return r.run(t, command)
	}
	start := func(command string) string {
		t.Helper()
		_, out, errs := do(command)
		id := regexp.MustCompile(`un (\S+) started`).FindStringSubmatch(out)
		if id == nil {
			t.Fatal(out, errs)
		}
		return id[1]
	}
	old := start("run --task audit-trail")
	db.Do("UPDATE cleanupd.run SET create_time = create_time - interval '30 days'")
	dry := start("run --dry-run --task audit-trail --task sessions")
	db.Do(`INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (1, '2000-01-01'); CREATE FUNCTION no() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not this one''; END';
		CREATE TRIGGER no BEFORE DELETE ON XtkAudit FOR EACH ROW EXECUTE FUNCTION no()`)
	failed := start("run --task audit-trail")
	for _, c := range []struct {
		filter string
		want   []string
	}{
		{"", []string{failed, dry, old}},
		{"--state failed", []string{failed}},
		{"--state RUN_STATE_SUCCEEDED", []string{dry, old}},
		{"--task sessions", []string{dry}},
		{"--since 7d", []string{failed, dry}},
		{"--since 2000-01-01", []string{failed, dry, old}},
		{"--since 2999-01-01T00:00:00Z", nil},
		{"--state failed --task sessions --since 24h", nil},
		{"--state succeeded --limit 1", []string{dry}},
	} {
		for _, list := range []string{"runs ", "runs list "} {
			code, out, errs := do(list + c.filter)
			var got []string
			for line := range strings.Lines(out) {
				if id, _, _ := strings.Cut(line, " "); id != "RUN" && id != "RUN\n" {
					got = append(got, strings.TrimSpace(id))
				}
			}
			if code != 0 || strings.Join(got, " ") != strings.Join(c.want, " ") {
				t.Errorf("%s%s: %d %s%s", list, c.filter, code, out, errs)
			}
		}
	}
	for id, parts := range map[string][]string{
		old:    {"Run " + old + ", requested by 127.0.0.1 at ", "\naudit-trail  succeeded "},
		dry:    {"Dry run " + dry, "WOULD DELETE", "nothing was changed"},
		failed: {"\naudit-trail  failed ", "\naudit-trail: ", "not this one"},
	} {
		code, out, errs := do("runs show " + id)
		for _, part := range parts {
			if code != 0 || !strings.Contains(out, part) {
				t.Errorf("%d, %q is not in %s%s", code, part, out, errs)
			}
		}
	}
	if code, out, errs := do("runs show " + strings.ToUpper(old[28:])); code != 0 ||
		!strings.Contains(out, "Run "+old+", requested by") {
		t.Errorf("the end of an id: %d %s%s", code, out, errs)
	}
	db.Do(`INSERT INTO cleanupd.run SELECT (jsonb_populate_record(r, jsonb_build_object(
		'id', overlay(id::text placing '01a00000' from 1), 'request_id', null))).* FROM cleanupd.run r WHERE id = $1`, old)
	for command, want := range map[string]string{
		"runs watch " + old[30:]: "the ids of 2 runs end with " + old[30:] + ": ",
		"runs cancel 0000":       "the id of no run ends with 0000: cleanupd runs lists them",
		"run --yes --plan 0000":  "the id of no run ends with 0000",
	} {
		if code, _, errs := do(command); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s, want %s", command, code, errs, want)
		}
	}
	if code, _, errs := do("runs show 0a1"); code != 2 || !strings.Contains(errs, "at least 4 characters") {
		t.Errorf("a short end of an id: %d %s", code, errs)
	}
	db.Do("DELETE FROM cleanupd.run WHERE id::text LIKE '01a00000%'")
	if code, _, errs := do("runs show nonsense"); code != 1 || !strings.Contains(errs, "no such run") {
		t.Errorf("%d %s", code, errs)
	}
	tx := db.Hold("LOCK TABLE XtkSessionInfo")
	running := start("run --detach --task sessions")
	if code, out, errs := do("runs show " + running); code != 0 ||
		!strings.Contains(out, "It has not ended: cleanupd runs watch "+running) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs := do("runs cancel " + running); code != 0 || !strings.Contains(out, "run "+running+" ") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	db.Until("SELECT count(*) FROM cleanupd.run WHERE state = 'CANCELLED'") // it stops before it gets the lock
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"", " -o json"} {
		if code, out, errs := do("runs cancel " + running + format); code != 1 || out != "" ||
			!strings.Contains(errs, "nothing was cancelled: run "+running+" has ended already (cancelled, ") {
			t.Errorf("%d %s%s", code, out, errs)
		}
	}
}

// An error names a field as it was typed, and a number out of range says the range.
func TestErrorsNameWhatWasTyped(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	r := startServer(t, "--database-url", db.URL())
	for command, want := range map[string]string{
		"options set broadLogPurgeDelayDays=0":          "broadLogPurgeDelayDays: must be between 1 and 24855 days, not 0",
		"options set broad_log_purge_delay_days=999999": "broadLogPurgeDelayDays: must be between 1 and 24855 days",
		"options set lastCleanupTime=1":                 "lastCleanupTime is read-only",
		"guards set maxSharePercent=101": "maxSharePercent: must be from 0, which switches the guard off, " +
			"to 100",
		"guards set maxIdle=-1h": "maxIdle: must be from 0, which switches the guard off, to " +
			"36500 days",
		"schedule set --cron nonsense":             "--cron: ",
		"run --task session":                       `unknown task "session" (did you mean sessions?)`,
		"holds create a --deliveries 1,abc":        `--deliveries must be a whole number, not "1,abc"`,
		"schedule set --time-zone Nowhere/Town":    "--time-zone: ",
		"schedule set --max-duration -1h":          "--max-duration: ",
		"run --request-id nonsense":                "--request-id: must be a UUID",
		"run --task nonsense":                      "--task: ",
		"holds create --table nonsense --reason x": "--table: ",
		"explain xtkaudit x":                       "KEY: ",
		"explain XtkAudit":                         "KEY: is missing: for xtkaudit, give iauditid=…\n",
		"explain NmsRcpGrpRel":                     "KEY: is missing: for nmsrcpgrprel, give igroupid=…,irecipientid=…",
		"explain nonsense":                         `nonsense: no such task; there is no table`,
		"explain xtkaudt":                          `there is no table "xtkaudt" (did you mean xtkaudit?)`,
		"explain xtkaudit iAuditI=1":               `no column "iAuditI" (did you mean iauditid?)`,
		"holds create --table xtkaudt --reason x":  `no table "xtkaudt" (did you mean xtkaudit?)`,
	} {
		code, out, errs := r.run(t, command)
		if code == 0 || out != "" || !strings.Contains(errs, want) || strings.Contains(errs, "purge_delay") ||
			strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d %s%s, want %s", command, code, out, errs, want)
		}
	}
}

// audit asks the server, or reads the database itself: both show the same, newest first, with durations and the names
// that people type.
func TestAuditOfAServer(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	r := startServer(t, "--database-url", db.URL())
	for _, command := range []string{
		"guards set maxIdle=90d maxClockDifference=90s cutoff=off --reason tests",
		"options set broadLogPurgeDelayDays=120 visitorPurgeDelayDays=14",
		"schedule set --cron 0§4§*§*§* --max-duration 2h", "run --dry-run --task sessions --max-duration 90m",
		"run --task nonsense",
	} {
		args := strings.Fields(command)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "§", " ")
		}
		cleanupd(t, append(args, "--server", r.grpc)...)
	}
	for _, format := range []string{"table", "json"} {
		code, out, errs := r.run(t, "audit -o", format)
		_, direct, _ := cleanupd(t, "audit", "--database-url", db.URL(), "-o", format)
		if code != 0 || (format == "table" && out != direct) ||
			strings.Count(out, "\n") != strings.Count(direct, "\n") {
			t.Errorf("%d %s%s, and of the database %s", code, out, errs, direct)
		}
	}
	_, out, _ := r.run(t, "audit")
	last := 0
	for _, part := range []string{
		"CleanupService/RunCleanup   INVALID_ARGUMENT", "dry run, max duration 1h30m0s, run id ",
		"CleanupService/SetSchedule  OK",
		"broadLogPurgeDelayDays from 180 days to 120 days, visitorPurgeDelayDays from ",
		"cutoff from on to off, maxClockDifference from 5m0s to 1m30s, maxIdle from 45 days to 90 days, reason tests",
	} {
		at := strings.Index(out, part)
		if at < last {
			t.Errorf("%q is not after the one before in\n%s", part, out)
		}
		last = max(last, at)
	}
	if code, out, errs := r.run(t, "audit --limit 2"); code != 0 ||
		strings.Count(out, "\n") != 3 || !strings.Contains(errs, "a higher --limit") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	db.Do("UPDATE cleanupd.audit SET time = time - interval '8 days' WHERE rpc NOT LIKE '%RunCleanup'")
	for _, source := range [][]string{{"--server", r.grpc}, {"--database-url", db.URL()}} {
		if code, out, errs := cleanupd(t, append([]string{"audit", "--since", "7d"}, source...)...); code != 0 ||
			strings.Count(out, "\n") != 3 {
			t.Errorf("%d %s%s", code, out, errs)
		}
	}
}
