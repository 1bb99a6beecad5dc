package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

func NewRuns() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	return withSubcommands(&cobra.Command{
		Use:   "runs [list | show ID | watch ID | pause ID | resume ID | pace ID PACE | cancel ID]",
		Short: "List, show, watch, pause, resume and cancel the runs of a server",
		Long: "List, show, watch, pause, resume and cancel the runs of a server.\n" +
			"The end of an id, from 4 characters on, means the run whose id alone ends with it.",
		Example: "  cleanupd runs\n  cleanupd runs --state failed --since 7d\n" +
			"  cleanupd runs show 1f104d\n  cleanupd runs watch " +
			"01a20609-283b-755d-90ec-99cde01f104d\n  cleanupd runs cancel " +
			"01a20609-283b-755d-90ec-99cde01f104d",
	}, &server, &output, newListRuns(&server, &output), newShowRun(&server, &output), newWatchRun(&server, &output),
		newPauseRun(&server, &output), newResumeRun(&server, &output), newSetPace(&server, &output),
		newCancelRun(&server, &output))
}

func newListRuns(server *rpc.Server, output *format.Output) *cobra.Command {
	var (
		limit int32
		state stateFlag
		task  string
		since flags.Since
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the newest runs",
		Example: "  cleanupd runs list --state failed --since 7d\n  cleanupd runs list --limit 100\n" +
			"  cleanupd runs list -o json | jq -r '.runs[0].state'",
		Args: flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			req := &cleanupv1.ListRunsRequest{Task: task}
			if state != 0 {
				req.State = cleanupv1.RunState(state).Enum()
			}
			if from := since.Time(); !from.IsZero() {
				req.CreatedFromTime = timestamppb.New(from)
			}
			runs, err := listRuns(cmd.Context(), client, limit, req)
			if err != nil {
				return err
			}
			defer rpc.PrintMore(cmd.ErrOrStderr(), runs)
			return output.Print(cmd.OutOrStdout(), runs, runsTable(runs.GetRuns()))
		}),
	}
	f := cmd.Flags()
	rpc.AddLimitFlag(f, &limit)
	f.Var(&state, "state", "only runs in this state: "+strings.Join(runStates(), ", "))
	f.StringVar(&task, "task", "", "only runs that this task was selected for")
	f.Var(&since, "since", "how far to look back: 24h, 7d, a date or a time (default all)")
	flags.WithoutVariable(f, "state", "task", "since") // these flags apply to one list only
	rpc.CompleteFlag(cmd, "state", cobra.FixedCompletions(runStates(), cobra.ShellCompDirectiveNoFileComp))
	rpc.CompleteFlag(cmd, "task", rpc.Complete(server, knownTasks))
	return cmd
}

func listRuns(
	ctx context.Context, client cleanupd.Client, limit int32, req *cleanupv1.ListRunsRequest,
) (*cleanupv1.ListRunsResponse, error) {
	return rpc.List(limit, service.MaxRuns, func(size int32, token string) (*cleanupv1.ListRunsResponse, int, error) {
		req.PageSize, req.PageToken = size, token
		page, err := client.ListRuns(ctx, req)
		return page, len(page.GetRuns()), err
	})
}

func runStates() (names []string) {
	for number := range len(cleanupv1.RunState_name) - 1 {
		names = append(names, format.EnumName(cleanupv1.RunState(number+1)))
	}
	return names
}

// stateFlag is a state of runs; 0 means any state.
type stateFlag cleanupv1.RunState

func (s *stateFlag) Set(text string) error {
	const prefix = "RUN_STATE_" // scripts pass the name in JSON
	i := slices.Index(runStates(), strings.ToLower(strings.TrimPrefix(text, prefix)))
	if i < 0 {
		return fmt.Errorf("must be %s", strings.Join(runStates(), ", "))
	}
	*s = stateFlag(i + 1)
	return nil
}

func (s *stateFlag) String() string {
	if *s == 0 {
		return ""
	}
	return format.EnumName(cleanupv1.RunState(*s))
}

func (s *stateFlag) Type() string { return "state" }

