package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/tasks"
)

// runPreviewed shows what a dry run finds, asks, and does exactly that.
func runAfterPreview(
	cmd *cobra.Command,
	client cleanupv1.CleanupServiceClient,
	req *cleanupv1.RunCleanupRequest,
	yes bool,
	do func(*cleanupv1.RunCleanupRequest) (id string, err error),
) error {
	if !yes && !term.IsTerminal(int(os.Stdin.Fd())) {
		return flags.Errorf(
			"there is nobody to ask whether to run it: give --yes, or --dry-run to be told what a run would do",
		)
	}
	id, err := do(
		&cleanupv1.RunCleanupRequest{
			Tasks:           req.GetTasks(),
			SkipTasks:       req.GetSkipTasks(),
			ContinueOnError: req.GetContinueOnError(),
			DryRun:          true,
		},
	)
	if err != nil {
		return err
	}
	found, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: id})
	if err != nil {
		return err
	}
	trips := watch.TrippedGuards(found.GetRun())
	if yes && len(trips) > 0 {
		return fmt.Errorf(
			"%s Nothing was run: that needs the number, which --yes does not give: cleanupd run --plan %s "+
				"--accept-guard '%s,%s,%d'",
			watch.DescribeGuard(trips[0]),
			id,
			trips[0].GetGuard(),
			trips[0].GetTable(),
			trips[0].GetNumber(),
		)
	}
	if !yes {
		if !acceptGuards(cmd, trips) {
			return errors.New("nothing was run")
		}
		if !terminal.Confirm(cmd, watch.Total(found.GetRun())+". Run exactly this? It can not be undone.") {
			return errors.New("nothing was run")
		}
	}
	_, err = do(
		&cleanupv1.RunCleanupRequest{
			Plan:            id,
			AcceptGuards:    trips,
			ContinueOnError: req.GetContinueOnError(),
			MaxDuration:     req.GetMaxDuration(),
			Detach:          req.GetDetach(),
		},
	)
	return err
}

func NewRun() *cobra.Command {
	var (
		server rpc.Server
		req    cleanupv1.RunCleanupRequest
		limit  time.Duration
		output format.Output

		previews, yes bool
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Start a run on a server and show its progress",
		Example: "  cleanupd run --preview\n  cleanupd run --dry-run\n  cleanupd run --task delivery-logs --task " +
			"tracking-logs --max-duration 2h\n" +
			"  cleanupd run --continue-on-error -o json | jq -c '.event.taskFinished.result | select(.) | [.task, " +
			".rowsDeleted]'",
		Long: "Start a run on a server and show its progress: a line per task, bars for the task and the run with " +
			"the time left if\n" +
			"the number of rows is known, and a table at the end. On a narrow screen tables lose their last columns.\n" +
			"Interrupting this program does not stop the run; cleanupd runs cancel does.\n" +
			"The exit status is 1 if the run did not succeed, and 130 if this program was interrupted.",
		Args: flags.NoArguments,
		RunE: rpc.WithCleanup(
			&server,
			func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
				if cmd.Flags().Changed("max-duration") {
					if limit <= 0 {
						return flags.Errorf("--max-duration must be greater than 0, not %s", limit)
					}
					req.MaxDuration = durationpb.New(limit)
				}
				for _, pair := range [][2]string{
					{"preview", "plan"},
					{"preview", "dry-run"},
					{"plan", "dry-run"},
					{"plan", "task"},
					{"plan", "skip-task"},
					{"preview", "accept-guard"},
				} {
					if cmd.Flags().Changed(pair[0]) && cmd.Flags().Changed(pair[1]) {
						return flags.Errorf("give either --%s or --%s", pair[0], pair[1])
					}
				}
				do := func(req *cleanupv1.RunCleanupRequest) (id string, err error) {
					stream, err := client.RunCleanup(cmd.Context(), req)
					if err != nil {
						return "", err
					}
					f := watch.NewRun(cmd.Context(), &server, client, stream)
					err = f.Follow(watch.NewPrinter(output, cmd))
					return f.ID(), err
				}
				if previews {
					return runAfterPreview(cmd, client, &req, yes, do)
				}
				_, err := do(&req)
				return err
			},
		),
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&req.Tasks, "task", nil, "run this task; may be repeated (default all)")
	f.StringArrayVar(&req.SkipTasks, "skip-task", nil, "leave this task out; may be repeated")
	f.BoolVar(&req.DryRun, "dry-run", false, "change nothing, count what would be deleted")
	f.BoolVar(&previews, "preview", false, "show what a dry run finds, ask, and do exactly that")
	f.BoolVar(&yes, "yes", false, "do not ask; for --preview")
	f.StringVar(&req.Plan, "plan", "", "do what the dry run with this id has found, and no more")
	f.Var(
		(*guardsFlag)(&req.AcceptGuards),
		"accept-guard",
		"with --plan: a guard that the run may pass, and the number that the dry run showed; may be repeated",
	)
	f.BoolVar(
		&req.ContinueOnError,
		"continue-on-error",
		false,
		"continue after a failed task, with those that do not need it",
	)
	f.DurationVar(
		&limit,
		"max-duration",
		0,
		"stop a run after the batch during which this time has passed (default no limit)",
	)
	_ = cmd.RegisterFlagCompletionFunc(
		"task",
		cobra.FixedCompletions(tasks.Names(), cobra.ShellCompDirectiveNoFileComp),
	)
	f.BoolVar(&req.Detach, "detach", false, "start the run and do not wait for its end")
	return cmd
}
