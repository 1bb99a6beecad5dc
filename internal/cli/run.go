package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/policies"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/runs/store"
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
	{"detach", "database-url"}, // no server would execute the run
}

func NewRun() *cobra.Command {
	var (
		server       rpc.Server
		req          cleanupv1.RunCleanupRequest
		maxDuration  time.Duration
		undo         time.Duration
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
			"--preview leaves out policies that fail in its dry run, and with --yes those that guards refuse; with\n" +
			"--continue-on-error other tasks, too. It says why, and the exit status is 1.\n" +
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
			if cmd.Flags().Changed("undo") {
				req.Undo = durationpb.New(undo)
			}
			req.Pace = paceOf(runPace)
			for _, pair := range exclusiveRunFlags {
				if cmd.Flags().Changed(pair[0]) && cmd.Flags().Changed(pair[1]) {
					return flags.Errorf("give either --%s or --%s", pair[0], pair[1])
				}
			}
			if ages != nil && req.GetDryRun() { // a server runs what is stored, and a dry run stores no policy
				return flags.Errorf("a dry run stores nothing, and with --older-than a run has to store a policy: see %s, "+
					"or give --preview, which asks", lookCommand(&server, ages))
			}
			preview = preview || ages != nil
			if preview && !yes && !terminal.CanAsk() { // before anything is stored
				see := "with --dry-run what a run would do, and do that with --plan"
				if ages != nil {
					see = lookCommand(&server, ages)
				}
				return flags.Errorf("the run needs confirmation, and there is no terminal to ask on: see %s; or give --yes",
					see)
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
				plan, leftOut, err := askAfterPreview(cmd, &server, client, &req, yes, stored, start)
				id := ""
				if err == nil {
					id, err = start(plan)
				}
				if err = errors.Join(err, leftOut.err()); id == "" {
					return stored.withdraw(cmd.Context(), err)
				}
				stored.keep(cmd)
				return err
			case !req.GetDryRun() && !yes && terminal.IsInteractive():
				if err := confirmRun(cmd, &server, client, &req); err != nil {
					return err
				}
			}
			stored.keep(cmd)
			id, failed := start(&req)
			if id != "" && req.GetPlan() != "" && failed != nil {
				printHowToAccept(cmd, &server, client, id, req.GetPlan())
			}
			if id == "" || !req.GetDryRun() || req.GetDetach() {
				return failed
			}
			dryRun, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: id})
			switch guards := dryRun.GetRun().GetTrippedGuards(); {
			case failed != nil:
				if leftOut := tasksToLeaveOut(&server, dryRun.GetRun(), req.GetContinueOnError(), false); leftOut != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "To go on without the tasks that failed: %s\n",
						dryRunCommand(&server, req.GetTasks(), append(req.GetSkipTasks(), leftOut.names()...)))
				}
			case len(guards) > 0:
				fmt.Fprintf(cmd.ErrOrStderr(), "Guards would refuse this plan. To accept it: %s\n",
					watch.AcceptCommand(&server, id, guards))
			}
			return errors.Join(failed, err)
		}),
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&req.Tasks, "task", nil, "run this task; may be repeated (default all)")
	policies.AddAgesFlag(f, &ages)
	f.StringArrayVar(&req.SkipTasks, "skip-task", nil, "skip this task; may be repeated")
	f.BoolVar(&req.DryRun, "dry-run", false, "change nothing, count what would be deleted")
	f.BoolVar(&preview, "preview", false, "show what a dry run finds, ask for confirmation, and do that, as --plan")
	f.BoolVar(&yes, "yes", false, "do not ask")
	watch.AddAllFlag(f, &all)
	f.StringVar(&req.Plan, "plan", "", "do what the dry run with this id found, "+tolerance)
	f.Var((*guardsFlag)(&req.AcceptGuards), "accept-guard",
		"with --plan: a guard to accept, with the number that the dry run showed; may be repeated")
	f.BoolVar(&req.ContinueOnError, "continue-on-error", false,
		"continue after a failed task with those that do not need it; after a failed policy a run always continues")
	flags.DurationVar(f, &maxDuration, "max-duration", 0,
		"stop a run after the batch during which this time has passed (default no limit)")
	f.BoolVar(&req.PauseStopsClock, "pause-stops-clock", false, "do not count pauses for --max-duration")
	f.Var(&runPace, "pace", "how hard runs work: "+strings.Join(pace.Names(), ", ")+" (default that of the server)")
	flags.DurationVar(f, &undo, "undo", 0,
		"keep what runs delete in the trash for this time after them, up to 90d; 0: not at all (default that of "+
			"the server)")
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

