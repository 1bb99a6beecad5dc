package targets

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/runs/notify"
)

func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "notify test",
		Short:   "Try whether notifications arrive",
		Example: "  cleanupd notify test --notify https://hooks.example/cleanup",
		Args:    flags.OnlyCommands,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTest())
	return cmd
}

func newTest() *cobra.Command {
	var (
		config Config
		origin notify.Origin
	)
	cmd := &cobra.Command{
		Use:   "test --notify URL",
		Short: "Send a test notification to each target, as serve would",
		Long: "Send a test notification to each target, as serve would, and print the outcomes.\n" +
			"Give the same flags to serve afterwards. This takes them and its environment variables, and " +
			"needs neither a server nor a database. The exit\n" +
			"status is 1 if a notification was not accepted.",
		Example: "  cleanupd notify test --notify https://hooks.example/cleanup --notify-secret-file secret\n" +
			"  cleanupd notify test --notify 'smtp://mail.example?to=dba@example.com'",
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			targets, err := config.Parse()
			if err != nil {
				return err
			}
			if len(targets) == 0 {
				return flags.Errorf("--notify is required: https://HOST/PATH or smtp://HOST?to=ADDRESS")
			}
			failed := 0
			for _, t := range targets {
				outcome := "sent"
				if err := notify.Test(cmd.Context(), t, origin); err != nil {
					failed++
					outcome = "not sent: " + err.Error()
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", terminal.Printable(t.Name), outcome)
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d notifications were not sent", failed, len(targets))
			}
			return nil
		},
	}
	config.AddFlags(cmd.Flags())
	flags.AddSettingsFile(cmd.Flags())
	cmd.Flags().StringVar(&origin.Instance, "instance", "", "the name of this service, which the notification has")
	return cmd
}
