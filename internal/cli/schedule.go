package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// scheduleChange is what `schedule set` changes.
type scheduleChange struct {
	cron                     []string
	once, zone               string
	nextPlan                 string
	enabled, continueOnError bool
	maxDuration              time.Duration
}

func NewSchedule() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
		change scheduleChange
	)
	get := rpc.WithCleanup(&server, func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
		out, err := client.GetSchedule(cmd.Context(), &cleanupv1.GetScheduleRequest{})
		if err != nil {
			return err
		}
		return output.Print(cmd.OutOrStdout(), out, scheduleTable(out.GetSchedule()))
	})
	set := &cobra.Command{
		Use:   "set",
		Short: "Change when runs start by themselves; what is not given stays as it is",
		Example: "  cleanupd schedule set --enabled\n  cleanupd schedule set --cron '0 4 * * 1-6' --cron '0 22 * * 0' " +
			"--time-zone Europe/Berlin --max-duration 2h\n" +
			"  cleanupd schedule set --once 2027-01-01T03:00:00Z --enabled\n  cleanupd schedule set --enabled=false",
		Args: flags.NoArguments,
		RunE: rpc.WithCleanup(
			&server,
			func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
				now, err := client.GetSchedule(cmd.Context(), &cleanupv1.GetScheduleRequest{})
				if err != nil {
					return err
				}
				s := now.GetSchedule()
				if err := change.apply(cmd, s); err != nil {
					return err
				}
				out, err := client.SetSchedule(cmd.Context(), &cleanupv1.SetScheduleRequest{Schedule: s})
				if err != nil {
					return err
				}
				return output.Print(cmd.OutOrStdout(), out, scheduleTable(out.GetSchedule()))
			},
		),
	}
	f := set.Flags()
	f.StringArrayVar(
		&change.cron,
		"cron",
		nil,
		"when: minute, hour, day of the month, month, day of the week; may be repeated, and replaces all that there are",
	)
	f.StringVar(&change.once, "once", "", "a single time instead, as 2027-01-01T03:00:00Z")
	f.StringVar(
		&change.nextPlan,
		"next-plan",
		"",
		"the id of a dry run that the next run does, and no more; empty: none",
	)
	f.StringVar(&change.zone, "time-zone", "", "the IANA name of the zone of --cron")
	f.BoolVar(&change.enabled, "enabled", false, "whether runs start by themselves")
	f.DurationVar(
		&change.maxDuration,
		"max-duration",
		0,
		"stop a run after the batch during which this time has passed; 0: no limit",
	)
	f.BoolVar(
		&change.continueOnError,
		"continue-on-error",
		true,
		"continue after a failed task, with those that do not need it",
	)
	cmd := &cobra.Command{
		Use:     "schedule [get | set]",
		Short:   "Show and change when runs start by themselves, on servers with --schedule",
		Example: "  cleanupd schedule\n  cleanupd schedule set --cron '0 4 * * *' --enabled",
		Args:    flags.OnlyCommands,
		RunE:    get,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:     "get",
			Short:   "Show the schedule, and when the next run is due",
			Example: "  cleanupd schedule get -o yaml",
			Args:    flags.NoArguments,
			RunE:    get,
		},
		set,
	)
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

// apply changes a schedule as the flags say that were given.
func (c *scheduleChange) apply(cmd *cobra.Command, s *cleanupv1.Schedule) error {
	given := cmd.Flags().Changed
	if given("cron") && given("once") {
		return flags.Errorf("give either --cron or --once")
	}
	if given("cron") {
		s.Once, s.Cron, s.MoreCrons = nil, c.cron[0], c.cron[1:]
	}
	if given("once") {
		at, err := time.Parse(time.RFC3339, c.once)
		if err != nil {
			return flags.Errorf("--once: %q is no time such as 2027-01-01T03:00:00Z", c.once)
		}
		s.Once, s.Cron, s.MoreCrons = timestamppb.New(at), "", nil
	}
	if given("time-zone") {
		s.TimeZone = c.zone
	}
	if given("next-plan") {
		s.NextPlan = c.nextPlan
	}
	if given("enabled") {
		s.Enabled = c.enabled
	}
	if given("continue-on-error") {
		s.ContinueOnError = proto.Bool(c.continueOnError)
	}
	if given("max-duration") {
		s.MaxDuration = nil
		if c.maxDuration != 0 {
			s.MaxDuration = durationpb.New(c.maxDuration)
		}
	}
	return nil
}

func scheduleTable(s *cleanupv1.Schedule) []terminal.Row {
	when := strings.Join(append([]string{s.GetCron()}, s.GetMoreCrons()...), "; ")
	if s.GetOnce() != nil {
		when = "once, " + s.GetOnce().AsTime().Format(time.RFC3339)
	}
	state, limit, next := "disabled", "none", "none is due"
	if s.GetEnabled() {
		state = "enabled"
	}
	if s.GetMaxDuration() != nil {
		limit = s.GetMaxDuration().AsDuration().String()
	}
	if s.GetNextRunTime() != nil {
		next = s.GetNextRunTime().AsTime().Format(time.RFC3339)
	}
	after := "ends"
	if s.GetContinueOnError() {
		after = "goes on with the next task"
	}
	rows := []terminal.Row{
		{"schedule", state},
		{"when", when},
		{"time zone", s.GetTimeZone()},
		{"max duration", limit},
		{"after an error", after},
		{"next run", next},
		{"last run", s.GetLastRunId()},
	}
	if s.GetNextPlan() != "" {
		rows = append(rows, terminal.Row{"next plan", s.GetNextPlan()})
	}
	return rows
}
