package cli

import (
	"fmt"

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

// NewRuns returns the command runs.
func NewRuns() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	list := newListRuns(&server, &output)
	cmd := &cobra.Command{
		Use:   "runs [list | watch ID | cancel ID]",
		Short: "List, watch and cancel the runs of a server",
		Example: "  cleanupd runs\n  cleanupd runs watch 01a20609-283b-755d-90ec-99cde01f104d\n  cleanupd runs cancel " +
			"01a20609-283b-755d-90ec-99cde01f104d",
		Args: flags.OnlyCommands,
		RunE: list.RunE,
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newWatchRun(&server, &output), newCancelRun(&server, &output))
	return cmd
}

func newListRuns(server *rpc.Server, output *format.Output) *cobra.Command {
	var limit int32
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the newest runs",
		Example: "  cleanupd runs list --limit 100\n  cleanupd runs list -o json | jq -r '.runs[0].state'",
		Args:    flags.NoArguments,
		RunE: rpc.WithCleanup(server, func(cmd *cobra.Command, client rpc.CleanupClient, _ []string) error {
			fetch := func(size int32, token string) (*cleanupv1.ListRunsResponse, int, error) {
				req := &cleanupv1.ListRunsRequest{PageSize: size, PageToken: token}
				page, err := client.ListRuns(cmd.Context(), req)
				return page, len(page.GetRuns()), err
			}
			runs, err := rpc.List(limit, service.MaxRuns, fetch)
			if err != nil {
				return err
			}
			defer rpc.PrintMore(cmd.ErrOrStderr(), runs)
			return output.Print(cmd.OutOrStdout(), runs, runsTable(runs.GetRuns()))
		}),
	}
	rpc.AddLimitFlag(cmd.Flags(), &limit)
	return cmd
}

func newWatchRun(server *rpc.Server, output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "watch ID",
		Short: "Show a run's progress from its beginning to its end",
		Example: "  cleanupd runs watch 01a20609-283b-755d-90ec-99cde01f104d\n  cleanupd runs watch " +
			"01a20609-283b-755d-90ec-99cde01f104d -o json | jq .event.taskFinished",
		Args: flags.OneArgument("the id of one run"),
		RunE: rpc.WithCleanup(server, func(cmd *cobra.Command, client rpc.CleanupClient, args []string) error {
			stream, err := client.WatchRun(cmd.Context(), &cleanupv1.WatchRunRequest{RunId: args[0]})
			if err != nil {
				return err
			}
			return watch.NewRun(cmd.Context(), server, client, stream).Follow(watch.NewPrinter(*output, cmd))
		}),
	}
}

func newCancelRun(server *rpc.Server, output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:     "cancel ID",
		Short:   "Stop a run after its current batch",
		Example: "  cleanupd runs cancel 01a20609-283b-755d-90ec-99cde01f104d",
		Args:    flags.OneArgument("the id of one run"),
		RunE: rpc.WithCleanup(server, func(cmd *cobra.Command, client rpc.CleanupClient, args []string) error {
			resp, err := client.CancelRun(cmd.Context(), &cleanupv1.CancelRunRequest{RunId: args[0]})
			if err != nil {
				return err
			}
			if *output != format.Table {
				return output.Print(cmd.OutOrStdout(), resp, nil)
			}
			run := resp.GetRun()
			status := "is " + format.EnumName(run.GetState())
			if run.GetEndTime() == nil {
				status = "stops after its current batch"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s %s\n", run.GetId(), status)
			return err
		}),
	}
}

// runsTable returns a row for each run.
func runsTable(runs []*cleanupv1.Run) []terminal.Row {
	table := []terminal.Row{{"RUN", "STATE", "CREATED", "TOOK", "ROWS DELETED", "WOULD DELETE", "LEFT", "ERROR"}}
	for _, r := range runs {
		var deleted int64
		for _, t := range r.GetResults() {
			deleted += t.GetRowsDeleted()
		}
		state, done, foreseen := format.EnumName(r.GetState()), humanize.Comma(deleted), ""
		if r.GetDryRun() {
			state, done, foreseen = state+" (dry)", "", done
		}
		table = append(table, terminal.Row{
			r.GetId(),
			state,
			format.Time(r.GetCreateTime()),
			format.Elapsed(r.GetStartTime(), r.GetEndTime()),
			done,
			foreseen,
			watch.RowsLeft(r.GetResults()...),
			terminal.OneLine(r.GetError()),
		})
	}
	return table
}
