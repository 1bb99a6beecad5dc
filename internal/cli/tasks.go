package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// NewTasks returns the command tasks.
func NewTasks() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	cmd := &cobra.Command{
		Use:     "tasks",
		Short:   "List the tasks of a run in their order",
		Example: "  cleanupd tasks\n  cleanupd tasks -o json | jq -r '.tasks[].name'",
		Args:    flags.NoArguments,
		RunE: rpc.WithCleanup(&server, func(cmd *cobra.Command, client rpc.CleanupClient, _ []string) error {
			resp, err := client.ListTasks(cmd.Context(), &cleanupv1.ListTasksRequest{})
			if err != nil {
				return err
			}
			table := []terminal.Row{{"#", "TASK", "TITLE", "NEEDS", "OPTIONS"}}
			for i, t := range resp.GetTasks() {
				table = append(table, terminal.Row{
					strconv.Itoa(i + 1),
					t.GetName(),
					t.GetTitle(),
					strings.Join(t.GetDependsOn(), " "),
					strings.Join(t.GetOptions(), " "),
				})
			}
			return output.Print(cmd.OutOrStdout(), resp, table)
		}),
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}
