package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/testca"
)

func TestHelp(t *testing.T) {
	t.Parallel()
	for command, parts := range map[string][]string{
		"": {"serve", "migrate", "run", "runs", "tasks", "options", "schedule", "demo", "version"},
		"serve": {
			"Database:", "--database-url", "$CLEANUPD_DATABASE_URL", "--profile", "$CLEANUPD_PROFILE", "--mid-sourcing",
			"Listeners:", "--grpc-listen", "$CLEANUPD_GRPC_LISTEN", "127.0.0.1:9090", "--http-listen", "Access:",
			"--tls-cert", "--tls-key", "--tls-client-ca", "--token-file", "--oidc-issuer", "--oidc-audience",
			"--insecure", "Runs:", "--schedule", "--pace", "$CLEANUPD_PACE", "--max-replica-lag", "Notifications:",
			"--notify", "$CLEANUPD_NOTIFY", "AEM Forms:", "--forms-database-url", "$CLEANUPD_FORMS_SERVER_PASSWORD",
			"--config", "cleanupd settings",
		},
		"settings":    {"--config"},
		"notify test": {"--notify", "$CLEANUPD_NOTIFY", "--notify-secret-file", "exit"},
		"migrate":     {"--database-url", "$CLEANUPD_DATABASE_URL", "(required without --forms-database-url)"},
		"adopt":       {"--database-url", "--instance", "--yes", "disables the schedule"},
		"run": {
			"--server", "$CLEANUPD_SERVER", "--task", "--skip-task", "--dry-run", "--preview", "--plan",
			"--continue-on-error", "--max-duration", "--pace", "--pause-stops-clock", "--detach", "--tls", "--tls-ca",
			"--client-cert", "--client-key", "$CLEANUPD_TOKEN",
		},
		"runs":        {"list", "watch", "pause", "resume", "pace", "cancel", "--server", "--limit", "--output"},
		"runs cancel": {"ID", "$CLEANUPD_SERVER"},
		"runs pause":  {"ID", "keeps its place", "--max-pause"},
		"runs resume": {"ID", "$CLEANUPD_SERVER"},
		"runs pace":   {"ID PACE", "gentle", "balanced", "fast"},
		"tasks":       {"--output", "json", "yaml", "$CLEANUPD_OUTPUT"},
		"tables":      {"--order-by", "--uncovered", "--limit", "json"},
		"options":     {"get", "set", "reset", "--output"},
		"options set": {"NAME=VALUE", "--etag", "cleanupd options set broadLogPurgeDelayDays=120"},
		"schedule set": {
			"--cron", "--once", "--time-zone", "--enabled", "--max-duration", "--continue-on-error", "--pace",
			"--window", "--pause-stops-clock", "Europe/Berlin",
		},
		"mid-sourcing":           {"leftovers", "$CLEANUPD_SERVER"},
		"mid-sourcing leftovers": {"--account", "--limit"},
		"userdata":               {"find", "erase", "receipts", "$CLEANUPD_SERVER"},
		"userdata purges":        {"list", "set", "delete", "forms/NAME"},
		"userdata purges set":    {"--application", "--workflow", "--date-column", "--days", "--enable"},
		"userdata find":          {"--variable", "APPLICATION/WORKFLOW"},
		"userdata erase": {
			"--process-instance", "--orphan-task", "--principal", "--variable", "--dry-run", "--yes",
		},
		"audit":           {"--database-url", "--since", "--limit", "--output"},
		"policies":        {"list", "get", "set", "delete", "export", "apply", "grants", "policy/NAME"},
		"policies apply":  {"--prune", "--yes", "--dry-run", "FILE", "---", "exit status"},
		"policies grants": {"FILE", "SQL script", "psql"},
		"policies set":    {"--file", "-f"},
		"demo":            {"--rows", "--keep", "--forms", "--profile"},
		"health":          {"--ready", "$CLEANUPD_HTTP_LISTEN", "$CLEANUPD_TLS_CERT"},
		"man":             {"DIR"},
		"completion bash": {"bash"},
		"version":         {"version"},
	} {
		code, out, errs := cleanupd(t, append(strings.Fields(command), "--help")...)
		if code != 0 || errs != "" {
			t.Errorf("%s --help: %d %s", command, code, errs)
		}
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%s --help does not tell of %s", command, part)
			}
		}
	}
}

