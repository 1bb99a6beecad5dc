package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/serve"
)

func settingsFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cleanupd.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Each flag of serve is in one group; its help shows few of them.
func TestSettingsAreGrouped(t *testing.T) {
	t.Parallel()
	var grouped, known []string
	shown := 0
	for _, group := range serve.Settings {
		grouped = append(grouped, group.Names()...)
		shown += len(group.Help)
	}
	serve.NewCommand().Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	slices.Sort(grouped)
	slices.Sort(known)
	if !slices.Equal(grouped, known) {
		t.Errorf("the groups have %q, and serve %q", grouped, known)
	}
	if shown < 20 || shown > 25 {
		t.Errorf("the help shows %d settings, want 20 to 25", shown)
	}
	_, help, _ := cleanupd(t, "serve", "--help")
	if n := strings.Count(help, "[$CLEANUPD_"); n != shown {
		t.Errorf("the help shows %d settings, want %d:\n%s", n, shown, help)
	}
	if strings.Contains(help, "--lease") {
		t.Error("the help shows a setting for experts")
	}
}

// The file that settings prints has every setting, and --config takes it with all its defaults.
func TestSettingsPrintsAFile(t *testing.T) {
	t.Parallel()
	code, out, errs := cleanupd(t, "settings")
	if code != 0 || errs != "" {
		t.Fatalf("%d %s", code, errs)
	}
	all := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(out, "$1")
	set := serve.NewCommand().Flags()
	if err := set.Set("config", settingsFile(t, all)); err != nil {
		t.Fatal(err)
	}
	if err := flags.ReadSettings(set, set); err != nil {
		t.Fatal(err)
	}
	set.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && (f.DefValue != "[]" && !f.Changed || f.Value.String() != f.DefValue) {
			t.Errorf("%s is %q, want %q (in the file: %v)", f.Name, f.Value, f.DefValue, f.Changed)
		}
	})
}

// A flag has precedence over a variable, and this over the file.
func TestSettingsFile(t *testing.T) {
	t.Setenv("CLEANUPD_HISTORY", "2ms")
	t.Setenv("CLEANUPD_CONFIG", settingsFile(t,
		"# some\nlease: 3ms\nhistory: 3ms\nmax-pause: 3ms\nworkers: 99\nmid-sourcing: [a, b=keep]\n"))
	code, out, errs := cleanupd(t, "serve", "--database-url", "postgres://h/d", "--lease", "1ms")
	if code != 2 || out != "" {
		t.Errorf("%d %s%s", code, out, errs)
	}
	for _, want := range []string{
		"--lease must be 1s or more, not 1ms", "--history must be 1s or more, not 2ms",
		"--max-pause must be 1m0s or more, not 3ms", "--workers must be 1 to 16, not 99", "--mid-sourcing must be NAME=URL",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not in\n%s", want, errs)
		}
	}
	if code, _, errs := cleanupd(t, "health"); code != 1 { // it has its settings from the same file
		t.Errorf("health: %d %s", code, errs)
	}
}

// All mistakes of a file are reported, each with its line.
func TestMistakesInASettingsFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"lease: soon\nworker: 3\nworkers: [1, 2]\npace:\nyes: true\nworkers: 4\ninstance: {a: b}\nconfig: x": {
			`:1: invalid argument "soon" for "--lease"`, `:2: there is no setting "worker" (did you mean workers?)`,
			":3: workers has one value, not a list", ":4: pace has no value", `:5: there is no setting "yes"`,
			":6: workers is set twice", ":7: instance has no value", `:8: there is no setting "config"`,
		},
		"workers: many":           {`:1: --workers must be a whole number, not "many"`},
		"- lease":                 {":1: it must have lines of the form NAME: VALUE"},
		"lease: 1s: 2":            {"mapping values are not allowed"},
		"lease: 1s\n---\npace: x": {"has more than one document"},
	} {
		code, out, errs := cleanupd(t, "serve", "--config", settingsFile(t, text))
		if lines := strings.Count(errs, "\n"); code != 2 || out != "" || lines != len(want) {
			t.Errorf("%q: status %d, %d lines, want %d: %s%s", text, code, lines, len(want), out, errs)
		}
		for _, want := range want {
			if !strings.Contains(errs, want) {
				t.Errorf("%q: %q is not in\n%s", text, want, errs)
			}
		}
	}
	if code, _, errs := cleanupd(t, "serve", "--config", "/nowhere"); code != 2 || !strings.Contains(errs, "/nowhere") {
		t.Errorf("%d %s", code, errs)
	}
}

// A server, and commands that run without one, read settings from a file.
func TestServersReadSettingsFiles(t *testing.T) {
	db := pgtest.Campaign(t)
	file := settingsFile(t, "database-url: "+db.URL()+"\ngrpc-listen: 127.0.0.1:0\nhttp-listen: 127.0.0.1:0\n"+
		"profile: none\ninstance: shop\n")
	r := startServer(t, "--config", file)
	code, out, errs := r.run(t, "tasks")
	if code != 0 || strings.Contains(out, "deliveries") {
		t.Errorf("tasks of profile none: %d %s%s", code, out, errs)
	}
	t.Setenv("CLEANUPD_CONFIG", file)
	code, out, errs = cleanupd(t, "tasks", "--database-url", db.URL())
	if code != 0 || strings.Contains(out, "deliveries") {
		t.Errorf("tasks of profile none, without a server: %d %s%s", code, out, errs)
	}
}
