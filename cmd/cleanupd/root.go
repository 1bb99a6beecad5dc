package main

import (
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/cli"
	"github.com/cleanupd/cleanupd/internal/demo"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/internal/serve/targets"
	"github.com/cleanupd/cleanupd/internal/version"
)

// newRoot returns the command cleanupd with all its commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "cleanupd",
		Version:       version.String(),
		Short:         "Keeps a Campaign database on PostgreSQL from growing without end",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          flags.OnlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("cleanupd {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return flags.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(
		serve.NewCommand(),
		serve.NewMigrate(),
		serve.NewAdopt(),
		cli.NewRun(),
		cli.NewRuns(),
		cli.NewTasks(),
		cli.NewExplain(),
		cli.NewOptions(),
		cli.NewSchedule(),
		cli.NewMidSourcing(),
		cli.NewHolds(),
		cli.NewGuards(),
		cli.NewUserData(),
		cli.NewAudit(),
		serve.NewHealth(),
		targets.NewCommand(),
		demo.NewCommand(),
		cli.NewMan(),
		cli.NewVersion(),
	)
	for _, cmd := range root.Commands() {
		documentEnvironment(cmd)
	}
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = knownCommand
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkEnvironment(cmd.Root(), os.Environ()); err != nil {
			return err
		}
		return readEnvironment(cmd.Flags())
	}
	return root
}

// knownCommand fails if arguments do not name a command. cobra's help would ignore them.
func knownCommand(cmd *cobra.Command, args []string) error {
	if _, rest, err := cmd.Root().Find(args); err != nil || len(rest) > 0 {
		return flags.UnknownCommand(cmd.Root(), strings.Join(args, " "))
	}
	return nil
}

// documentEnvironment adds the environment variable of each flag to the help of a command and its subcommands.
func documentEnvironment(cmd *cobra.Command) {
	document := func(f *pflag.Flag) {
		hint := " [$" + variable(f.Name) + "]"
		if !strings.HasSuffix(f.Usage, hint) { // two commands may share a flag
			f.Usage += hint
		}
	}
	cmd.Flags().VisitAll(document)
	cmd.PersistentFlags().VisitAll(document)
	for _, sub := range cmd.Commands() {
		documentEnvironment(sub)
	}
}

// readEnvironment sets the flags that were not given from environment variables. In the variable of a flag that may be
// repeated, blanks separate the values.
func readEnvironment(set *pflag.FlagSet) (err error) {
	set.VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(variable(f.Name))
		if !ok || f.Changed || f.Name == "help" || err != nil {
			return
		}
		values := []string{value}
		if f.Value.Type() == "stringArray" { // a flag that may be repeated
			values = strings.Fields(value)
		}
		for _, value := range values {
			if setErr := set.Set(f.Name, value); setErr != nil {
				err = flags.Errorf("environment variable %s: %w", variable(f.Name), setErr)
			}
		}
	})
	return err
}

// otherVariables matches variables that set no flag: of the examples and the tests, and of Kubernetes, which sets them in
// all pods beside a Service whose name begins with cleanupd.
var otherVariables = regexp.MustCompile(
	`^CLEANUPD_(URL|PATIENCE|SUITES|POSTGRES_REPOSITORY|(\w+_)?SERVICE_(HOST|PORT(_\w+)?)|(\w+_)?PORT(_\d+_\w+)?)$`,
)

// checkEnvironment fails if an environment variable looks like that of a flag, and no command has the flag.
func checkEnvironment(root *cobra.Command, environment []string) error {
	known := &cobra.Command{SuggestionsMinimumDistance: 2}
	variables := map[string]bool{}
	addVariables(root, variables)
	for name := range variables {
		known.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	for _, setting := range environment {
		name, _, _ := strings.Cut(setting, "=")
		if !strings.HasPrefix(name, "CLEANUPD_") || variables[name] || otherVariables.MatchString(name) {
			continue
		}
		hint := ""
		if similar := known.SuggestionsFor(name); len(similar) > 0 {
			hint = "; did you mean " + strings.Join(similar, " or ") + "?"
		}
		return flags.Errorf("environment variable %s: no flag of cleanupd has this name%s", name, hint)
	}
	return nil
}

// addVariables adds the environment variables of the flags of a command and its subcommands.
func addVariables(cmd *cobra.Command, variables map[string]bool) {
	add := func(f *pflag.Flag) { variables[variable(f.Name)] = true }
	cmd.Flags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	for _, sub := range cmd.Commands() {
		addVariables(sub, variables)
	}
}

// variable returns the name of a flag's environment variable.
func variable(flag string) string {
	return "CLEANUPD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
