package flags

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noVariable annotates the flags that no environment variable sets.
const noVariable = "cleanupd_no_variable"

// WithoutVariable excepts flags from those that an environment variable sets, because the same name means something else
// to another command.
func WithoutVariable(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, noVariable, nil) // it fails only for an unknown flag
	}
}

// HasVariable reports whether an environment variable sets a flag.
func HasVariable(f *pflag.Flag) bool {
	_, without := f.Annotations[noVariable]
	return !without && f.Name != "help"
}

// DocumentEnvironment adds the environment variable of each flag to the help of a command and its subcommands.
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

// ReadEnvironment sets the flags that were not given from environment variables. In the variable of a flag that may be
// repeated, blanks separate the values.
func ReadEnvironment(set *pflag.FlagSet) (err error) {
	set.VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(variable(f.Name))
		if !ok || f.Changed || !HasVariable(f) || err != nil {
			return
		}
		values := []string{value}
		if f.Value.Type() == "stringArray" { // a flag that may be repeated
			values = strings.Fields(value)
		}
		for _, value := range values {
			if setErr := set.Set(f.Name, value); setErr != nil {
				err = Errorf("environment variable %s: %w", variable(f.Name), explainValue(setErr))
			}
		}
	})
	return err
}

// variable returns the name of a flag's environment variable.
func variable(flag string) string {
	return "CLEANUPD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
