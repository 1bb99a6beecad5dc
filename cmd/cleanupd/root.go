package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/cli"
	"github.com/cleanupd/cleanupd/internal/cli/forms"
	"github.com/cleanupd/cleanupd/internal/cli/policies"
	"github.com/cleanupd/cleanupd/internal/demo"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/internal/version"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:     "cleanupd",
		Version: version.String(),
		Short:   "Keeps PostgreSQL databases from growing without end",
		Long: "Keeps PostgreSQL databases from growing without end: by policies, and by the tasks of Adobe Campaign.\n" +
			"serve is the server; most other commands ask one.",
		Example: "  cleanupd demo --keep             try it on a private database\n" +
			"  cleanupd run --preview           show what would be deleted, ask, and delete that\n" +
			"  cleanupd runs --state failed     list the runs that failed, such as last night's\n" +
			"  cleanupd runs show ID            show why a run failed\n" +
			"  cleanupd guards                  show which tasks a guard refuses; run --preview approves them\n" +
			"  cleanupd explain TABLE KEY       show why a row is deleted or kept",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          flags.OnlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("cleanupd {{.Version}}\n")
	root.SetFlagErrorFunc(flags.ParseError)
	server := serve.NewCommand()
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Commands for any database:", []*cobra.Command{
			cli.NewPreview(), cli.NewRun(), cli.NewRuns(), policies.NewCommand(), cli.NewTables(), cli.NewTasks(),
			cli.NewExplain(), cli.NewForecast(), cli.NewGuards(), cli.NewHolds(), cli.NewSchedule(), cli.NewAudit(),
			cli.NewTrash(),
		}},
		{"Commands for databases of Adobe Campaign and AEM Forms:", []*cobra.Command{
			cli.NewOptions(), cli.NewMidSourcing(), forms.NewCommand(),
		}},
		{"Commands for the server and its own schema:", []*cobra.Command{
			server, serve.NewSettings(), serve.NewMigrate(), serve.NewSchema(), serve.NewAdopt(), serve.NewHealth(),
			serve.NewNotify(),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(cli.NewContext(), demo.NewCommand(), cli.NewMan(), cli.NewVersion())
	for _, cmd := range root.Commands() {
		flags.DocumentEnvironment(cmd)
	}
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	flags.CompleteFileFlags(root)
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = knownCommand
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.CheckEnvironment(cmd.Root(), os.Environ()); err != nil {
			return err
		}
		return flags.ReadSettings(cmd.Flags(), server.Flags())
	}
	return root
}

// knownCommand refuses an unknown command, which cobra's help would ignore.
func knownCommand(cmd *cobra.Command, args []string) error {
	if _, rest, err := cmd.Root().Find(args); err != nil || len(rest) > 0 {
		return flags.UnknownCommand(cmd.Root(), strings.Join(args, " "))
	}
	return nil
}
