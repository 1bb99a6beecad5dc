package main

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/suite"
)

// complete returns what the program offers after a command line, and the directive for the shell.
func complete(t *testing.T, line string) (offered []string, directive cobra.ShellCompDirective) {
	t.Helper()
	code, out, errs := cleanupd(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	if _, err := fmt.Sscanf(last, ":%d", &directive); err != nil || code != 0 ||
		!strings.HasPrefix(errs, "Completion ended with directive") {
		t.Errorf("%s: %d %s%s", line, code, out, errs)
	}
	return lines[:len(lines)-1], directive
}

// completeUntil completes until a word that begins with want is offered, since a busy server may not answer within the
// time that a completion waits.
func completeUntil(t *testing.T, line, want string) (offered []string, directive cobra.ShellCompDirective, found bool) {
	t.Helper()
	for tries := 0; tries < 30 && !found; tries++ {
		offered, directive = complete(t, line)
		found = slices.ContainsFunc(offered, func(one string) bool { return strings.HasPrefix(one, want) })
	}
	return offered, directive, found
}

// Names from the server and from contexts are offered with descriptions, and file names only where a file is expected.
// A server that cannot be reached, or does not answer, costs at most a second.
func TestCompletion(t *testing.T) {
	newContexts(t)
	db := campaign(t)
	forms := formsOf(t, 12, "")
	r := startServer(t, "--database-url", db.URL(), "--forms-database-url", forms.URL(), "--forms-gds-in-database")
	do := func(command string) string {
		t.Helper()
		args := strings.Fields(command)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "§", " ")
		}
		code, out, errs := cleanupd(t, append(args, "--server", r.grpc)...)
		if code != 0 {
			t.Fatal(command, out, errs)
		}
		return out
	}
	id := func(pattern, out string) string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(out)
		if found == nil {
			t.Fatal(out)
		}
		return found[1]
	}
	const started = `un (\S+) started`
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 20) i")
	do("guards set minRows=10")
	ended := id(started, do("run --task sessions"))
	plan := id(started, do("run --dry-run --task audit-trail"))
	hold := id(`\n(\S+)  deliveries 7`, do("holds create --deliveries 7 --reason the§lawsuit"))
	receipt := id(`Receipt (\S+)`, do("userdata erase --orphan-task 99998 --yes"))
	forms.Do("ALTER TABLE tb_process_instance ADD ended date")
	do("userdata purges set old-loans --application Loans --date-column ended --days 365")
	tx := db.Hold("LOCK TABLE XtkSessionInfo")
	active := id(started, do("run --detach --task sessions"))
	db.Do("CREATE TABLE cusorder (id int, status text, placed timestamptz, email text)")
	do("policies set -f testdata/policy.yaml")
	do("context add prod --server db.example:9090 --server " + r.grpc)

	for i, c := range []struct {
		line, want string
		only       bool
	}{
		{line: "runs watch ", want: ended + "\trun, succeeded, "},
		{line: "runs watch ", want: plan + "\tdry run, succeeded, "},
		{line: "runs show ", want: active + "\trun, running, "},
		{line: "runs cancel ", want: active + "\trun, ", only: true},
		{line: "runs pause ", want: active + "\trun, running, "},
		{line: "runs resume ", want: active + "\trun, running, "},
		{line: "runs pace ", want: active + "\trun, running, "},
		{line: "runs pace " + active + " ", want: "gentle"},
		{line: "runs --state ", want: "failed"},
		{line: "runs --state pa", want: "paused"},
		{line: "run --pace ", want: "balanced"},
		{line: "schedule set --pace ", want: "fast"},
		{line: "policies get ", want: "old-orders\tcusorder: placed older than", only: true},
		{line: "runs --task aud", want: "audit-trail\tAudit trail", only: true},
		{line: "run --task ", want: "delivery-logs\t"},
		{line: "run --skip-task ", want: "delivery-logs\t"},
		{line: "run --skip-task pol", want: "policies\t"},
		{line: "run --plan ", want: plan + "\tdry run, succeeded, ", only: true},
		{line: "schedule set --next-plan ", want: plan + "\tdry run, ", only: true},
		{
			line: "run --plan " + plan + " --accept-guard ",
			want: `share,"public"."xtkaudit",20` + "\tThe guard share refuses this", only: true,
		},
		{line: "explain ", want: "audit-trail\t"},
		{line: "explain xtkau", want: "xtkaudit\taudit-trail", only: true},
		{line: "holds create --table xtkau", want: "xtkaudit\taudit-trail", only: true},
		{line: "holds release ", want: hold + "\tdeliveries 7: the lawsuit", only: true},
		{line: "options set ", want: "broadLogPurgeDelayDays=\tnow 180 days"},
		{line: "options set broadLogPurgeDelayDays=120 visitor", want: "visitorPurgeDelayDays=\tnow ", only: true},
		{line: "options reset broadLogPurgeDelayDays tracking", want: "trackingLogPurgeDelayDays\tnow "},
		{line: "guards set maxI", want: "maxIdle=\tnow 45 days", only: true},
		{line: "userdata receipt ", want: receipt + "\t", only: true},
		{line: "userdata verify ", want: receipt + "\t", only: true},
		{line: "userdata purges delete ", want: "old-loans\tLoans, older than 365 days by ended", only: true},
		{line: "userdata purges set ", want: "old-loans\t", only: true},
		{line: "context use ", want: "prod\t" + r.grpc, only: true},
		{line: "context remove ", want: "prod\t", only: true},
		{line: "runs --context ", want: "prod\t", only: true},
	} {
		for _, source := range []string{"--server " + r.grpc, "--context prod"} {
			if source == "--context prod" && i%8 > 0 && !suite.Long.Requested() {
				continue // a server is found in the same way for all lines
			}
			if strings.HasPrefix(c.line, "context") || strings.Contains(c.line, "--context") {
				source = "--output json"
			}
			words := strings.Split(c.line, " ")
			at := len(words) - 1
			if at > 0 && strings.HasPrefix(words[at-1], "--") {
				at--
			}
			line := strings.Join(append(append(append([]string{}, words[:at]...), source), words[at:]...), " ")
			offered, directive, found := completeUntil(t, line, c.want)
			if !found || (c.only && len(offered) != 1) || directive&cobra.ShellCompDirectiveNoFileComp == 0 {
				t.Errorf("%s: %d: %s", line, directive, strings.Join(offered, "\n"))
			}
		}
	}
	for _, line := range []string{
		"runs pace " + active + " fast x ",
		"options set broadLogPurgeDelayDays=", "guards set maxIdle=", "runs watch " + ended + " ", "explain xtkaudit ",
		"version ", "run ", "run --server ", "holds create --reason ", "context use prod ",
	} {
		if offered, directive := complete(t, line); len(offered) > 0 ||
			directive&cobra.ShellCompDirectiveNoFileComp == 0 {
			t.Errorf("%s: %d %v", line, directive, offered)
		}
	}
	for line, want := range map[string]cobra.ShellCompDirective{
		"run --tls-ca ":                  cobra.ShellCompDirectiveDefault,
		"context add x --token-file ":    cobra.ShellCompDirectiveDefault,
		"serve --tls-key ":               cobra.ShellCompDirectiveDefault,
		"userdata receipt x --html ":     cobra.ShellCompDirectiveDefault,
		"serve --forms-gds-dir ":         cobra.ShellCompDirectiveFilterDirs,
		"man ":                           cobra.ShellCompDirectiveFilterDirs,
		"options set --server x visitor": cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace,
	} {
		if offered, directive := complete(t, line); len(offered) > 0 || directive != want {
			t.Errorf("%s: %d %v", line, directive, offered)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for _, server := range []string{silent.Addr().String(), "127.0.0.1:1", "nonsense"} {
		began := time.Now()
		if offered, _ := complete(t, "runs watch --server "+server+" "); len(offered) > 0 ||
			time.Since(began) > time.Minute {
			t.Errorf("%s: after %s %v", server, time.Since(began), offered)
		}
	}
	t.Setenv("CLEANUPD_SERVER", r.grpc)
	if offered, _, _ := completeUntil(t, "runs watch ", ""); len(offered) != 3 {
		t.Errorf("by the variable: %v", offered)
	}
}
