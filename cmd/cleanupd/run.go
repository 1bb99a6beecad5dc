package main

import (
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/tasks"
)

func newRun() *cobra.Command {
	var (
		server target
		req    cleanupv1.RunCleanupRequest
		limit  time.Duration
		output format
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Start a run on a server and show its progress",
		Example: "  cleanupd run --dry-run\n  cleanupd run --task delivery-logs --task tracking-logs --max-duration 2h\n" +
			"  cleanupd run --continue-on-error -o json | jq -c '.event.taskFinished.result | select(.) | [.task, .rowsDeleted]'",
		Long: "Start a run on a server and show its progress: a line per task, bars for the task and the run with the time left if\n" +
			"the number of rows is known, and a table at the end. On a narrow screen tables lose their last columns.\n" +
			"Interrupting this program does not stop the run; cleanupd runs cancel does.\n" +
			"The exit status is 1 if the run did not succeed, and 130 if this program was interrupted.",
		Args: noArguments,
		RunE: withClient(&server, func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
			if cmd.Flags().Changed("max-duration") {
				if limit <= 0 {
					return usagef("--max-duration must be greater than 0, not %s", limit)
				}
				req.MaxDuration = durationpb.New(limit)
			}
			stream, err := client.RunCleanup(cmd.Context(), &req)
			if err != nil {
				return err
			}
			return follow(output.viewer(cmd), &following{ctx: cmd.Context(), server: &server, client: client, receive: received(stream)})
		}),
	}
	server.flags(cmd)
	output.flag(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&req.Tasks, "task", nil, "run this task; may be repeated (default all)")
	f.StringArrayVar(&req.SkipTasks, "skip-task", nil, "leave this task out; may be repeated")
	f.BoolVar(&req.DryRun, "dry-run", false, "change nothing, count what would be deleted")
	f.BoolVar(&req.ContinueOnError, "continue-on-error", false, "continue after a failed task, with those that do not need it")
	f.DurationVar(&limit, "max-duration", 0, "stop a run after the batch during which this time has passed (default no limit)")
	_ = cmd.RegisterFlagCompletionFunc("task", cobra.FixedCompletions(tasks.Names(), cobra.ShellCompDirectiveNoFileComp))
	f.BoolVar(&req.Detach, "detach", false, "start the run and do not wait for its end")
	return cmd
}