func newShowRun(server *rpc.Server, output *format.Output) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a run: its state, the results of its tasks, and its error",
		Example: "  cleanupd runs show 01a20609-283b-755d-90ec-99cde01f104d\n  cleanupd runs show " +
			"01a20609-283b-755d-90ec-99cde01f104d -o json | jq -r '.run.results[].detail'",
		Args:              flags.OneArgument("the id of one run"),
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, knownRuns(&cleanupv1.ListRunsRequest{}, anyRun))),
		RunE: withRun(server, func(cmd *cobra.Command, client cleanupd.Client, id string, _ []string) error {
			resp, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: id})
			if err != nil {
				return err
			}
			if *output != format.Table {
				return output.Print(cmd.OutOrStdout(), resp, nil)
			}
			log := watch.ReadPartitions(cmd.Context(), client, resp.GetRun())
			return watch.PrintRun(terminal.ScreenOf(cmd.OutOrStdout()), resp.GetRun(), server, all, log)
		}),
	}
	watch.AddAllFlag(cmd.Flags(), &all)
	return cmd
}

func newWatchRun(server *rpc.Server, output *format.Output) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "watch ID",
		Short: "Show a run's progress from its beginning to its end",
		Example: "  cleanupd runs watch 01a20609-283b-755d-90ec-99cde01f104d\n  cleanupd runs watch " +
			"01a20609-283b-755d-90ec-99cde01f104d -o json | jq .event.taskFinished",
		Args:              flags.OneArgument("the id of one run"),
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, knownRuns(&cleanupv1.ListRunsRequest{}, anyRun))),
		RunE: withRun(server, func(cmd *cobra.Command, client cleanupd.Client, id string, _ []string) error {
			stream, err := client.WatchRun(cmd.Context(), &cleanupv1.WatchRunRequest{RunId: id})
			if err != nil {
				return err
			}
			return watch.NewRun(cmd.Context(), server, client, stream).
				Follow(watch.NewPrinter(*output, cmd, server, all))
		}),
	}
	watch.AddAllFlag(cmd.Flags(), &all)
	return cmd
}

func newCancelRun(server *rpc.Server, output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:               "cancel ID",
		Short:             "Stop a run after its current batch",
		Example:           "  cleanupd runs cancel 01a20609-283b-755d-90ec-99cde01f104d",
		Args:              flags.OneArgument("the id of one run"),
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, knownRuns(&cleanupv1.ListRunsRequest{}, isActive))),
		RunE: withRun(server, func(cmd *cobra.Command, client cleanupd.Client, id string, _ []string) error {
			before, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: id})
			if err != nil {
				return err
			}
			if run := before.GetRun(); run.GetEndTime() != nil {
				return fmt.Errorf("nothing was cancelled: run %s has ended already (%s, %s)", run.GetId(),
					format.EnumName(run.GetState()), format.Time(run.GetEndTime()))
			}
			resp, err := client.CancelRun(cmd.Context(), &cleanupv1.CancelRunRequest{RunId: id})
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

// maxListedError limits the errors in the list of runs, in columns, since a pipe has no width. runs show prints all of
// an error.
const maxListedError = 100

func runsTable(runs []*cleanupv1.Run) []terminal.Row {
	table := []terminal.Row{{"RUN", "STATE", "CREATED", "TOOK", "ROWS DELETED", "WOULD DELETE", "ERROR"}}
	for _, r := range runs {
		var deleted, restored int64
		for _, t := range r.GetResults() {
			deleted, restored = deleted+t.GetRowsDeleted(), restored+t.GetRowsRestored()
		}
		state, done, foreseen := format.EnumName(r.GetState()), humanize.Comma(deleted), ""
		if r.GetInterrupted() {
			state = "interrupted"
		}
		switch {
		case r.GetDryRun():
			state, done, foreseen = state+" (dry)", "", done
		case r.GetRestoredRunId() != "":
			state, done = state+" (restore)", humanize.Comma(restored)+" restored"
		}
		if retained := watch.RowsRetained(r.GetResults()...); retained != "0" {
			state += ", " + retained + " retained"
		}
		if opens := r.GetWindowOpenTime(); opens.AsTime().After(time.Now()) {
			state += " until " + format.Time(opens)
		}
		table = append(table,
			terminal.Row{
				r.GetId(), state, format.Time(r.GetCreateTime()), format.Elapsed(r.GetStartTime(), r.GetEndTime()),
				done, foreseen, terminal.Cut(terminal.OneLine(r.GetError()), maxListedError),
			})
	}
	return table
}