// askAfterPreview starts a dry run, asks for confirmation unless yes is set, and returns the request for a run that
// follows the dry run, for the caller to start. It repeats the dry run without the tasks that tasksToLeaveOut returns,
// and returns all of these.
func askAfterPreview(
	cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, req *cleanupv1.RunCleanupRequest, yes bool,
	stored *storedAges, start func(*cleanupv1.RunCleanupRequest) (id string, err error),
) (plan *cleanupv1.RunCleanupRequest, all leftOut, err error) {
	var (
		id     string
		dryRun *cleanupv1.GetRunResponse
	)
	for {
		var failed error
		id, failed = start(&cleanupv1.RunCleanupRequest{
			Tasks:           req.GetTasks(),
			SkipTasks:       append(all.names(), req.GetSkipTasks()...),
			ContinueOnError: req.GetContinueOnError(),
			Undo:            req.GetUndo(),
			DryRun:          true,
		})
		if id == "" {
			return nil, all, failed
		}
		if dryRun, err = client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: id}); err != nil {
			return nil, all, errors.Join(failed, err)
		}
		more := tasksToLeaveOut(server, dryRun.GetRun(), req.GetContinueOnError(), yes)
		if len(stored.stored) > 0 { // no policy is stored that fails
			more = nil
		}
		if more == nil {
			if failed == nil {
				failed = mustFail(dryRun.GetRun())
			}
			if failed != nil {
				return nil, all, failed
			}
			break
		}
		for _, t := range more {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is left out: %s\n", t.name, terminal.OneLine(t.why))
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "A new dry run previews the other tasks.")
		all = append(all, more...)
	}
	guards := dryRun.GetRun().GetTrippedGuards()
	if yes && len(guards) > 0 {
		stored.keep(cmd)
		return nil, all, fmt.Errorf("%s Nothing was run, since --yes does not accept guards: %s",
			watch.DescribeGuard(guards[0]), watch.AcceptCommand(server, id, guards))
	}
	question := ""
	if !yes {
		fmt.Fprintln(cmd.ErrOrStderr())
		if err := rpc.PrintTarget(cmd, server, client); err != nil {
			return nil, all, err
		}
		if err := printInterrupted(cmd, server, client); err != nil {
			return nil, all, err
		}
		question = stored.ask(cmd.ErrOrStderr(), dryRun.GetRun().GetUndo())
	}
	switch confirmed := yes || confirmPreview(cmd, watch.Total(dryRun.GetRun()), question, guards); {
	case !confirmed && len(stored.stored) > 0:
		return nil, all, errors.New("nothing was run, and no policy was stored or changed")
	case !confirmed:
		return nil, all, fmt.Errorf("nothing was run; the dry run can still be followed: %s",
			watch.AcceptCommand(server, id, guards))
	}
	return &cleanupv1.RunCleanupRequest{
		Plan:            id,
		AcceptGuards:    guards,
		ContinueOnError: req.GetContinueOnError(),
		MaxDuration:     req.GetMaxDuration(),
		PauseStopsClock: req.GetPauseStopsClock(),
		Pace:            req.GetPace(),
		Undo:            req.GetUndo(),
		Detach:          req.GetDetach(),
	}, all, nil
}

// leftOut are tasks that are left out so that a run can execute the others.
type leftOut []struct{ name, why string }

// tasksToLeaveOut returns the tasks that failed in a dry run, those for which a run lacks rights or that undo would
// refuse and, if refused is set, those that guards would refuse. It returns nil if no task would remain, if a run would
// end at such a task, or if the dry run was stopped.
func tasksToLeaveOut(server *rpc.Server, dryRun *cleanupv1.Run, continueOnError, refused bool) (out leftOut) {
	remain := false
	for _, t := range dryRun.GetResults() {
		why := ""
		switch t.GetState() {
		case cleanupv1.TaskState_TASK_STATE_SKIPPED:
			continue
		case cleanupv1.TaskState_TASK_STATE_SUCCEEDED:
			for _, p := range t.GetPreview() {
				if guards := p.GetGuards(); refused && why == "" && len(guards) > 0 {
					why = fmt.Sprintf("%s --yes does not accept guards; %s asks.", watch.DescribeGuard(guards[0]),
						server.Command("run", "--preview --task "+format.ShellWord(t.GetTask())))
				}
			}
			why = cmp.Or(failure(t), why) // its rows would also be missing from those of later tasks
		case cleanupv1.TaskState_TASK_STATE_FAILED, cleanupv1.TaskState_TASK_STATE_NOT_RUN:
			why = cmp.Or(t.GetError(), t.GetDetail())
		default: // the dry run was stopped
			return nil
		}
		switch isPolicy := strings.HasPrefix(t.GetTask(), policy.Prefix); {
		case why == "":
			remain = true
		case !isPolicy && !continueOnError:
			return nil
		default:
			out = append(out, struct{ name, why string }{t.GetTask(), why})
		}
	}
	if !remain {
		return nil
	}
	return out
}

