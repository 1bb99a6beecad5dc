package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/policies"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// exclusiveRunFlags are pairs of flags that cannot be given together.
var exclusiveRunFlags = [][2]string{
	{"preview", "plan"},
	{"preview", "dry-run"},
	{"plan", "dry-run"},
	{"plan", "task"},
	{"plan", "skip-task"},
	{"preview", "accept-guard"},
	{"preview", "request-id"},
	{"older-than", "plan"},
	{"detach", "database-url"}, // nobody would execute the run
}

func NewRun() *cobra.Command {
	var (
		server       rpc.Server
		req          cleanupv1.RunCleanupRequest
		maxDuration  time.Duration
		runPace      pace.Pace
		output       format.Output
		preview, yes bool
		all          bool
		ages         policies.Ages
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Start a run on a server and show its progress",
		Example: "  cleanupd run --preview\n  cleanupd run --dry-run\n  cleanupd run --plan ID --accept-guard " +
			`'share,"public"."orders",250000'` + "\n  cleanupd run --task policy/old-orders " +
			"--max-duration 2h\n" +
			"  cleanupd run --continue-on-error -o json | jq -c '.event.taskFinished.result | select(.) | [.task, " +
			".rowsDeleted]'",
		Long: "Start a run on a server and show its progress: a line per task, bars for the task and the run with\n" +
			"the time left if the number of rows is known, and a table at the end. A narrow screen shows a\n" +
			"preview as a list, and names the columns that other tables lose.\n" +
			"On a terminal, show the database and the tasks, and ask for confirmation; --yes does not ask.\n" +
			"Without a terminal it starts at once, except for --preview.\n" +
			"Interrupting this program does not stop the run; cleanupd runs cancel does. With --database-url it\n" +
			"stops the run after the current batch; the next cleanupd run --database-url resumes it before its own.\n" +
			"With --older-than, preview a policy for each such rule, and run and store these if you confirm. An age\n" +
			"of 0 is for times at which rows expire: by any other date, it means all rows of the past.\n" +
			"If the server is lost, the program tries for a minute to come back to the run, or to start it.\n" +
			"The exit status is 1 if the run, or one that it resumed, did not succeed, and 130 if this program was\n" +
			"interrupted.",
		Args: flags.NoArguments,
		RunE: rpc.WithClient(&server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			if cmd.Flags().Changed("max-duration") {
				if maxDuration <= 0 {
					return flags.Errorf("--max-duration must be greater than 0, not %s", maxDuration)
				}
				req.MaxDuration = durationpb.New(maxDuration)
			}
			req.Pace = paceOf(runPace)
			for _, pair := range exclusiveRunFlags {
				if cmd.Flags().Changed(pair[0]) && cmd.Flags().Changed(pair[1]) {
					return flags.Errorf("give either --%s or --%s", pair[0], pair[1])
				}
			}
			preview = preview || ages != nil && !req.GetDryRun()
			if preview && !yes && !terminal.CanAsk() { // before anything is stored
				return flags.Errorf(
					"the run needs confirmation, and there is no terminal to ask on: see with --dry-run what a run " +
						"would do, and do exactly that with --plan; or give --yes",
				)
			}
			stored, err := storeAges(cmd, &server, client, ages)
			if err != nil {
				return err
			}
			for _, p := range ages {
				req.Tasks = append(req.Tasks, policy.Prefix+p.GetName())
			}
			if req.Plan, err = runID(cmd.Context(), client, req.GetPlan()); err != nil {
				return err
			}
			startOnce := func(req *cleanupv1.RunCleanupRequest) (id string, err error) {
				run, err := watch.Start(cmd.Context(), &server, client, req)
				if err != nil {
					return "", err
				}
				err = run.Follow(watch.NewPrinter(output, cmd, &server, all))
				return run.ID(), err
			}
			start := func(req *cleanupv1.RunCleanupRequest) (id string, err error) {
				if id, err = startOnce(req); err == nil || id != "" {
					return id, err
				}
				resumed, err := makeWay(cmd, &server, client, err, watch.NewPrinter(output, cmd, &server, all))
				if err != nil {
					return "", err
				}
				if id, err = startOnce(req); resumed != nil {
					err = errors.Join(resumed, err)
				}
				return id, err
			}
			switch {
			case preview:
				plan, err := askAfterPreview(cmd, &server, client, &req, yes, stored, start)
				if err != nil {
					return stored.withdraw(cmd.Context(), err)
				}
				_, err = start(plan)
				return err
			case !req.GetDryRun() && !yes && terminal.IsInteractive():
				if err := confirmRun(cmd, &server, client, &req); err != nil {
					return err
				}
			}
			stored.keep(cmd)
			id, err := start(&req)
			if err != nil || !req.GetDryRun() || req.GetDetach() {
				return err
			}
			dryRun, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: id})
			if guards := dryRun.GetRun().GetTrippedGuards(); len(guards) > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "Guards would refuse this plan. To accept it: %s\n",
					watch.AcceptCommand(id, guards))
			}
			return err
		}),
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&req.Tasks, "task", nil, "run this task; may be repeated (default all)")
	policies.AddAgesFlag(f, &ages)
	f.StringArrayVar(&req.SkipTasks, "skip-task", nil, "skip this task; may be repeated")
	f.BoolVar(&req.DryRun, "dry-run", false, "change nothing, count what would be deleted")
	f.BoolVar(&preview, "preview", false, "show what a dry run finds, ask for confirmation, and do exactly that")
	f.BoolVar(&yes, "yes", false, "do not ask")
	watch.AddAllFlag(f, &all)
	f.StringVar(&req.Plan, "plan", "", "do what the dry run with this id found, and no more")
	f.Var((*guardsFlag)(&req.AcceptGuards), "accept-guard",
		"with --plan: a guard to accept, with the number that the dry run showed; may be repeated")
	f.BoolVar(&req.ContinueOnError, "continue-on-error", false,
		"continue after a failed task with those that do not need it; after a failed policy a run always continues")
	f.DurationVar(&maxDuration, "max-duration", 0,
		"stop a run after the batch during which this time has passed (default no limit)")
	f.BoolVar(&req.PauseStopsClock, "pause-stops-clock", false, "do not count pauses for --max-duration")
	f.Var(&runPace, "pace", "how hard runs work: "+strings.Join(pace.Names(), ", ")+" (default that of the server)")
	f.BoolVar(&req.Detach, "detach", false, "start the run and do not wait for its end")
	f.StringVar(&req.RequestId, "request-id", "",
		"a UUID: the command starts one run with it in 24 hours, however often it is repeated (default a new one)")
	rpc.CompleteFlag(cmd, "task", rpc.Complete(&server, knownTasks))
	rpc.CompleteFlag(cmd, "skip-task", rpc.Complete(&server, skippableTasks))
	rpc.CompleteFlag(cmd, "pace", completePaces)
	rpc.CompleteFlag(cmd, "plan", rpc.Complete(&server, knownPlans))
	rpc.CompleteFlag(cmd, "accept-guard", trippedGuards(&server, &req.Plan))
	return cmd
}

