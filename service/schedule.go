package service

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
)

// GetSchedule implements cleanupv1.CleanupServiceServer.
func (s *Service) GetSchedule(
	ctx context.Context, _ *cleanupv1.GetScheduleRequest,
) (*cleanupv1.GetScheduleResponse, error) {
	stored, err := s.runs.Schedule(ctx)
	if err != nil {
		return nil, err
	}
	message, err := scheduleMessage(stored)
	if err != nil {
		return nil, err
	}
	return &cleanupv1.GetScheduleResponse{Schedule: message}, nil
}

// SetSchedule implements cleanupv1.CleanupServiceServer.
func (s *Service) SetSchedule(
	ctx context.Context, in *cleanupv1.SetScheduleRequest,
) (*cleanupv1.SetScheduleResponse, error) {
	given := in.GetSchedule()
	if given == nil {
		return nil, failure.Field("schedule", "is missing")
	}
	wanted := schedule.Schedule{
		Cron:            given.GetCron(),
		MoreCrons:       given.GetMoreCrons(),
		TimeZone:        given.GetTimeZone(),
		Enabled:         given.GetEnabled(),
		MaxDuration:     parseMaxDuration(given.GetMaxDuration()),
		ContinueOnError: given.ContinueOnError == nil || given.GetContinueOnError(),
		NextPlan:        given.GetNextPlan(),
	}
	var err error
	if wanted.Once, err = parseTime("schedule.once", given.GetOnce()); err != nil {
		return nil, err
	}
	stored, err := s.runs.SetSchedule(ctx, wanted)
	if err != nil {
		return nil, err
	}
	message, err := scheduleMessage(stored)
	if err != nil {
		return nil, err
	}
	return &cleanupv1.SetScheduleResponse{Schedule: message}, nil
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
	}
	if s.MaxDuration > 0 {
		out.MaxDuration = durationpb.New(s.MaxDuration)
	}
	for _, start := range upcoming {
		out.UpcomingRunTimes = append(out.UpcomingRunTimes, timestamppb.New(start))
	}
	return out, nil
}
