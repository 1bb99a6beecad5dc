package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks"
)

// The profile determines which tasks a database has. The log at the start says which profile was chosen, and why. A
// database without Campaign's tables is served; it has no options.
func TestProfile(t *testing.T) {
	t.Parallel()
	other, campaign := pgtest.Empty(t), pgtest.Campaign(t)
	number := strconv.Itoa(len(tasks.Pipeline))
	for _, c := range []struct {
		db         *pgtest.DB
		args, says string
		tasks      bool
	}{
		{other, "", `profile name=none reason="the database has no table of Campaign" tasks=0`, false},
		{other, "none", `profile name=none reason="--profile none" tasks=0`, false},
		{other, "campaign", `profile name=campaign reason="--profile campaign" tasks=` + number, true},
		{campaign, "auto", `profile name=campaign reason="the database has tables of Campaign" tasks=` + number, true},
		{campaign, "none", `profile name=none reason="--profile none" tasks=0`, false},
	} {
		args := []string{"--database-url", c.db.URL()}
		if c.args != "" {
			args = append(args, "--profile", c.args)
		}
		r := startServer(t, args...)
		if log := r.log.String(); !strings.Contains(log, c.says) {
			t.Errorf("%q: %s", c.args, log)
		}
		code, out, errs := r.run(t, "tasks")
		if code != 0 || strings.Contains(out, "delivery-logs") != c.tasks {
			t.Errorf("%q: %d %s %s", c.args, code, out, errs)
		}
		code, out, errs = r.run(t, "options")
		if inCampaign := c.db == campaign; (code == 0) != inCampaign || (!inCampaign && (out != "" ||
			!strings.HasPrefix(errs, "cleanupd: there are no retention options") ||
			!strings.Contains(errs, "cleanupd policies"))) {
			t.Errorf("%q: %d %s %s", c.args, code, out, errs)
		}
		code, out, errs = r.run(t, "run")
		if (code == 0) != (c.db == campaign && c.tasks) {
			t.Errorf("%q: %d %s %s", c.args, code, out, errs)
		}
		ofPolicies := strings.HasPrefix(errs, "cleanupd: there is nothing to run: no policy is set")
		if ofPolicies == (code == 0 || c.args == "campaign") {
			t.Errorf("%q: %d %s", c.args, code, errs)
		}
		// the guard idle watches Campaign's logs, and the guards of drops judge its work tables
		code, out, errs = r.run(t, "guards")
		if code != 0 || strings.Contains(out, "maxIdle") != c.tasks || strings.Contains(out, "work tables") != c.tasks ||
			strings.Contains(out, "Forms") {
			t.Errorf("%q: %d %s %s", c.args, code, out, errs)
		}
		_ = r.cmd.Process.Kill()
	}
	code, _, errs := cleanupd(t, "serve", "--database-url", other.URL(), "--profile", "shop")
	if code != 2 || !strings.Contains(errs, "must be one of auto, campaign, none") {
		t.Errorf("%d %s", code, errs)
	}
	if offered, _ := complete(t, "serve --profile "); strings.Join(offered, " ") != "auto campaign none" {
		t.Errorf("%v", offered)
	}
}