// commands calls each with every command except the library's own.
func commands(of *cobra.Command, each func(cmd *cobra.Command)) {
	for _, cmd := range of.Commands() {
		if cmd.Name() != "completion" && cmd.Name() != "help" {
			each(cmd)
			commands(cmd, each)
		}
	}
}

var argument = regexp.MustCompile(`'[^']*'|[^\s']+`)

// Every command has examples, and they are commands.
func TestExamples(t *testing.T) {
	t.Parallel()
	commands(newRoot(), func(cmd *cobra.Command) {
		if !strings.HasPrefix(cmd.Example, "  cleanupd") {
			t.Errorf("%s has no example: %q", cmd.CommandPath(), cmd.Example)
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " | ")
			line, _, _ = strings.Cut(line, " >")
			var args []string
			for _, arg := range argument.FindAllString(line, -1) {
				args = append(args, strings.Trim(arg, "'"))
			}
			if args[0] != "cleanupd" {
				continue
			}
			called, rest, err := newRoot().Find(args[1:])
			if err == nil {
				err = called.ParseFlags(rest)
			}
			if err == nil && called.Args != nil {
				err = called.Args(called, called.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	})
}

// The help suits any database. What applies only to Adobe Campaign is marked as such, and comes last.
func TestHelpIsAboutAnyDatabase(t *testing.T) {
	t.Parallel()
	campaigns := regexp.MustCompile(`(?i)campaign|deliver(y|ies)|recipient|nms|xtk`)
	commands(newRoot(), func(cmd *cobra.Command) {
		group := cmd
		for group.HasParent() && group.Parent().HasParent() {
			group = group.Parent()
		}
		if strings.Contains(group.GroupID, "Campaign") {
			return
		}
		example, _, _ := strings.Cut(cmd.Example, "\n")
		for what, text := range map[string]string{"short text": cmd.Short, "first example": example} {
			if campaigns.MatchString(text) {
				t.Errorf("the %s of %s is about Adobe Campaign: %s", what, cmd.CommandPath(), text)
			}
		}
	})
	_, help, _ := cleanupd(t, "holds", "create", "--help")
	any, campaign, marked := strings.Cut(help, "\nFlags for databases of Adobe Campaign:\n")
	_, any, _ = strings.Cut(any, "\nFlags:\n")
	if !marked || campaigns.MatchString(any) || !strings.Contains(campaign, "--deliveries") {
		t.Errorf("the flags of Adobe Campaign are not apart: %s", help)
	}
}

// A variable means the same to every command: flags with the same name have the same type and meaning.
func TestVariablesMeanTheSame(t *testing.T) {
	t.Parallel()
	first := map[string]*pflag.Flag{}
	about := func(f *pflag.Flag) string { // its first words
		return strings.Join(
			strings.FieldsFunc(f.Usage,
				func(r rune) bool { return r == ':' || r == ',' || r == ';' || r == '(' || r == '[' })[:1],
			"")
	}
	commands(newRoot(), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !flags.HasVariable(f) {
				return
			}
			other := first[f.Name]
			first[f.Name] = f
			if other != nil &&
				(other.Value.Type() != f.Value.Type() ||
					strings.TrimSpace(about(other)) != strings.TrimSpace(about(f))) {
				t.Errorf("--%s is %q, and of %s %q", f.Name, other.Usage, cmd.CommandPath(), f.Usage)
			}
		})
	})
}

