package pipeline

import (
	"context"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// DiscardJournal returns a journal for simulations. It reports nothing, and guards do not judge.
func DiscardJournal(holds plan.Holds) Journal {
	d := discard{
		holds:   func(context.Context) (plan.Holds, error) { return holds, nil },
		proceed: func(context.Context) error { return nil },
		at:      func(string, int64) {},
	}
	return Journal{Counts: d, Tasks: d, Progress: d, Activity: d, Safety: d, Register: d, Proceed: d.proceed}
}

// Silent returns a journal that counts and logs nothing, and by which guards do not judge: the results of its run
// are shown with those of another run.
func (j Journal) Silent() Journal {
	d := discard{j.Safety.Holds, j.Proceed, j.Progress.At}
	j.Counts, j.Progress, j.Safety = d, d, d
	return j
}

type discard struct {
	holds   func(ctx context.Context) (plan.Holds, error)
	proceed func(ctx context.Context) error
	at      func(object string, expected int64)
}

func (d discard) Count(ctx context.Context, _ purge.Delta) error { return d.proceed(ctx) }

func (discard) Done() int64 { return 0 }

func (discard) DoneByTable(context.Context) ([]purge.Space, error) { return nil, nil }

func (discard) Emptied(context.Context, string) ([]string, error) { return nil, nil }

func (discard) TaskStarted(context.Context, string) error { return nil }

func (discard) TaskFinished(context.Context, Outcome) error { return nil }

func (d discard) At(object string, expected int64) { d.at(object, expected) }

func (discard) Log(context.Context, ...message.Message) error { return nil }

func (discard) Scanning(purge.Scan) {}

func (discard) Throttled(purge.Throttle) {}

func (discard) Retried(string) {}

func (d discard) Holds(ctx context.Context) (plan.Holds, error) { return d.holds(ctx) }

func (discard) PolicyChange(context.Context, plan.Task) (*message.Message, error) { return nil, nil }

func (discard) History(context.Context) (*guard.History, error) { return nil, nil }

func (discard) Record(query sqlexpr.Expr) sqlexpr.Expr { return query }

func (discard) Leftovers(context.Context, string) ([]int64, error) { return nil, nil }

func (discard) Forget(context.Context, string, []int64) error { return nil }
