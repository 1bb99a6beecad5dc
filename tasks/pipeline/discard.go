package pipeline

import (
	"context"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// DiscardJournal returns a journal that reports nothing, for simulations. It judges no guards.
func DiscardJournal(holds plan.Holds) Journal {
	d := discard{holds}
	return Journal{
		Counts:   d,
		Tasks:    d,
		Progress: d,
		Activity: d,
		Safety:   d,
		Register: d,
		Proceed:  func(context.Context) error { return nil },
	}
}

type discard struct{ holds plan.Holds }

func (discard) Count(context.Context, purge.Delta) error { return nil }

func (discard) Done() int64 { return 0 }

func (discard) DoneByTable(context.Context) ([]purge.Space, error) { return nil, nil }

func (discard) Emptied(context.Context, string) ([]string, error) { return nil, nil }

func (discard) TaskStarted(context.Context, string) error { return nil }

func (discard) TaskFinished(context.Context, Outcome) error { return nil }

func (discard) At(string, int64) {}

func (discard) Log(context.Context, severity.Level, ...string) error { return nil }

func (discard) ScanMethod(string) {}

func (discard) Throttled(purge.Throttle) {}

func (discard) Retried(string) {}

func (d discard) Holds(context.Context) (plan.Holds, error) { return d.holds, nil }

func (discard) History(context.Context) (*guard.History, error) { return nil, nil }

func (discard) Record(query sqlexpr.Expr) sqlexpr.Expr { return query }

func (discard) Leftovers(context.Context, string) ([]int64, error) { return nil, nil }

func (discard) Forget(context.Context, string, []int64) error { return nil }