// failure returns why a run would fail at a task that succeeded in a dry run; "" if nothing is known.
func failure(t *cleanupv1.TaskResult) string {
	for _, m := range t.GetDetails() {
		if code := m.GetCode(); code == message.UndoWouldRefuse.Code || code == message.RunLacksRights.Code {
			return m.GetText()
		}
	}
	return ""
}

// mustFail returns the error of a run that would fail at one of its tasks.
func mustFail(dryRun *cleanupv1.Run) error {
	for _, t := range dryRun.GetResults() {
		if why := failure(t); why != "" {
			return fmt.Errorf("nothing was run, since %s would fail: %s", t.GetTask(), why)
		}
	}
	return nil
}

func (l leftOut) names() (names []string) {
	for _, t := range l {
		names = append(names, t.name)
	}
	return names
}

// err is nil if no task was left out.
func (l leftOut) err() error {
	if l == nil {
		return nil
	}
	return fmt.Errorf("left out, for the reasons above: %s", strings.Join(l.names(), ", "))
}

func dryRunCommand(server *rpc.Server, tasks, skipped []string) string {
	arguments := "--dry-run"
	for _, name := range tasks {
		arguments += " --task " + format.ShellWord(name)
	}
	for _, name := range skipped {
		arguments += " --skip-task " + format.ShellWord(name)
	}
	return server.Command("run", arguments)
}

// confirmPreview asks whether to do exactly what a preview shows. If guards would refuse that, the user confirms by
// typing their numbers.
func confirmPreview(cmd *cobra.Command, total, question string, guards []*cleanupv1.TrippedGuard) bool {
	if len(guards) == 0 {
		return terminal.Confirm(cmd, total+". "+question)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "\n%s. Guards would refuse it. %s If so, type their numbers.\n", total, question)
	return acceptGuards(cmd, guards)
}

func confirmRun(
	cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, req *cleanupv1.RunCleanupRequest,
) error {
	if err := rpc.PrintTarget(cmd, server, client); err != nil {
		return err
	}
	if err := printInterrupted(cmd, server, client); err != nil {
		return err
	}
	question := "Delete what these tasks find? --preview shows it first. It " + undone(req.GetUndo())
	if req.GetPlan() != "" {
		dryRun, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: req.GetPlan()})
		if err != nil {
			return err
		}
		created := format.Time(dryRun.GetRun().GetCreateTime())
		rpc.PrintFact(cmd.ErrOrStderr(), "Plan", req.GetPlan()+" of "+created)
		question = watch.Total(dryRun.GetRun()) + ". Run this, " + tolerance + "? It " +
			undone(cmp.Or(req.GetUndo(), dryRun.GetRun().GetUndo()))
	} else if err := printTasks(cmd, client, req); err != nil {
		return err
	}
	if !terminal.Confirm(cmd, question) {
		return errors.New("nothing was run")
	}
	return nil
}

// tolerance is by how much a run may exceed its plan.
const tolerance = "and at most 1 % and 1,000 rows of a table more"

// undone ends a question whether to run.
func undone(undo *durationpb.Duration) string {
	if undo.AsDuration() > 0 {
		return "can be undone for " + format.Period(undo.AsDuration()) + "."
	}
	return "cannot be undone (--undo keeps what it deletes for a time)."
}

// printTasks prints how many tasks a run would have, and their names if tasks were selected.
func printTasks(cmd *cobra.Command, client cleanupd.Client, req *cleanupv1.RunCleanupRequest) error {
	all, err := listTasks(cmd.Context(), client)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range all.GetTasks() {
		if isSelected(t, req) {
			names = append(names, t.GetName())
		}
	}
	text := fmt.Sprintf("all %d", len(names))
	if len(names) < len(all.GetTasks()) {
		text = fmt.Sprintf("%d of %d: %s", len(names), len(all.GetTasks()), cmp.Or(strings.Join(names, ", "), "none"))
	}
	rpc.PrintFact(cmd.ErrOrStderr(), "Tasks", text)
	return nil
}

func isSelected(t *cleanupv1.Task, req *cleanupv1.RunCleanupRequest) bool {
	name, skipped := t.GetName(), req.GetSkipTasks()
	if slices.Contains(skipped, name) ||
		(isPolicy(t) && slices.Contains(skipped, policy.All)) {
		return false
	}
	return slices.Contains(req.GetTasks(), name) || (len(req.GetTasks()) == 0 && !t.GetDisabled())
}