// withRun is rpc.WithClient for commands whose first argument is the id of a run, or the end of one. args are the
// arguments after it.
func withRun(
	server *rpc.Server, do func(cmd *cobra.Command, client cleanupd.Client, id string, args []string) error,
) func(*cobra.Command, []string) error {
	return rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
		id, err := runID(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		return do(cmd, client, id, args[1:])
	})
}

// Ids begin with the time, so only their ends distinguish runs of one day. A whole id has 32 digits.
var (
	endOfID  = regexp.MustCompile(`^[0-9a-fA-F-]{4,31}$`)
	tooShort = regexp.MustCompile(`^[0-9a-fA-F-]{1,3}$`)
)

func runID(ctx context.Context, client cleanupd.Client, given string) (string, error) {
	return completeID(given, "run", func() (ids []string, err error) {
		all, err := listRuns(ctx, client, math.MaxInt32, &cleanupv1.ListRunsRequest{})
		for _, r := range all.GetRuns() {
			ids = append(ids, r.GetId())
		}
		return ids, err
	})
}

// completeID returns the id of the run or hold that ends with given. It returns a whole id unchanged, and also what
// cannot be an id, which the server rejects.
func completeID(given, what string, list func() ([]string, error)) (string, error) {
	if tooShort.MatchString(given) {
		return "", flags.Errorf("the end of a %s's id has at least 4 characters, and %q only %d", what, given, len(given))
	}
	if !endOfID.MatchString(given) {
		return given, nil
	}
	ids, err := list()
	if err != nil {
		return "", err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasSuffix(id, strings.ToLower(given)) })
	switch len(ids) {
	case 0:
		return "", fmt.Errorf("the id of no %s ends with %s: cleanupd %ss lists them", what, given, what)
	case 1:
		return ids[0], nil
	}
	return "", fmt.Errorf("the ids of %d %ss end with %s: %s", len(ids), what, given, strings.Join(ids, ", "))
}

func paceOf(p pace.Pace) cleanupv1.Pace {
	return cleanupv1.Pace(cleanupv1.Pace_value["PACE_"+string(p)])
}

var completePaces = cobra.FixedCompletions(pace.Names(), cobra.ShellCompDirectiveNoFileComp)

type runResponse interface {
	proto.Message
	GetRun() *cleanupv1.Run
}

