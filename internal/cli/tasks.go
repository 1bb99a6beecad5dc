package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

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
		RunE: rpc.WithClient(&server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			resp, err := listTasks(cmd.Context(), client)
			if err != nil {
				return err
			}
			table := []terminal.Row{{"#", "TASK", "TITLE", "NEEDS", "OPTIONS"}}
			for i, t := range resp.GetTasks() {
				table = append(table,
					terminal.Row{
						strconv.Itoa(i + 1), t.GetName(), t.GetTitle(), strings.Join(t.GetDependsOn(), " "),
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

func listTasks(ctx context.Context, client cleanupd.Client) (*cleanupv1.ListTasksResponse, error) {
	return rpc.ListAll(func(token string) (*cleanupv1.ListTasksResponse, error) {
		return client.ListTasks(ctx, &cleanupv1.ListTasksRequest{PageToken: token})
	})
}
