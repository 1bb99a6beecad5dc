package cli

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
)

func NewMan() *cobra.Command {
	return &cobra.Command{
		Use:               "man DIR",
		Short:             "Write the manual pages of all commands into a folder",
		Example:           "  cleanupd man /usr/local/share/man/man1\n  man cleanupd-run",
		Args:              flags.OneArgument("a folder"),
		ValidArgsFunction: rpc.FirstArgument(cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // everyone may read manuals
				return flags.Errorf("%w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root,
				&doc.GenManHeader{Title: "CLEANUPD", Section: "1", Source: "cleanupd", Manual: "Database cleanup"},
				args[0])
		},
	}
}
