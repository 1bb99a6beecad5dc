package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
)

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