// makeWay removes what kept a run from starting: it resumes the interrupted run that is active, or cancels interrupted
// dry runs. resumed is the error of the resumed run, if any. makeWay fails if the run still cannot start.
func makeWay(
	cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, failed error, p watch.Printer,
) (resumed, err error) {
	if run := obstacle(cmd.Context(), server, client, failed); run != nil {
		resumed = resume(cmd, server, client, run, p)
		if cmd.Context().Err() != nil {
			return nil, resumed
		}
		return resumed, nil
	}
	switch cancelled, err := cancelInterrupted(cmd, server, client, failed); {
	case err != nil:
		return nil, errors.Join(failed, err)
	case !cancelled: // not joined, which would hide its status
		return nil, failed
	}
	return nil, nil
}

// obstacle returns the active run that err names, if no replica has it, so that it would keep others from starting;
// otherwise nil. It also returns nil with a server, which resumes such a run by itself.
func obstacle(ctx context.Context, server *rpc.Server, client cleanupd.Client, err error) *cleanupv1.Run {
	if !server.InProcess() {
		return nil
	}
	for _, detail := range status.Convert(err).Details() {
		info, _ := detail.(*errdetails.ErrorInfo)
		if info.GetReason() != store.RunActive {
			continue
		}
		got, err := client.GetRun(ctx, &cleanupv1.GetRunRequest{RunId: info.GetMetadata()["run_id"]})
		run := got.GetRun()
		if err == nil && (run.GetInterrupted() || run.GetState() == cleanupv1.RunState_RUN_STATE_QUEUED) {
			return run
		}
	}
	return nil
}

// resume follows a run, which makes the server in this process execute it.
func resume(
	cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, run *cleanupv1.Run, p watch.Printer,
) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "Run %s of %s was interrupted, and is resumed first.\n", run.GetId(),
		format.Time(run.GetCreateTime()))
	stream, err := client.WatchRun(cmd.Context(), &cleanupv1.WatchRunRequest{RunId: run.GetId()})
	if err == nil {
		err = watch.NewRun(cmd.Context(), server, client, stream).Follow(p)
	}
	if err != nil {
		err = fmt.Errorf("the resumed run %s: %w", run.GetId(), err)
	}
	return err
}

// cancelInterrupted cancels dry runs that no replica has if err means that there are too many. Their counts are of no
// use, since a resumed dry run counts its current table again. It reports whether it cancelled any.
func cancelInterrupted(cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, err error) (bool, error) {
	if !server.InProcess() || status.Code(err) != codes.ResourceExhausted {
		return false, nil
	}
	dryRuns, err := interruptedRuns(cmd.Context(), client, true)
	for _, run := range dryRuns {
		if _, err := client.CancelRun(cmd.Context(), &cleanupv1.CancelRunRequest{RunId: run.GetId()}); err != nil {
			return false, err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "Cancelled the dry run %s of %s, which was interrupted.\n", run.GetId(),
			format.Time(run.GetCreateTime()))
	}
	return len(dryRuns) > 0, err
}

// printInterrupted prints, before the user is asked, that an interrupted run is resumed first.
func printInterrupted(cmd *cobra.Command, server *rpc.Server, client cleanupd.Client) error {
	if !server.InProcess() {
		return nil
	}
	runs, err := interruptedRuns(cmd.Context(), client, false)
	for _, run := range runs {
		rpc.PrintFact(cmd.ErrOrStderr(), "First", fmt.Sprintf("run %s of %s, which was interrupted, is resumed",
			run.GetId(), format.Time(run.GetCreateTime())))
	}
	return err
}

func interruptedRuns(ctx context.Context, client cleanupd.Client, dryRuns bool) (list []*cleanupv1.Run, err error) {
	active, err := client.ListRuns(ctx, &cleanupv1.ListRunsRequest{
		State: cleanupv1.RunState_RUN_STATE_RUNNING.Enum(), DryRun: &dryRuns,
	})
	if errors.Is(err, migrate.ErrNoSchema) {
		return nil, nil
	}
	for _, run := range active.GetRuns() {
		if run.GetInterrupted() {
			list = append(list, run)
		}
	}
	return list, err
}

// printHowToAccept prints the command that accepts the guards of a plan, if these refused the run.
func printHowToAccept(cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, id, plan string) {
	run, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: id})
	if err != nil || run.GetRun().GetReason() != cleanupv1.RefusalReason_REFUSAL_REASON_GUARD {
		return
	}
	dryRun, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: plan})
	if guards := dryRun.GetRun().GetTrippedGuards(); err == nil && len(guards) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "Guards refused this plan. To accept it: %s\n",
			watch.AcceptCommand(server, plan, guards))
	}
}
