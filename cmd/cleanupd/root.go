package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a mistake on the command line or in the environment.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "cleanupd",
		Version:       programVersion(),
		Short:         "Keeps a Campaign database on PostgreSQL from growing without end",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("cleanupd {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(
		newServe(),
		newMigrate(),
		newAdopt(),
		newRun(),
		newRuns(),
		newTasks(),
		newExplain(),
		newOptions(),
		newSchedule(),
		newMidSourcing(),
		newHolds(),
		newGuards(),
		newUserData(),
		newAudit(),
		newHealth(),
		newDemo(),
		newMan(),
		newVersion(),
	)
	for _, cmd := range root.Commands() {
		offerEnvironment(cmd)
	}
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = aCommand
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return readEnvironment(cmd.Flags()) }
	return root
}

// aCommand accepts a command, or nothing: the library's help treats an unknown one like none.
func aCommand(cmd *cobra.Command, args []string) error {
	if _, rest, err := cmd.Root().Find(args); err != nil || len(rest) > 0 {
		return unknownCommand(cmd.Root(), strings.Join(args, " "))
	}
	return nil
}

// offerEnvironment adds to the help of a command, and of its subcommands, which environment variable sets each flag.
func offerEnvironment(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage += " [$" + variable(f.Name) + "]" })
	cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Usage += " [$" + variable(f.Name) + "]" })
	for _, sub := range cmd.Commands() {
		offerEnvironment(sub)
	}
}

// readEnvironment sets flags that were not given from their variables. The values of a flag that may be repeated
// are separated by blanks.
func readEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(variable(f.Name))
		if !ok || f.Changed || f.Name == "help" || err != nil {
			return
		}
		values := []string{value}
		if f.Value.Type() == "stringArray" { // a flag that may be repeated
			values = strings.Fields(value)
		}
		for _, value := range values {
			if setErr := flags.Set(f.Name, value); setErr != nil {
				err = usagef("environment variable %s: %w", variable(f.Name), setErr)
			}
		}
	})
	return err
}

// variable is the environment variable of a flag.
func variable(flag string) string {
	return "CLEANUPD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// noCommand refuses arguments of a command that has commands of its own.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return nil
}

// unknownCommand says that a command has no such command, and which ones have similar names.
func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	hint := ""
	if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(similar, " or "))
	}
	return usagef("%s has no command %q%s; see %[1]s --help", cmd.CommandPath(), name, hint)
}

// noArguments refuses arguments where there are only flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument, not %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// oneLine returns a text as one printable line, in which each of its lines is once: the driver tells of every try to
// connect.
func oneLine(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return printable(strings.Join(lines, " "))
}
