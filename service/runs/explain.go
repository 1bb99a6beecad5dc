package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/policies"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/tasklist"
	"github.com/cleanupd/cleanupd/tasks/explain"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

// ExplainTask fails with a failure.NotFound.
func (m *Manager) ExplainTask(ctx context.Context, name string) (e explain.Task, err error) {
	list, config, holds, err := m.explainer(ctx)
	if err != nil {
		return e, err
	}
	t, ok := list.Find(name)
	if !ok {
		return e, failure.New(failure.NotFound, "no such task"+list.Similar(name))
	}
	return explain.DescribeTask(ctx, config, holds, t)
}

// Cover fails with campaign.ErrNotCampaign.
func (m *Manager) Cover(ctx context.Context) (explain.Coverage, error) {
	_, config, holds, err := m.explainer(ctx)
	if err != nil {
		return explain.Coverage{}, err
	}
	return explain.Cover(ctx, config, holds)
}

// maxDeletions is how many runs are listed at most as those that may have deleted a row.
const maxDeletions = 50

// ExplainRow explains a row. If the row does not exist, it returns the runs that deleted rows of the table. If the
// key is a text, it calls byText first. It fails with explain.ErrKey, or a refused.Error.
func (m *Manager) ExplainRow(
	ctx context.Context, table string, key []explain.KeyColumn, byText func() error,
) (x explain.Row, deletions []store.Deletion, err error) {
	_, config, holds, err := m.explainer(ctx)
	if err != nil {
		return x, nil, err
	}
	e, err := explain.NewExplainer(ctx, config, holds, table)
	if err != nil {
		return x, nil, err
	}
	if x, err = e.Row(ctx, key, byText); err != nil {
		return x, nil, err
	}
	if x.Exists {
		return x, nil, m.explainUnproven(ctx, &x)
	}
	deletions, err = store.Deletions(ctx, m.calls, x.Table, maxDeletions)
	return x, deletions, err
}

// explainUnproven says of the policies that delete a row if only runs that follow a saved plan do so.
func (m *Manager) explainUnproven(ctx context.Context, x *explain.Row) error {
	for i, s := range x.Steps {
		name, ok := strings.CutPrefix(s.Task, policy.Prefix)
		if !ok || s.Verdict != explain.Deleted {
			continue
		}
		stored, err := policies.Get(ctx, m.calls, name)
		switch {
		case errors.Is(err, policies.ErrNotFound) || stored.Proven:
			continue
		case err != nil:
			return err
		}
		x.Steps[i].Why = fmt.Sprintf("only by a run that follows a saved plan: the rule of the policy has not run yet, and "+
			"the guard %s refuses it in others", guard.Policy)
		if x.Task == s.Task {
			x.Why = x.Steps[i].Why
		}
	}
	return nil
}

func (m *Manager) explainer(
	ctx context.Context,
) (list tasklist.List, config pipeline.Config, holds plan.Holds, err error) {
	if list, err = m.Tasks.Read(ctx, m.calls); err != nil {
		return list, config, holds, err
	}
	config = m.configure(list)
	config.Pool, config.Log = m.calls, m.log
	holds, _, err = store.EffectiveHolds(ctx, m.calls, time.Now())
	return list, config, holds, err
}
