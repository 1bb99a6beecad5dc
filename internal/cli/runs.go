package cli

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service"
)

func NewRuns() *cobra.Command {
	var (
		server rpc.Server
		limit  int32
		output format.Output
	)
	listRuns := rpc.WithCleanup(
		&server,
		func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
			out, err := rpc.List(
				limit,
				service.MaxRuns,
				func(size int32, token string) (*cleanupv1.ListRunsResponse, int, error) {
					page, err := client.ListRuns(
						cmd.Context(),
						&cleanupv1.ListRunsRequest{PageSize: size, PageToken: token},
					)
					return page, len(page.GetRuns()), err
				},
			)
			if err != nil {
				return err
			}
			defer rpc.PrintMore(cmd.ErrOrStderr(), out)
			return output.Print(cmd.OutOrStdout(), out, runsTable(out.GetRuns()))
		},
	)
	listed := &cobra.Command{
		Use:     "list",
		Short:   "List the newest runs",
		Example: "  cleanupd runs list --limit 100\n  cleanupd runs list -o json | jq -r '.runs[0].state'",
		Args:    flags.NoArguments,
		RunE:    listRuns,
	}
	cmd := &cobra.Command{
		Use:   "runs [list | watch ID | cancel ID]",
		Short: "List, watch and cancel the runs of a server",
		Example: "  cleanupd runs\n  cleanupd runs watch 01a20609-283b-755d-90ec-99cde01f104d\n  cleanupd runs cancel " +
			"01a20609-283b-755d-90ec-99cde01f104d",
		Args: flags.OnlyCommands,
		RunE: listRuns,
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	rpc.AddLimitFlag(cmd.Flags(), &limit)
	rpc.AddLimitFlag(listed.Flags(), &limit)
	cmd.AddCommand(
		listed,
		&cobra.Command{
			Use:   "watch ID",
			Short: "Show a run's progress from its beginning to its end",
			Example: "  cleanupd runs watch 01a20609-283b-755d-90ec-99cde01f104d\n  cleanupd runs watch " +
				"01a20609-283b-755d-90ec-99cde01f104d -o json | jq .event.taskFinished",
			Args: flags.OneArgument("the id of one run"),
			RunE: rpc.WithCleanup(
				&server,
				func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error {
					stream, err := client.WatchRun(cmd.Context(), &cleanupv1.WatchRunRequest{RunId: args[0]})
					if err != nil {
						return err
					}
					return watch.NewRun(cmd.Context(), &server, client, stream).Follow(watch.NewPrinter(output, cmd))
				},
			),
		},
		&cobra.Command{
			Use:     "cancel ID",
			Short:   "Stop a run after its current batch",
			Example: "  cleanupd runs cancel 01a20609-283b-755d-90ec-99cde01f104d",
			Args:    flags.OneArgument("the id of one run"),
			RunE: rpc.WithCleanup(
				&server,
				func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error {
					out, err := client.CancelRun(cmd.Context(), &cleanupv1.CancelRunRequest{RunId: args[0]})
					if err != nil {
						return err
					}
					if output != format.Table {
						return output.Print(cmd.OutOrStdout(), out, nil)
					}
					becomes := "is " + format.EnumName(out.GetRun().GetState())
					if out.GetRun().GetEndTime() == nil {
						becomes = "stops after its current batch"
					}
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s %s\n", out.GetRun().GetId(), becomes)
					return err
				},
			),
		},
	)
	return cmd
}

// runsTable is a row for each run.
func runsTable(list []*cleanupv1.Run) []terminal.Row {
	table := []terminal.Row{{"RUN", "STATE", "CREATED", "TOOK", "ROWS DELETED", "LEFT", "ERROR"}}
	for _, r := range list {
		var deleted int64
		for _, t := range r.GetResults() {
			deleted += t.GetRowsDeleted()
		}
		took := ""
		if r.GetEndTime() != nil && r.GetStartTime() != nil {
			took = format.Duration(r.GetEndTime().AsTime().Sub(r.GetStartTime().AsTime()))
		}
		state := format.EnumName(r.GetState())
		if r.GetDryRun() {
			state += " (dry)"
		}
		table = append(
			table,
			terminal.Row{
				r.GetId(),
				state,
				r.GetCreateTime().AsTime().Format(time.RFC3339),
				took,
				humanize.Comma(deleted),
				watch.RowsLeft(r.GetResults()...),
				terminal.OneLine(r.GetError()),
			},
		)
	}
	return table
}
