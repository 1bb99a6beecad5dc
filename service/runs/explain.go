package runs

import (
	"context"
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/execute"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// ExplainTask tells what a task would do here and now. It fails with ErrNoTask.
func (m *Manager) ExplainTask(ctx context.Context, name string) (e execute.Explanation, err error) {
	i := slices.IndexFunc(tasks.Pipeline, func(t plan.Task) bool { return t.Name == name })
	if i < 0 {
		return e, ErrNoTask
	}
	config := m.config()
	config.Pool = m.calls
	if config.Holds, _, err = readHolds(ctx, m.calls, time.Now()); err != nil {
		return e, err
	}
	return execute.Explain(ctx, config, tasks.Pipeline[i])
}