// askAfterPreview starts a dry run, asks for confirmation, and returns a run that does exactly what the dry run found.
func askAfterPreview(
	cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, req *cleanupv1.RunCleanupRequest, yes bool,
	stored *storedAges, start func(*cleanupv1.RunCleanupRequest) (id string, err error),
) (*cleanupv1.RunCleanupRequest, error) {
	id, err := start(&cleanupv1.RunCleanupRequest{
		Tasks:           req.GetTasks(),
		SkipTasks:       req.GetSkipTasks(),
		ContinueOnError: req.GetContinueOnError(),
		DryRun:          true,
	})
	if err != nil {
		return nil, err
	}
	dryRun, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: id})
	if err != nil {
		return nil, err
	}
	guards := dryRun.GetRun().GetTrippedGuards()
	if yes && len(guards) > 0 {
		stored.keep(cmd)
		return nil, fmt.Errorf("%s Nothing was run, since --yes does not accept guards: %s", watch.DescribeGuard(guards[0]),
			watch.AcceptCommand(id, guards))
	}
	question := ""
	if !yes {
		fmt.Fprintln(cmd.ErrOrStderr())
		if err := rpc.PrintTarget(cmd, server, client); err != nil {
			return nil, err
		}
		if err := printInterrupted(cmd, server, client); err != nil {
			return nil, err
		}
		question = stored.ask(cmd.ErrOrStderr())
	}
	switch confirmed := yes || confirmPreview(cmd, watch.Total(dryRun.GetRun()), question, guards); {
	case !confirmed && len(stored.stored) > 0:
		return nil, errors.New("nothing was run, and no policy was stored or changed")
	case !confirmed:
		return nil, fmt.Errorf("nothing was run; the dry run can still be followed: %s", watch.AcceptCommand(id, guards))
	}
	stored.keep(cmd)
	return &cleanupv1.RunCleanupRequest{
		Plan:            id,
		AcceptGuards:    guards,
		ContinueOnError: req.GetContinueOnError(),
		MaxDuration:     req.GetMaxDuration(),
		PauseStopsClock: req.GetPauseStopsClock(),
		Pace:            req.GetPace(),
		Detach:          req.GetDetach(),
	}, nil
}

// confirmPreview asks whether to do exactly what a preview shows. Where guards would refuse that, typing their numbers
// is the answer.
func confirmPreview(cmd *cobra.Command, total, question string, guards []*cleanupv1.TrippedGuard) bool {
	if len(guards) == 0 {
		return terminal.Confirm(cmd, total+". "+question)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "\n%s. Guards would refuse it. %s If so, type their numbers.\n", total, question)
	return acceptGuards(cmd, guards)
}
