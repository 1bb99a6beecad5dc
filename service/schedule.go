package service

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
)

func (s *Service) GetSchedule(
	ctx context.Context, _ *cleanupv1.GetScheduleRequest,
) (*cleanupv1.GetScheduleResponse, error) {
	stored, err := s.runs.Schedule(ctx)
	if err != nil {
		return nil, err
	}
	message, err := storedSchedule(ctx, s.runs, stored)
	return &cleanupv1.GetScheduleResponse{Schedule: message, Etag: stored.Etag()}, err
}

func (s *Service) SetSchedule(
	ctx context.Context, in *cleanupv1.SetScheduleRequest,
) (*cleanupv1.SetScheduleResponse, error) {
	given := in.GetSchedule()
	if given == nil {
		return nil, failure.Field("schedule", "is missing")
	}
	mask := in.GetUpdateMask()
	if err := checkMask(
		mask, given, "next_run_time", "last_run_id", "upcoming_run_times", "warnings",
	).Err(); err != nil {
		return nil, err
	}
	stored, err := s.runs.SetSchedule(
		ctx, in.GetEtag(), func(current *schedule.Schedule) (wanted schedule.Schedule, err error) {
			message, err := scheduleMessage(current)
			if err != nil {
				return wanted, err
			}
			return parseSchedule(merge(message, given, mask))
		},
	)
	if err != nil {
		return nil, err
	}
	message, err := storedSchedule(ctx, s.runs, stored)
	return &cleanupv1.SetScheduleResponse{Schedule: message, Etag: stored.Etag()}, err
}

func storedSchedule(
	ctx context.Context, manager *runs.Manager, stored *schedule.Schedule,
) (*cleanupv1.Schedule, error) {
	out, err := scheduleMessage(stored)
	if err != nil {
		return nil, err
	}
	warnings, err := manager.ScheduleWarnings(ctx, stored)
	out.Warnings = messages(warnings)
	return out, err
}

func parseSchedule(s *cleanupv1.Schedule) (schedule.Schedule, error) {
	once, err := parseTime("schedule.once", s.GetOnce())
	if err != nil {
		return schedule.Schedule{}, err
	}
	pace, err := parsePace("schedule.pace", s.GetPace())
	if err != nil {
		return schedule.Schedule{}, err
	}
	windows, err := parseWindows(s.GetWindows())
	return schedule.Schedule{
		Cron:            s.GetCron(),
		MoreCrons:       s.GetMoreCrons(),
		Once:            once,
		TimeZone:        s.GetTimeZone(),
		Enabled:         s.GetEnabled(),
		MaxDuration:     parseMaxDuration(s.GetMaxDuration()),
		ContinueOnError: s.ContinueOnError == nil || s.GetContinueOnError(),
		NextPlan:        s.GetNextPlan(),
		Pace:            pace,
		Windows:         windows,
		PauseStopsClock: s.GetPauseStopsClock(),
		Undo:            parseUndo(s.GetUndo()),
	}, err
}

// parseWindows does not check days and times; package schedule does.
func parseWindows(given []*cleanupv1.Window) (windows []schedule.Window, err error) {
	for i, w := range given {
		p, err := parsePace(fmt.Sprintf("schedule.windows[%d].pace", i), w.GetPace())
		if err != nil {
			return nil, err
		}
		windows = append(windows, schedule.Window{Days: w.GetDays(), Start: w.GetStart(), End: w.GetEnd(), Pace: p})
	}
	return windows, nil
}

func scheduleMessage(s *schedule.Schedule) (*cleanupv1.Schedule, error) {
	upcoming, err := s.Upcoming()
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.Schedule{
		Cron:            s.Cron,
		MoreCrons:       s.MoreCrons,
		Once:            timestamp(s.Once),
		TimeZone:        s.TimeZone,
		Enabled:         s.Enabled,
		ContinueOnError: &s.ContinueOnError,
		NextRunTime:     timestamp(s.NextRunTime),
		LastRunId:       s.LastRunID,
		NextPlan:        s.NextPlan,
		Pace:            enumOf[cleanupv1.Pace](s.Pace),
		PauseStopsClock: s.PauseStopsClock,
		Undo:            undoMessage(s.Undo),
	}
	for _, w := range s.Windows {
		out.Windows = append(out.Windows,
			&cleanupv1.Window{Days: w.Days, Start: w.Start, End: w.End, Pace: enumOf[cleanupv1.Pace](w.Pace)})
	}
	if s.MaxDuration > 0 {
		out.MaxDuration = durationpb.New(s.MaxDuration)
	}
	for _, start := range upcoming {
		out.UpcomingRunTimes = append(out.UpcomingRunTimes, timestamppb.New(start))
	}
	return out, nil
}
