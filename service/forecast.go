package service

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
)

func (s *Service) GetForecast(
	ctx context.Context, _ *cleanupv1.GetForecastRequest,
) (*cleanupv1.GetForecastResponse, error) {
	f, err := s.runs.Forecaster.Forecast(ctx)
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.GetForecastResponse{
		ForecastTime:     timestamppb.New(f.Time),
		SequencesProblem: f.SequencesProblem,
		Database: &cleanupv1.DatabaseForecast{
			Bytes:                        f.Size.Bytes,
			BytesIn_30Days:               f.Size.In(30, f.Size.PerDay),
			BytesIn_90Days:               f.Size.In(90, f.Size.PerDay),
			BytesIn_30DaysWithoutCleanup: f.Size.In(30, f.Size.WithoutPerDay),
			BytesIn_90DaysWithoutCleanup: f.Size.In(90, f.Size.WithoutPerDay),
		},
	}
	for _, t := range f.Tasks {
		out.Tasks = append(out.Tasks, taskForecast(t))
	}
	for _, q := range f.Sequences {
		m := &cleanupv1.SequenceForecast{
			Sequence:  q.Name,
			Columns:   q.Columns,
			LastValue: q.Last,
			Limit:     q.Limit,
			LimitTime: timestamp(q.End(f.Time)),
		}
		if q.PerDay >= 0 {
			m.ValuesPerDay = &q.PerDay
		}
		out.Sequences = append(out.Sequences, m)
	}
	return out, nil
}

func taskForecast(t capacity.Task) *cleanupv1.TaskForecast {
	m := &cleanupv1.TaskForecast{
		Task:        t.Task,
		Exact:       t.Exact,
		Trend:       cleanupv1.Trend(cleanupv1.Trend_value["TREND_"+string(t.Trend)]),
		FailingTask: t.FailingTask,
		Bound:       cleanupv1.ForecastBound(cleanupv1.ForecastBound_value["FORECAST_BOUND_"+string(t.Bound)]),
		Problem:     t.Why,
	}
	if !t.At.IsZero() {
		m.TrendTime = timestamppb.New(t.At)
	}
	if t.Known {
		m.DueNow, m.DueNextRun = &t.Now, &t.NextRun
		if t.Dated {
			m.DuePerDay = t.PerDay[:]
		}
	}
	if t.Rate > 0 {
		m.RowsPerSecond, m.ExpectedDuration = &t.Rate, durationpb.New(t.Took)
	}
	return m
}
