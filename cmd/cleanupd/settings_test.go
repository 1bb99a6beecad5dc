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
