package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// The tasks, options and schedule of a server are shown as a table, in JSON and in YAML, and changed by name.
func TestTasksOptionsAndSchedule(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		"INSERT INTO XtkOption (iOptionId, sName, iDataType, iLongValue) VALUES (1, 'NmsCleanup_VisitorPurgeDelay', " +
			"3, 60)",
	)
	r := startServer(t, "--database-url", db.URL(), "--schedule")
	const refusedByFirst = "Warning: the guard first will refuse scheduled runs"
	for _, c := range []struct {
		args string
		code int
		out  []string
		errs string
	}{
		{"tasks", 0, []string{" #  TASK ", "\n 1  lists-to-delete ", "\n26  reactions "}, ""},
		{"tasks -o yaml", 0, []string{"tasks:\n- dependsOn: "}, ""},
		{
			"options",
			0,
			[]string{"OPTION ", "\nbroadLogPurgeDelayDays  ", "180 days", "\nstorageOptimization ", "VACUUM_ANALYZE"},
			"visitorPurgeDelayDays: option ",
		},
		{
			"options set broadLogPurgeDelayDays=90 storage_optimization=analyze visitorPurgeDelayDays=14",
			0,
			[]string{"  90 days  ", "  ANALYZE  ", "  14 days  ", "  yes\n"},
			"",
		},
		{"options set broadLogPurgeDelayDays=0", 2, nil, "between 1 and 24855 days"},
		{"options set broadLogPurgeDelayDays=many", 2, nil, "number of days"},
		{"options set broadLogPurgeDelayDays", 2, nil, "NAME=VALUE"},
		{"options set nonsense=1", 2, nil, `unknown option "nonsense": use one of storageOptimization, `},
		{"options set lastCleanupTime=2026-01-01T00:00:00Z", 2, nil, "lastCleanupTime is read-only"},
		{"options set --etag stale visitorPurgeDelayDays=15", 1, nil, "changed since this etag"},
		{"options set", 2, nil, "at least one option"},
		{"options reset broadLogPurgeDelayDays", 0, []string{"broadLogPurgeDelayDays ", "  180 days  "}, ""},
		{"options get -o yaml", 0, []string{"\n  visitorPurgeDelayDays: 14\n"}, ""},
		{"options nonsense", 2, nil, "no command"},
		{"options -o xml", 2, nil, "table, json, yaml"},
		{"schedule", 0, []string{"enabled", "0 4 * * *", "next run        20"}, refusedByFirst},
		{
			"schedule set --enabled --cron 5_3_*_*_* --cron 0_22_*_*_0 --time-zone Europe/Berlin --max-duration 2h",
			0,
			[]string{"enabled", "5 3 * * *; 0 22 * * 0", "Europe/Berlin", "2h0m0s", "next run        20"},
			refusedByFirst,
		},
		{
			"schedule set --continue-on-error=false --max-duration 0",
			0,
			[]string{"enabled", "5 3 * * *; 0 22 * * 0", "none", "ends"},
			refusedByFirst,
		},
		{"schedule set --cron nonsense", 2, nil, "cron"},
		{"schedule set --once tomorrow", 2, nil, "--once"},
		{"schedule set --once 2001-01-01T00:00:00Z --enabled", 2, nil, "once"},
		{"schedule set --once 2999-01-01T00:00:00Z --cron 0_4_*_*_*", 2, nil, "either"},
		{
			"schedule set --once 2999-01-01T00:00:00Z",
			0,
			[]string{"once, 2999-01-01T00:00:00Z", "next run        2999-01-01T00:00:00Z"},
			refusedByFirst,
		},
		{"schedule set --enabled=false", 0, []string{"disabled", "once, 2999", "next run        none"}, ""},
		{"schedule nonsense", 2, nil, "no command"},
	} {
		args := append(strings.Fields(c.args), "--server", r.grpc)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
			if strings.HasPrefix(args[i], "storage ") {
				args[i] = strings.ReplaceAll(args[i], " ", "_")
			}
		}
		code, out, errs := cleanupd(t, args...)
		if code != c.code || !strings.Contains(errs, c.errs) || (c.errs == "" && errs != "") {
			t.Errorf("%s: status %d, %q", c.args, code, errs)
		}
		for _, part := range c.out {
			if !strings.Contains(out, part) {
				t.Errorf("%s: does not say %q:\n%s", c.args, part, out)
			}
		}
	}
	_, out, _ := r.run(t, "options -o json")
	var answer struct {
		Options, Defaults map[string]any
		Customized, Etag  string
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Options["visitorPurgeDelayDays"] != 14.0 ||
		answer.Defaults["visitorPurgeDelayDays"] != 30.0 ||
		answer.Etag == "" {
		t.Errorf("%v: %s", err, out)
	}
}
