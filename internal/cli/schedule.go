package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

type scheduleChange struct {
	cron                     []string
	once, zone               string
	nextPlan                 string
	enabled, continueOnError bool
	maxDuration              time.Duration
	pauseStopsClock          bool
	undo                     time.Duration
	pace                     pace.Pace
	windows                  windowsFlag
}

func NewSchedule() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	get := &cobra.Command{
		Use:     "get",
		Short:   "Show the schedule, and when the next run starts",
		Example: "  cleanupd schedule get -o yaml",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(&server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			resp, err := client.GetSchedule(cmd.Context(), &cleanupv1.GetScheduleRequest{})
			if err != nil {
				return err
			}
			printScheduleWarnings(cmd, resp.GetSchedule())
			return output.Print(cmd.OutOrStdout(), resp, scheduleTable(resp.GetSchedule()))
		}),
	}
	return withSubcommands(&cobra.Command{
		Use:     "schedule [get | set]",
		Short:   "Show and change when runs start automatically, on servers with --schedule",
		Example: "  cleanupd schedule\n  cleanupd schedule set --cron '0 4 * * *' --enabled",
	}, &server, &output, get, newSetSchedule(&server, &output))
}

func newSetSchedule(server *rpc.Server, output *format.Output) *cobra.Command {
	var change scheduleChange
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Change when runs start automatically; settings without a flag keep their values",
		Example: "  cleanupd schedule set --enabled\n  cleanupd schedule set --cron '0 4 * * 1-6' --cron '0 22 * * 0' " +
			"--time-zone Europe/Berlin --max-duration 2h\n" +
			"  cleanupd schedule set --window 'MON,TUE,WED,THU,FRI 08:00-20:00 gentle' --window '20:00-08:00 fast'\n" +
			"  cleanupd schedule set --once 2027-01-01T03:00:00Z --enabled\n  cleanupd schedule set --enabled=false",
		Args: flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			var err error
			if change.nextPlan, err = runID(cmd.Context(), client, change.nextPlan); err != nil {
				return err
			}
			req, err := change.request(cmd)
			if err != nil {
				return err
			}
			current, err := client.GetSchedule(cmd.Context(), &cleanupv1.GetScheduleRequest{})
			if err != nil {
				return err
			}
			req.Etag = current.GetEtag()
			resp, err := client.SetSchedule(cmd.Context(), req)
			if err != nil {
				return rpc.ExplainConflict(err)
			}
			printScheduleWarnings(cmd, resp.GetSchedule())
			return output.Print(cmd.OutOrStdout(), resp, scheduleTable(resp.GetSchedule()))
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&change.cron, "cron", nil,
		"when: minute, hour, day of the month, month, day of the week; may be repeated, and replaces all current ones")
	f.StringVar(&change.once, "once", "", "a single time instead, as 2027-01-01T03:00:00Z")
	f.StringVar(&change.nextPlan, "next-plan", "",
		"the id of a dry run: the next run does what that found, "+tolerance+"; empty: none")
	f.StringVar(&change.zone, "time-zone", "", "the IANA name of the zone of --cron")
	f.BoolVar(&change.enabled, "enabled", false, "whether runs start automatically")
	flags.DurationVar(f, &change.maxDuration, "max-duration", 0,
		"stop a run after the batch during which this time has passed; 0: no limit")
	f.BoolVar(&change.pauseStopsClock, "pause-stops-clock", false, "do not count pauses for --max-duration")
	flags.DurationVar(f, &change.undo, "undo", 0,
		"keep what runs delete in the trash for this time after them, up to 90d; 0: not at all, also if the server does")
	f.Var(&change.pace, "pace",
		"how hard runs work: "+strings.Join(pace.Names(), ", ")+"; empty: the pace of the server")
	f.Var(&change.windows, "window",
		"[DAYS] START-END [PACE]: a weekly time in which runs may work, such as 'SAT,SUN 22:00-06:00 fast'; may be "+
			"repeated, and replaces all current ones; empty: always")
	f.BoolVar(&change.continueOnError, "continue-on-error", true,
		"continue after a failed task with those that do not need it; after a failed policy a run always continues")
	rpc.CompleteFlag(cmd, "pace", completePaces)
	rpc.CompleteFlag(cmd, "next-plan", rpc.Complete(server, knownPlans))
	return cmd
}

