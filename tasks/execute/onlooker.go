package execute

import (
	"cmp"
	"context"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// onlooker is the journal of a run that is only supposed.
type onlooker struct {
	Journal
	holds    plan.Holds
	task     string
	problems map[string]string
}

func (o *onlooker) TaskStarted(_ context.Context, task string) error {
	o.task = task
	return nil
}

func (o *onlooker) TaskFinished(_ context.Context, done Outcome) error {
	o.problems[o.task] = cmp.Or(done.Problem, done.Detail)
	return nil
}

func (o *onlooker) Holds(context.Context) (plan.Holds, error) { return o.holds, nil }

func (o *onlooker) Count(context.Context, purge.Delta) error { return nil }

func (o *onlooker) Proceed(context.Context) error { return nil }

func (o *onlooker) History(context.Context) (*History, error) { return nil, nil }

func (o *onlooker) Emptied(context.Context, string) ([]string, error) { return nil, nil }

func (o *onlooker) Leftovers(context.Context, string) ([]int64, error) { return nil, nil }

func (o *onlooker) Record(query string) string { return query }

func (o *onlooker) Done() int64 { return 0 }

func (o *onlooker) At(string, int64) {}

func (o *onlooker) ScanMethod(string) {}

func (o *onlooker) Throttled(purge.Throttle) {}

func (o *onlooker) Retried(string) {}

func (o *onlooker) Log(context.Context, severity.Level, ...string) error { return nil }