// newChangeRun makes cmd change an active run and print the result.
func newChangeRun(
	server *rpc.Server, output *format.Output, cmd *cobra.Command,
	change func(ctx context.Context, client cleanupd.Client, id string, args []string) (runResponse, error),
	describe func(run *cleanupv1.Run) string,
) *cobra.Command {
	cmd.RunE = withRun(server, func(cmd *cobra.Command, client cleanupd.Client, id string, args []string) error {
		resp, err := change(cmd.Context(), client, id, args)
		if err != nil {
			return err
		}
		if *output != format.Table {
			return output.Print(cmd.OutOrStdout(), resp, nil)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s %s\n", resp.GetRun().GetId(), describe(resp.GetRun()))
		return err
	})
	cmd.ValidArgsFunction = rpc.FirstArgument(rpc.Complete(server, knownRuns(&cleanupv1.ListRunsRequest{}, isActive)))
	return cmd
}

func newPauseRun(server *rpc.Server, output *format.Output) *cobra.Command {
	return newChangeRun(server, output, &cobra.Command{
		Use:   "pause ID",
		Short: "Pause a run after its current batch; it keeps its place",
		Long: "Pause a run after its current batch. It keeps its place, remains the active run, and has no lock and no\n" +
			"transaction. cleanupd runs resume lets it continue; serve --max-pause says when it ends otherwise.",
		Example: "  cleanupd runs pause 01a20609-283b-755d-90ec-99cde01f104d",
		Args:    flags.OneArgument("the id of one run"),
	}, func(ctx context.Context, client cleanupd.Client, id string, _ []string) (runResponse, error) {
		return client.PauseRun(ctx, &cleanupv1.PauseRunRequest{RunId: id})
	}, describeState)
}

func describeState(run *cleanupv1.Run) string { return "is " + format.EnumName(run.GetState()) }

func newResumeRun(server *rpc.Server, output *format.Output) *cobra.Command {
	return newChangeRun(server, output, &cobra.Command{
		Use:     "resume ID",
		Short:   "Let a paused run continue",
		Example: "  cleanupd runs resume 01a20609-283b-755d-90ec-99cde01f104d",
		Args:    flags.OneArgument("the id of one run"),
	}, func(ctx context.Context, client cleanupd.Client, id string, _ []string) (runResponse, error) {
		return client.ResumeRun(ctx, &cleanupv1.ResumeRunRequest{RunId: id})
	}, describeState)
}

func newSetPace(server *rpc.Server, output *format.Output) *cobra.Command {
	cmd := newChangeRun(server, output, &cobra.Command{
		Use:   "pace ID PACE",
		Short: "Change how hard an active run works: " + strings.Join(pace.Names(), ", "),
		Long: "Change how hard an active run works, from its next batch on:\n" +
			"gentle gives way to other sessions by small batches and pauses, balanced makes batches one after another, and\n" +
			"fast uses all workers all the time.",
		Example: "  cleanupd runs pace 01a20609-283b-755d-90ec-99cde01f104d gentle",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return flags.Errorf("give the id of one run and a pace: %s", strings.Join(pace.Names(), ", "))
			}
			return nil
		},
	}, func(ctx context.Context, client cleanupd.Client, id string, args []string) (runResponse, error) {
		var to pace.Pace
		if err := to.Set(args[0]); err != nil {
			return nil, flags.Errorf("the pace %.20q %w", args[0], err)
		}
		return client.SetPace(ctx, &cleanupv1.SetPaceRequest{RunId: id, Pace: paceOf(to)})
	}, func(run *cleanupv1.Run) string { return "has the pace " + format.EnumName(run.GetPace()) })
	completeRuns := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(
		cmd *cobra.Command, args []string, typed string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return completePaces(cmd, args, typed)
		}
		return completeRuns(cmd, args, typed)
	}
	return cmd
}

// windowsFlag has windows that are given as [DAYS] START-END [PACE].
type windowsFlag []*cleanupv1.Window

// Set removes all windows if the text is empty.
func (w *windowsFlag) Set(text string) error {
	if text == "" {
		*w = nil
		return nil
	}
	window := &cleanupv1.Window{}
	parts := strings.Fields(text)
	if len(parts) > 1 && !strings.Contains(parts[0], ":") {
		window.Days, parts = strings.Split(strings.ToUpper(parts[0]), ","), parts[1:]
	}
	if len(parts) < 1 || len(parts) > 2 || !strings.Contains(parts[0], "-") {
		return errors.New("must be [DAYS] START-END [PACE], such as 'MON,TUE 22:00-06:00 fast'")
	}
	window.Start, window.End, _ = strings.Cut(parts[0], "-")
	if len(parts) == 2 {
		var p pace.Pace
		if err := p.Set(parts[1]); err != nil {
			return fmt.Errorf("the pace %w", err)
		}
		window.Pace = paceOf(p)
	}
	*w = append(*w, window)
	return nil
}

func (w *windowsFlag) String() string { return strings.Join(windowTexts(*w), "; ") }

func (w *windowsFlag) Type() string { return "window" }

func windowTexts(windows []*cleanupv1.Window) (texts []string) {
	for _, w := range windows {
		text := strings.TrimSpace(strings.Join(w.GetDays(), ",") + " " + w.GetStart() + "-" + w.GetEnd())
		if w.GetPace() != 0 {
			text += " " + format.EnumName(w.GetPace())
		}
		texts = append(texts, text)
	}
	return texts
}
