package runs

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Progress is reported one to four times a second: at every tick when something changed, otherwise at every other one.
const (
	progressTick  = 300 * time.Millisecond
	progressQuiet = 2
)

// At implements pipeline.Progress.
func (j *journal) At(object string, expected int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.progress.Object, j.progress.Way, j.expected, j.changed = object, "", expected, true
}

// ScanMethod implements pipeline.Activity.
func (j *journal) ScanMethod(way string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.progress.Way, j.changed = way, true
}

// Throttled implements pipeline.Activity.
func (j *journal) Throttled(throttle purge.Throttle) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.throttle.Reason != "" {
		j.m.metrics.throttled.WithLabelValues(j.throttle.Reason).Add(time.Since(j.waiting).Seconds())
	}
	j.throttle, j.waiting = throttle, time.Now()
	j.progress.ThrottledBy, j.changed = throttle.String(), true
}

// Retried implements pipeline.Activity.
func (j *journal) Retried(state string) { j.m.metrics.retries.WithLabelValues(state).Inc() }

// Done implements pipeline.Counts.
func (j *journal) Done() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.progress.RowsDeleted + j.progress.RowsUpdated
}

// writeProgress writes progress events until the context ends. One that cannot be written does not end the run: the
// next batch finds out why.
func (j *journal) writeProgress(ctx context.Context) {
	ticker := time.NewTicker(progressTick)
	defer ticker.Stop()
	for quiet := 1; ; quiet++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_ = j.write(ctx, func(pgx.Tx) ([]Event, error) {
			j.mu.Lock()
			defer j.mu.Unlock()
			if j.task == "" || (!j.changed && quiet < progressQuiet) {
				return nil, nil
			}
			quiet, j.changed = 0, false
			return []Event{{Kind: TaskProgress, Task: j.task, Progress: j.snapshot()}}, nil
		})
	}
}

// snapshot is the progress as reported. It has no expectation once more rows are gone than were expected.
func (j *journal) snapshot() *Progress {
	p := j.progress
	done := p.RowsDeleted + p.RowsUpdated
	if expected := j.expected; expected >= done {
		p.RowsExpected = &expected
	}
	if elapsed := time.Since(j.since).Seconds(); elapsed > 0 {
		p.RowsPerSecond = float64(done-j.before) / elapsed
	}
	return &p
}