// There is a manual page for each command, and a completion that knows the tasks.
func TestManualsAndCompletion(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	if code, out, errs := cleanupd(t, "man", dir); code != 0 || out != "" {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	page, err := os.ReadFile(filepath.Join(dir, "cleanupd-options-set.1"))
	if err != nil || !strings.Contains(string(page), "broadLogPurgeDelayDays=120") {
		t.Errorf("%v %s", err, page)
	}
	if code, out, errs := cleanupd(t, "man", filepath.Join(dir, "cleanupd.1", "x")); code != 2 || out != "" ||
		!strings.Contains(errs, "cleanupd.1") {
		t.Errorf("into a file: %d %s %s", code, out, errs)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, errs := cleanupd(t, "completion", shell); code != 0 || !strings.Contains(out, "cleanupd") {
			t.Errorf("%s: %d %s", shell, code, errs)
		}
	}
	for asked, want := range map[string]string{"serve --profile ": "campaign\n", "tasks -o ": "yaml\n"} {
		if code, out, errs := cleanupd(t, append([]string{"__complete"}, strings.Split(asked, " ")...)...); code != 0 ||
			!strings.Contains(out, want) {
			t.Errorf("%s: %d %s %s", asked, code, out, errs)
		}
	}
}

// The help of a flag names its variable once.
func TestVariablesAreNamedOnce(t *testing.T) {
	t.Parallel()
	commands(newRoot(), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if n := strings.Count(f.Usage, "[$CLEANUPD_"); n > 1 || (n == 1) != flags.HasVariable(f) {
				t.Errorf("%s --%s: %s", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
	})
}

// A usage error is one line, and status 2; any other error is one line, and status 1.
func TestMistakes(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	db := pgtest.Empty(t)
	weak := db.Role("weak")
	ca, tokens := testca.New(t), tokenFile(t, "viewer", "x")
	cert, key := ca.Files(ca.Server())
	open := "serve --database-url " + db.URL() + " --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0"
	away := "serve --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 --database-url postgres://127.0.0.1:1/d"
	for _, c := range []struct {
		args  string
		code  int
		parts []string
	}{
		{"nonsense", 2, []string{"nonsense"}},
		{"help nonsense", 2, []string{"nonsense"}},
		{"help runs nonsense", 2, []string{"nonsense"}},
		{"serve", 2, []string{"--database-url"}},
		{"serve --nonsense", 2, []string{"--nonsense"}},
		{"serve --database-url x stray", 2, []string{"stray"}},
		{"serve --database-url postgres://u:secret@h:x/d", 2, []string{"--database-url"}},
		{"serve --database-url mysql://h/d", 2, []string{"--database-url"}},
		{"migrate --database-url mysql://u:secret@h/d?sslmode=disable", 2, []string{"--database-url", "postgresql://"}},
		{"serve --lease 1ms --database-url postgres://h/d", 2, []string{"--lease", "1ms"}},
		{"serve --lease x", 2, []string{"lease"}},
		{
			open + " --forms-database-url " + db.URL() + " --forms-gds-dir / --forms-gds-in-database",
			2,
			[]string{"--forms-gds-dir", "cannot be combined"},
		},
		{
			open + " --forms-database-url " + db.URL() + " --forms-gds-dir /nowhere",
			2,
			[]string{"--forms-gds-dir", "/nowhere"},
		},
		{open + " --forms-database-url " + db.URL() + " --forms-server-url ftp://x", 2, []string{"--forms-server-url"}},
		{
			open + " --forms-database-url " + db.URL() + " --forms-server-url http://x:99999/y",
			2,
			[]string{"--forms-server-url"},
		},
		{open + " --forms-database-url " + db.URL() + " --forms-server-url http://x/y --forms-server-user u " +
			"--forms-server-password secret", 2, []string{"--forms-server-url", "https://x"}},
		{
			open + " --forms-database-url " + db.URL() + " --forms-server-url http://u:secret@x:8080/y",
			2,
			[]string{"--forms-server-url", "https://x:8080"},
		},
		{open + " --forms-database-url " + db.URL() + " --forms-server-url http://localhost@x/y " +
			"--forms-server-password secret", 2, []string{"--forms-server-url", "https://x"}},
		{open + " --forms-database-url " + db.URL() + " --forms-server-user u", 2, []string{"need --forms-server-url"}},
		{
			open + " --grpc-listen 0.0.0.0:0",
			2,
			[]string{"--grpc-listen", "loopback", "--tls-cert", "--token-file", "--insecure"},
		},
		{open + " --http-listen 0.0.0.0:0", 2, []string{"--http-listen", "loopback"}},
		{open + " --grpc-listen 0.0.0.0:0 --token-file " + tokens, 2, []string{"--grpc-listen", "loopback"}},
		{
			open + " --grpc-listen 0.0.0.0:0 --tls-cert " + cert + " --tls-key " + key,
			2,
			[]string{"--grpc-listen", "loopback"},
		},
		{open + " --tls-cert " + cert, 2, []string{"--tls-cert", "--tls-key"}},
		{open + " --tls-cert " + cert + " --tls-key " + cert, 2, []string{"--tls-key"}},
		{open + " --tls-cert " + cert + " --tls-key /nowhere", 2, []string{"--tls-key", "/nowhere"}},
		{open + " --tls-client-ca " + cert, 2, []string{"--tls-client-ca", "--tls-cert"}},
		{open + " --tls-client-crl " + cert, 2, []string{"--tls-client-crl"}},
		{open + " --tls-client-role me=admin", 2, []string{"--tls-client-role"}},
		{open + " --token-file /nowhere", 2, []string{"--token-file", "/nowhere"}},
		{open + " --oidc-issuer https://issuer.example", 2, []string{"--oidc-audience"}},
		{open + " --oidc-client-id console", 2, []string{"--oidc-client-id needs --oidc-issuer"}},
		{
			open + " --oidc-issuer https://issuer.example --oidc-audience cleanupd --oidc-client-secret-file secret",
			2,
			[]string{"--oidc-client-secret-file needs --oidc-client-id"},
		},
		{"run --server example.com:1 --token secret", 2, []string{"--token", "plain text", "--tls"}},
		{"run --server localhost", 2, []string{"--server", "HOST:PORT"}},
		{"runs --server localhost:", 2, []string{"--server", "HOST:PORT"}},
		{"userdata receipts --server http://localhost:9090", 2, []string{"--server", "HOST:PORT"}},
		{"run --client-cert x", 2, []string{"--client-key"}},
		{"run --tls-ca /nowhere", 2, []string{"--tls-ca", "/nowhere"}},
		{"run --tls-ca " + key, 2, []string{"--tls-ca", "no certificate"}},
		{"run --client-cert " + cert + " --client-key /nowhere", 2, []string{"--client-key", "/nowhere"}},
		{"audit --server 127.0.0.1:1", 1, []string{"cannot reach 127.0.0.1:1"}},
		{"audit --limit 99999999999", 2, []string{"--limit must be from -2147483648 to 2147483647, not 99999999999"}},
		{"runs --limit many", 2, []string{`--limit must be a whole number, not "many"`}},
		{"runs --state broken", 2, []string{"--state", "queued, running, succeeded, failed, cancelled"}},
		{"runs --since yesterday", 2, []string{"--since", "7d", "2026-02-28"}},
		{"runs show", 2, []string{"id"}},
		{"options set broadLogPurgeDelayDays=99999999999", 2, []string{"broadLogPurgeDelayDays must", "1 to 24,855"}},
		{"options set storageOptimization=x", 2, []string{
			"storageOptimization must be VACUUM_ANALYZE, ANALYZE or NONE",
		}},
		{"guards set maxTables=99999999999999999999", 2, []string{"maxTables must be a whole number from 0 to "}},
		{"audit --database-url " + pgtest.Empty(t).URL(), 1, []string{"no service has run on this database"}},
		{"audit --database-url postgres://h/d --limit 0", 2, []string{"--limit"}},
		{"audit --database-url postgres://h/d --since -1s", 2, []string{"--since"}},
		{"mid-sourcing leftovers x", 2, []string{"mid-sourcing leftovers", "no argument"}},
		{"mid-sourcing leftovers --limit 0", 2, []string{"--limit"}},
		{"mid-sourcing nonsense", 2, []string{"nonsense"}},
		{"userdata find", 2, []string{"user id"}},
		{"userdata find ann --variable apply", 2, []string{"--variable"}},
		{"userdata erase ann bob", 2, []string{"one user id"}},
		{"serve --history 1ms --database-url postgres://h/d", 2, []string{"--history", "1ms"}},
		{"serve --pace slow --database-url postgres://h/d", 2, []string{"--pace", "gentle, balanced, fast"}},
		{"serve --max-pause 59s --database-url postgres://h/d", 2, []string{"--max-pause", "1m", "59s"}},
		{"serve --max-pause soon --database-url postgres://h/d", 2, []string{"--max-pause", "soon"}},
		{"serve --synchronous-commit maybe --database-url postgres://h/d", 2, []string{
			"--synchronous-commit", "maybe",
		}},
		{"serve --workers 0 --database-url postgres://h/d", 2, []string{"--workers", "0"}},
		{"serve --max-wal-rate -1 --database-url postgres://h/d", 2, []string{"--max-wal-rate"}},
		{"serve --schedule=perhaps --database-url postgres://h/d", 2, []string{"--schedule"}},
		{"serve --grpc-listen nonsense --database-url postgres://h/d", 2, []string{"--grpc-listen", "nonsense"}},
		{
			"serve --http-listen 127.0.0.1:99999 --grpc-listen 127.0.0.1:0 --database-url postgres://h/d",
			2,
			[]string{"--http-listen"},
		},
		{
			"serve --grpc-listen " + taken.Addr().String() + " --database-url postgres://h/d",
			1,
			[]string{"--grpc-listen", "in use"},
		},
		{
			"serve --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 --database-url postgres://u:secret@" +
				taken.Addr().String() + "/d?connect_timeout=1",
			1,
			[]string{"database"},
		},
		{away + " --mid-sourcing x", 2, []string{"--mid-sourcing must be NAME=URL or NAME=keep"}},
		{away + " --mid-sourcing =keep", 2, []string{"--mid-sourcing must be NAME=URL or NAME=keep"}},
		{away + " --mid-sourcing x=keep --mid-sourcing x=postgres://h/d", 2, []string{"--mid-sourcing", "twice"}},
		{away + " --mid-sourcing x=postgres://u:secret@h:y/d", 2, []string{": --mid-sourcing x: "}},
		{
			away + " --mid-sourcing x=postgres://h/d --mid-sourcing x=postgres://h/d",
			2,
			[]string{"--mid-sourcing", "twice"},
		},
		{away + " --forms-gds-dir /", 2, []string{"--forms-database-url"}},
		{away + " --forms-database-url postgres://u:secret@h:y/d", 2, []string{": --forms-database-url: "}},
		{
			"migrate --database-url postgres://127.0.0.1:1/d --forms-database-url nonsense",
			2,
			[]string{": --forms-database-url: "},
		},
		{
			"serve --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 --mid-sourcing x=" + db.URL() +
				" --database-url " + db.URL(),
			2,
			[]string{"--mid-sourcing x", "main database"},
		},
		{
			"serve --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 --preview-database-url " + db.URL() +
				" --database-url " + db.URL(),
			2,
			[]string{"--preview-database-url", "not a standby of --database-url", "not in recovery"},
		},
		{away + " --preview-database-url mysql://u:secret@h/d", 2, []string{": --preview-database-url: "}},
		{
			"migrate --database-url " + db.As(weak),
			1,
			[]string{"cleanupd migrate --database-url URL", "GRANT USAGE ON SCHEMA cleanupd", weak},
		},
		{"migrate", 2, []string{"--database-url"}},
		{"run --max-duration -1s", 2, []string{"--max-duration"}},
		{"run --max-duration 0", 2, []string{"--max-duration must be greater than 0"}},
		{"run --server 127.0.0.1:1", 1, []string{"cannot reach 127.0.0.1:1", "refused"}},
		{"runs nonsense", 2, []string{"nonsense"}},
		{"runs list --limit 0", 2, []string{"--limit", "0"}},
		{"userdata receipts --limit -1", 2, []string{"--limit", "-1"}},
		{"runs watch", 2, []string{"id"}},
		{"runs cancel a b", 2, []string{"id"}},
		{"demo --rows -1", 2, []string{"--rows"}},
	} {
		code, out, errs := cleanupd(t, strings.Fields(c.args)...)
		if code != c.code || out != "" || strings.Count(errs, "\n") != 1 ||
			strings.Contains(strings.ReplaceAll(errs, "--oidc-client-secret-file", ""), "secret") {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.args, code, out, errs)
		}
		for _, part := range c.parts {
			if !strings.Contains(errs, part) {
				t.Errorf("%s: %q does not tell of %s", c.args, errs, part)
			}
		}
	}
}

// A server names all mistakes in its configuration, a line each.
func TestAllMistakesOfAServerAtOnce(t *testing.T) {
	t.Parallel()
	var out, err strings.Builder
	code := run(t.Context(),
		[]string{
			"serve", "--database-url", "mysql://x", "--grpc-listen", "here", "--lease", "1ms", "--workers",
			"99", "--max-wal-rate", "-1", "--mid-sourcing", "y", "--tls-cert", "z",
			"--forms-gds-dir", "w", "--log-level", "loud",
		},
		&out, &err)
	lines := strings.Split(strings.TrimSpace(err.String()), "\n")
	for _, flag := range []string{
		"--database-url", "--grpc-listen", "--lease", "--workers", "--max-wal-rate",
		"--mid-sourcing", "--tls-cert", "--forms", "--log-level",
	} {
		if !slices.ContainsFunc(
			lines,
			func(line string) bool { return strings.HasPrefix(line, "cleanupd: ") && strings.Contains(line, flag) },
		) {
			t.Errorf("%s is not among the mistakes", flag)
		}
	}
	if code != 2 || len(lines) != 9 || out.Len() > 0 {
		t.Errorf("it ended with %d:\n%s%s", code, err.String(), out.String())
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("CLEANUPD_LEASE", "1ms")
	t.Setenv("CLEANUPD_DATABASE_URL", "postgres://h/d")
	if code, _, errs := cleanupd(t, "serve"); code != 2 || !strings.Contains(errs, "1ms") {
		t.Errorf("the variable is not read: %d %s", code, errs)
	}
	if code, _, errs := cleanupd(t, "serve", "--lease", "2ms"); code != 2 || !strings.Contains(errs, "2ms") {
		t.Errorf("the flag does not win: %d %s", code, errs)
	}
	t.Setenv("CLEANUPD_LEASE", "soon")
	if code, _, errs := cleanupd(t, "serve"); code != 2 || !strings.Contains(errs, "CLEANUPD_LEASE") {
		t.Errorf("a bad value: %d %s", code, errs)
	}
}

// A variable that no flag has is an error, unless something else may have set it.
func TestUnknownEnvironment(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"CLEANUPD_SHEDULE=true": "environment variable CLEANUPD_SHEDULE: no flag of cleanupd has this name (did " +
			"you mean CLEANUPD_SCHEDULE?)",
		"CLEANUPD_GRPC_LISTN=:9090":    "did you mean CLEANUPD_GRPC_LISTEN?",
		"CLEANUPD_NOTHING_LIKE_THIS=1": "no flag of cleanupd has this name",
		"CLEANUPD_YES=true":            "environment variable CLEANUPD_YES is not read: --yes must be typed",
		"CLEANUPD_PRUNE=true":          "--prune must be typed",
		"CLEANUPD_ACCEPT_GUARD=x":      "--accept-guard must be typed",
		"CLEANUPD_SCHEDULE=true":       "",
		"CLEANUPD_TOKEN=x":             "",
		"CLEANUPD_SUITES=all":          "",
		"CLEANUPD=1":                   "",
		"PATH=CLEANUPD_SHEDULE":        "",

		"CLEANUPD_PORT=tcp://10.0.0.1:9090":                "",
		"CLEANUPD_PORT_9090_TCP_ADDR=10.0.0.1":             "",
		"CLEANUPD_SERVICE_PORT_GRPC=9090":                  "",
		"CLEANUPD_HEADLESS_SERVICE_HOST=10.0.0.1":          "",
		"CLEANUPD_HEADLESS_PORT_9090_TCP=tcp://10.0.0.1:9": "",
	} {
		err := flags.CheckEnvironment(newRoot(), []string{"HOME=/", setting})
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	_, want, _ := cleanupd(t, "version")
	if code, out, _ := cleanupd(t, "--version"); code != 0 || out != want || !strings.HasPrefix(out, "cleanupd ") {
		t.Errorf("%d %s, want %s", code, out, want)
	}
	var answer struct{ Version string }
	code, out, errs := cleanupd(t, "version", "-o", "json")
	if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil || "cleanupd "+answer.Version+"\n" != want {
		t.Errorf("%d %v %s%s, want %s", code, err, out, errs, want)
	}
}

// The owner migrates, and a role with just the GRANTs of the error serves.
func TestMigrateForAWeakRole(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	clerk := db.Role("clerk")
	db.Do(
		"GRANT SELECT, DELETE, UPDATE ON ALL TABLES IN SCHEMA public TO " + clerk + "; GRANT INSERT ON XtkOption, " +
			"XtkJobLog, NmsEmailErrorStat TO " + clerk + "; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO " + clerk,
	)
	for range 2 {
		if code, out, errs := cleanupd(t, "migrate", "--database-url", db.URL()); code != 0 ||
			!strings.Contains(out, "up to date") {
			t.Fatalf("%d %s", code, errs)
		}
	}
	db.Do(
		"GRANT USAGE ON SCHEMA cleanupd TO " + clerk + "; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN " +
			"SCHEMA cleanupd TO " + clerk,
	)
	r := startServer(t, "--database-url", db.As(clerk))
	if code, out, errs := r.run(t, "run"); code != 0 {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// A client that speaks to the wrong listener says which address it needs.
func TestWrongListener(t *testing.T) {
	t.Parallel()
	r := startServer(t, "--database-url", pgtest.Campaign(t).URL())
	rest := strings.TrimPrefix(r.http, "http://")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--server", rest}, "this is an address for HTTP"},
		{[]string{"--server", rest, "--tls"}, "the server speaks plain text there"},
		{[]string{"--server", r.grpc, "--tls"}, "the server speaks plain text there"},
	} {
		code, _, errs := cleanupd(t, append([]string{"tasks"}, c.args...)...)
		if code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d, %s", c.args, code, errs)
		}
	}
}
