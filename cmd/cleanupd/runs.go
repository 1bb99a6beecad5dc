package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service"
)

func newRuns() *cobra.Command {
	var (
		server target
		limit  int32
		output format
	)
	listRuns := withClient(&server, func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
		if err := checkLimit(limit, service.MaxRuns); err != nil {
			return err
		}
		out, err := client.ListRuns(cmd.Context(), &cleanupv1.ListRunsRequest{PageSize: limit})
		if err != nil {
			return err
		}
		defer tellOfMore(cmd.ErrOrStderr(), out.GetNextPageToken(), service.MaxRuns)
		return output.print(cmd.OutOrStdout(), out, runsTable(out.GetRuns()))
	})
	list := &cobra.Command{
		Use:   "list",
		Short: "List the newest runs",
		Args:  noArguments,
		RunE:  listRuns,
	}
	cmd := &cobra.Command{
		Use:   "runs [list | watch ID | cancel ID]",
		Short: "List, watch and cancel the runs of a server",
		Args:  noCommand,
		RunE:  listRuns,
	}
	server.flags(cmd)
	output.flag(cmd)
	limitFlag(cmd.Flags(), &limit, "of the newest", service.MaxRuns)
	limitFlag(list.Flags(), &limit, "of the newest", service.MaxRuns)
	cmd.AddCommand(
		list,
		&cobra.Command{
			Use:   "watch ID",
			Short: "Show a run's progress from its beginning to its end",
			Args:  oneID,
			RunE: withClient(&server, func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error {
				stream, err := client.WatchRun(cmd.Context(), &cleanupv1.WatchRunRequest{RunId: args[0]})
				if err != nil {
					return err
				}
				return follow(cmd.OutOrStdout(), &following{ctx: cmd.Context(), server: server.address, client: client, receive: received(stream)})
			}),
		},
		&cobra.Command{
			Use:   "cancel ID",
			Short: "Stop a run after its current batch",
			Args:  oneID,
			RunE: withClient(&server, func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error {
				out, err := client.CancelRun(cmd.Context(), &cleanupv1.CancelRunRequest{RunId: args[0]})
				if err != nil {
					return err
				}
				becomes := "is " + stateName("RUN_STATE_", out.GetRun().GetState())
				if out.GetRun().GetEndTime() == nil {
					becomes = "stops after its current batch"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s %s\n", out.GetRun().GetId(), becomes)
				return err
			}),
		},
	)
	return cmd
}

func oneID(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s takes the id of one run; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

// runsTable is a row for each run.
func runsTable(list []*cleanupv1.Run) [][]string {
	table := [][]string{{"RUN", "STATE", "CREATED", "TOOK", "ROWS DELETED", "LEFT", "ERROR"}}
	for _, r := range list {
		var deleted int64
		for _, t := range r.GetResults() {
			deleted += t.GetRowsDeleted()
		}
		took := ""
		if r.GetEndTime() != nil && r.GetStartTime() != nil {
			took = r.GetEndTime().AsTime().Sub(r.GetStartTime().AsTime()).Round(10 * time.Millisecond).String()
		}
		state := stateName("RUN_STATE_", r.GetState())
		if r.GetDryRun() {
			state += " (dry)"
		}
		table = append(table, []string{r.GetId(), state, r.GetCreateTime().AsTime().Format(time.RFC3339), took, strconv.FormatInt(deleted, 10), left(r.GetResults()...), oneLine(r.GetError())})
	}
	return table
}
