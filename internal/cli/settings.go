package cli

import (
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
)

// withSubcommands adds subcommands to a command, which does by itself what show does, and the flags of all of them.
func withSubcommands(
	cmd *cobra.Command, server *rpc.Server, output *format.Output, show *cobra.Command, others ...*cobra.Command,
) *cobra.Command {
	cmd.Args, cmd.RunE = flags.OnlyCommands, show.RunE
	cmd.Flags().AddFlagSet(show.Flags())
	cmd.AddCommand(append(others, show)...)
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

// explainConflict returns the error of a change whose etag the command itself has read. If the settings have changed
// since, it says what to do.
func explainConflict(err error) error {
	if status.Code(err) != codes.Aborted {
		return err
	}
	return status.Error(
		codes.Aborted, "nothing was changed: somebody else changed the same settings meanwhile; run the command again",
	)
}
