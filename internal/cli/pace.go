package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

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