// request changes only the settings for which flags were given.
func (c *scheduleChange) request(cmd *cobra.Command) (*cleanupv1.SetScheduleRequest, error) {
	given := cmd.Flags().Changed
	s := &cleanupv1.Schedule{
		TimeZone:        c.zone,
		NextPlan:        c.nextPlan,
		Enabled:         c.enabled,
		ContinueOnError: proto.Bool(c.continueOnError),
		PauseStopsClock: c.pauseStopsClock,
		Pace:            paceOf(c.pace),
		Windows:         c.windows,
	}
	if c.maxDuration != 0 {
		s.MaxDuration = durationpb.New(c.maxDuration)
	}
	if given("undo") {
		s.Undo = durationpb.New(c.undo)
	}
	mask := &fieldmaskpb.FieldMask{}
	for _, flag := range []string{
		"time-zone", "next-plan", "enabled", "continue-on-error", "max-duration", "pause-stops-clock", "pace", "undo",
	} {
		if given(flag) {
			mask.Paths = append(mask.Paths, strings.ReplaceAll(flag, "-", "_"))
		}
	}
	if given("window") {
		mask.Paths = append(mask.Paths, "windows")
	}
	switch {
	case given("cron") && given("once"):
		return nil, flags.Errorf("give either --cron or --once")
	case given("cron"):
		s.Cron, s.MoreCrons = c.cron[0], c.cron[1:]
	case given("once"):
		at, err := time.Parse(time.RFC3339, c.once)
		if err != nil {
			return nil, flags.Errorf("--once: %q is not a time such as 2027-01-01T03:00:00Z", c.once)
		}
		s.Once = timestamppb.New(at)
	}
	if given("cron") || given("once") {
		mask.Paths = append(mask.Paths, "cron", "more_crons", "once")
	}
	return &cleanupv1.SetScheduleRequest{Schedule: s, UpdateMask: mask}, nil
}

// printScheduleWarnings prints on stderr why scheduled runs do not start, whatever the output format.
func printScheduleWarnings(cmd *cobra.Command, s *cleanupv1.Schedule) {
	for _, w := range s.GetWarnings() {
		fmt.Fprintln(cmd.ErrOrStderr(), "Warning:", w.GetText())
	}
}

// waits says until when the next run waits for a window to open; "" if it does not.
func waits(s *cleanupv1.Schedule) string {
	of := schedule.Schedule{TimeZone: s.GetTimeZone()}
	for _, w := range s.GetWindows() {
		of.Windows = append(of.Windows, schedule.Window{Days: w.GetDays(), Start: w.GetStart(), End: w.GetEnd()})
	}
	phase, err := of.Phase(s.GetNextRunTime().AsTime())
	if s.GetNextRunTime() == nil || err != nil || phase == nil || phase.Open {
		return ""
	}
	return ", waits until " + format.Time(timestamppb.New(phase.Until)) + " for a window"
}

func scheduleTable(s *cleanupv1.Schedule) []terminal.Row {
	when := strings.Join(append([]string{s.GetCron()}, s.GetMoreCrons()...), "; ")
	if s.GetOnce() != nil {
		when = "once, " + format.Time(s.GetOnce())
	}
	state, limit, afterError := "disabled", "none", "ends"
	if s.GetEnabled() {
		state = "enabled"
	}
	if s.GetMaxDuration() != nil {
		limit = s.GetMaxDuration().AsDuration().String()
		if s.GetPauseStopsClock() {
			limit += " without pauses"
		}
	}
	if s.GetContinueOnError() {
		afterError = "continues with the next task"
	}
	undo := "that of the server"
	if s.GetUndo() != nil {
		undo = format.Period(s.GetUndo().AsDuration())
	}
	rows := []terminal.Row{
		{"schedule", state},
		{"when", when},
		{"time zone", s.GetTimeZone()},
		{"max duration", limit},
		{"pace", cmp.Or(strings.TrimPrefix(format.EnumName(s.GetPace()), "unspecified"), "that of the server")},
		{"undo", undo},
	}
	label := "windows"
	for _, window := range windowTexts(s.GetWindows()) {
		rows = append(rows, terminal.Row{label, window})
		label = "" // one below the other, since there may be many
	}
	if label != "" {
		rows = append(rows, terminal.Row{label, "always"})
	}
	rows = append(rows, terminal.Row{"after an error", afterError},
		terminal.Row{"next run", cmp.Or(format.Time(s.GetNextRunTime()), "none") + waits(s)},
		terminal.Row{"last run", s.GetLastRunId()})
	if s.GetNextPlan() != "" {
		rows = append(rows, terminal.Row{"next plan", s.GetNextPlan()})
	}
	return rows
}
