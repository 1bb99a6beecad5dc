package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

func newTasks() *cobra.Command {
	var (
		server target
		output format
	)
	cmd := &cobra.Command{
		Use:     "tasks",
		Short:   "List the tasks of a run, in their order",
		Example: "  cleanupd tasks\n  cleanupd tasks -o json | jq -r '.tasks[].name'",
		Args:    noArguments,
		RunE: withClient(&server, func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
			out, err := client.ListTasks(cmd.Context(), &cleanupv1.ListTasksRequest{})
			if err != nil {
				return err
			}
			table := []row{{"#", "TASK", "TITLE", "NEEDS", "OPTIONS"}}
			for i, t := range out.GetTasks() {
				table = append(
					table,
					row{
						strconv.Itoa(i + 1),
						t.GetName(),
						t.GetTitle(),
						strings.Join(t.GetNeeds(), " "),
						strings.Join(t.GetOptions(), " "),
					},
				)
			}
			return output.print(cmd.OutOrStdout(), out, table)
		}),
	}
	server.flags(cmd)
	output.flag(cmd)
	return cmd
}
