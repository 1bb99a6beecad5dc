package service

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

func (s *Service) GetGuards(ctx context.Context, _ *cleanupv1.GetGuardsRequest) (*cleanupv1.GetGuardsResponse, error) {
	settings, refusals, err := s.runs.Guards(ctx)
	if err != nil {
		return nil, err
	}
	return &cleanupv1.GetGuardsResponse{
		Guards:   guardsMessage(settings),
		Defaults: guardsMessage(guard.DefaultLimits),
		Refusals: refusalMessages(refusals),
		Etag:     etag.Of(settings),
	}, nil
}

func (s *Service) SetGuards(ctx context.Context, in *cleanupv1.SetGuardsRequest) (*cleanupv1.SetGuardsResponse, error) {
	given := in.GetGuards()
	if given == nil {
		return nil, failure.Field("guards", "is missing")
	}
	if err := checkMask(in.GetUpdateMask(), given).Err(); err != nil {
		return nil, err
	}
	if err := checkText("reason", in.GetReason(), maxReason); err != nil {
		return nil, err
	}
	change := func(current guard.Limits) guard.Limits {
		return guardLimits(merge(guardsMessage(current), given, in.GetUpdateMask()))
	}
	settings, refusals, err := s.runs.SetGuards(ctx, in.GetEtag(), in.GetReason(), change)
	if err != nil {
		return nil, err
	}
	return &cleanupv1.SetGuardsResponse{
		Guards:   guardsMessage(settings),
		Refusals: refusalMessages(refusals),
		Etag:     etag.Of(settings),
	}, nil
}

// maxReason is the greatest length of a reason, in characters.
const maxReason = 1000

// guardLimits uses the default for each absent field.
func guardLimits(g *cleanupv1.Guards) guard.Limits {
	limits := guard.DefaultLimits
	setIfGiven(&limits.MinRows, g.MinRows)
	setIfGiven(&limits.MinProcessInstances, g.MinProcessInstances)
	setIfGiven(&limits.MaxSharePercent, g.MaxSharePercent)
	setIfGiven(&limits.Cutoff, g.Cutoff)
	setIfGiven(&limits.MaxGrowth, g.MaxGrowth)
	setIfGiven(&limits.MaxTables, g.MaxTables)
	setIfGiven(&limits.MaxDropPercent, g.MaxDropPercent)
	setIfGiven(&limits.MaxClockDifference, parsePeriod(g.GetMaxClockDifference()))
	setIfGiven(&limits.MaxIdle, parsePeriod(g.GetMaxIdle()))
	setIfGiven(&limits.First, g.First)
	return limits
}

func setIfGiven[T any](value, given *T) {
	if given != nil {
		*value = *given
	}
}

// parsePeriod returns nil if there is no duration, and a negative one if it is invalid.
func parsePeriod(d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	p := d.AsDuration()
	if d.CheckValid() != nil {
		p = -1
	}
	return &p
}

func guardsMessage(g guard.Limits) *cleanupv1.Guards {
	return &cleanupv1.Guards{
		MinRows:             &g.MinRows,
		MinProcessInstances: &g.MinProcessInstances,
		MaxSharePercent:     &g.MaxSharePercent,
		Cutoff:              &g.Cutoff,
		MaxGrowth:           &g.MaxGrowth,
		MaxTables:           &g.MaxTables,
		MaxDropPercent:      &g.MaxDropPercent,
		MaxClockDifference:  durationpb.New(g.MaxClockDifference),
		MaxIdle:             durationpb.New(g.MaxIdle),
		First:               &g.First,
	}
}

func refusalMessages(refusals []store.GuardRefusal) (out []*cleanupv1.GuardRefusal) {
	for _, l := range refusals {
		out = append(out, &cleanupv1.GuardRefusal{
			Guard:    trippedMessages([]guard.Trip{l.Trip})[0],
			Task:     l.Task,
			RunId:    l.RunID,
			TripTime: timestamppb.New(l.Time),
		})
	}
	return out
}

func trippedMessages(trips []guard.Trip) (out []*cleanupv1.TrippedGuard) {
	for _, t := range trips {
		out = append(out, &cleanupv1.TrippedGuard{
			Guard:      guardKind(t.Guard),
			Table:      t.Table,
			Number:     t.Number,
			Limit:      t.Limit,
			AtLeast:    t.AtLeast,
			RecentRows: t.Recent,
			TotalRows:  t.Total,
		})
	}
	return out
}

func acceptedGuards(given []*cleanupv1.TrippedGuard) (trips []guard.Trip) {
	for _, t := range given {
		trips = append(trips, guard.Trip{
			Guard:  guard.Name(strings.ToLower(strings.TrimPrefix(t.GetGuard().String(), guardPrefix))),
			Table:  t.GetTable(),
			Number: t.GetNumber(),
		})
	}
	return trips
}

const guardPrefix = "GUARD_KIND_"

func guardKind(name guard.Name) cleanupv1.GuardKind {
	return enumOf[cleanupv1.GuardKind](strings.ToUpper(string(name)))
}
