package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cleanupd/cleanupd/service/runs/capacity"
)

var (
	fallingBehind = prometheus.NewDesc(
		"cleanupd_task_falling_behind",
		"1 if runs delete less of a task than becomes obsolete, by the last forecast of any replica, otherwise 0; no sample "+
			"if the forecast does not know, or is older than two days.",
		[]string{"task"},
		nil,
	)
	sequenceEnd = prometheus.NewDesc(
		"cleanupd_sequence_end_timestamp_seconds",
		"When a sequence will reach the limit of the ids that it gives; no sample if that is not known, or more than 100 "+
			"years away.",
		[]string{"sequence"},
		nil,
	)
)

func (d *Database) queryForecast(ctx context.Context) error {
	tasks, err := capacity.FallingBehindTasks(ctx, d.Pool)
	if err != nil {
		return err
	}
	for task, behind := range tasks {
		d.flag(fallingBehind, behind, task)
	}
	sequences, err := capacity.Sequences(ctx, d.Pool)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, s := range sequences {
		if end := s.End(now); end != nil {
			d.gauge(sequenceEnd, float64(end.Unix()), s.Name)
		}
	}
	return nil
}
