package flags

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noVariable annotates flags that no environment variable sets, and fromVariable those that one has set.
const (
	noVariable   = "cleanupd_no_variable"
	fromVariable = "cleanupd_from_variable"
)

// WithoutVariable marks flags that no variable sets: their names mean something else in other commands, or they must be
// typed each time.
func WithoutVariable(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, noVariable, nil) // it fails only for an unknown flag
	}
}

// typed are the flags that approve something. They must be typed each time, since a variable would approve what nobody
// has reviewed.
var typed = []string{"yes", "accept-guard", "prune"}

func HasVariable(f *pflag.Flag) bool {
	_, without := f.Annotations[noVariable]
	return !without && f.Name != "help" && !slices.Contains(typed, f.Name)
}

func DocumentEnvironment(cmd *cobra.Command) {
	document := func(f *pflag.Flag) {
		hint := " [$" + variable(f.Name) + "]"
		if HasVariable(f) && !strings.HasSuffix(f.Usage, hint) { // two commands may share a flag
			f.Usage += hint
		}
	}
	cmd.Flags().VisitAll(document)
	cmd.PersistentFlags().VisitAll(document)
	for _, sub := range cmd.Commands() {
		DocumentEnvironment(sub)
	}
}

// ReadEnvironment sets the flags that were not given on the command line. Blanks separate the values of a flag that
// may be repeated.
func ReadEnvironment(set *pflag.FlagSet) (err error) {
	set.VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(variable(f.Name))
		if !ok || f.Changed || !HasVariable(f) || err != nil {
			return
		}
		values := []string{value}
		if repeats(f) {
			values = strings.Fields(value)
		}
		_ = set.SetAnnotation(f.Name, fromVariable, nil)
		for _, value := range values {
			if setErr := set.Set(f.Name, value); setErr != nil {
				err = Errorf("environment variable %s: %w", variable(f.Name), explainValue(setErr))
			}
		}
	})
	return err
}

// OnCommandLine reports whether a flag was given on the command line, not by a variable.
func OnCommandLine(set *pflag.FlagSet, name string) bool {
	f := set.Lookup(name)
	if f == nil {
		return false
	}
	_, byVariable := f.Annotations[fromVariable]
	return f.Changed && !byVariable
}

// otherVariables matches variables that set no flag: those of the examples and the tests, and those that Kubernetes
// sets in all pods beside a Service whose name begins with cleanupd.
var otherVariables = regexp.MustCompile(
	`^CLEANUPD_(URL|PATIENCE|SUITES|POSTGRES_REPOSITORY|(\w+_)?SERVICE_(HOST|PORT(_\w+)?)|(\w+_)?PORT(_\d+_\w+)?)$`)

// CheckEnvironment fails if a variable looks like that of a flag but no command has such a flag.
func CheckEnvironment(root *cobra.Command, environment []string) error {
	variables := map[string]bool{}
	addVariables(root, variables)
	for _, setting := range environment {
		name, _, _ := strings.Cut(setting, "=")
		if !strings.HasPrefix(name, "CLEANUPD_") || variables[name] || otherVariables.MatchString(name) {
			continue
		}
		for _, flag := range typed {
			if name == variable(flag) {
				return Errorf("environment variable %s is not read: --%s must be typed", name, flag)
			}
		}
		similar := Similar(name, slices.Sorted(maps.Keys(variables)))
		return Errorf("environment variable %s: no flag of cleanupd has this name%s", name, similar)
	}
	return nil
}

func addVariables(cmd *cobra.Command, variables map[string]bool) {
	add := func(f *pflag.Flag) {
		if HasVariable(f) {
			variables[variable(f.Name)] = true
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	for _, sub := range cmd.Commands() {
		addVariables(sub, variables)
	}
}

func variable(flag string) string {
	return "CLEANUPD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
