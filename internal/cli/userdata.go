package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
)

func NewUserData() *cobra.Command {
	var server rpc.Server
	cmd := &cobra.Command{
		Use:   "userdata",
		Short: "Find and erase one person's data in AEM Forms",
		Example: "  cleanupd userdata find bob.smith@example.com\n  cleanupd userdata erase bob.smith@example.com\n  " +
			"cleanupd userdata sweep --dry-run\n  cleanupd userdata receipts",
		Args: flags.OnlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	server.AddFlags(cmd)
	cmd.AddCommand(
		newFind(&server),
		newErase(&server),
		newVerify(&server),
		newSweep(&server),
		newReceipt(&server),
		newReceipts(&server),
		newPurges(&server),
	)
	return cmd
}

func joinOrNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
