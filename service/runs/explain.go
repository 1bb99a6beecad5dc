package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

// ExplainTask fails with a failure.NotFound.
func (m *Manager) ExplainTask(ctx context.Context, name string) (e insight.TaskExplanation, err error) {
	list, config, holds, err := m.explainer(ctx)
	if err != nil {
		return e, err
	}
	t, ok := list.Find(name)
	if !ok {
		return e, failure.New(failure.NotFound, "no such task"+list.Similar(name))
	}
	return insight.DescribeTask(ctx, config, holds, t)
}

// Cover fails with campaign.ErrNotCampaign.
func (m *Manager) Cover(ctx context.Context) (insight.Coverage, error) {
	_, config, holds, err := m.explainer(ctx)
	if err != nil {
		return insight.Coverage{}, err
	}
	return insight.Cover(ctx, config, holds)
}

// maxDeletions limits the listed runs that may have deleted a row.
const maxDeletions = 50

// RowExplanation explains why a row is deleted or not, or where a row that does not exist may be.
type RowExplanation struct {
	insight.RowExplanation
	// Trash lists where the row is in the trash, and Deletions the runs that deleted rows of the table. Both are nil for a
	// row that exists.
	Trash     []trash.Found
	Deletions []store.Deletion
}

// ExplainRow explains a row. If the key is a text, it calls byText first. If namesHolds is set, it names the holds that
// keep the row. It fails with insight.ErrKey, or a failure.Refusal.
func (m *Manager) ExplainRow(
	ctx context.Context, table string, key []insight.KeyColumn, namesHolds bool, byText func() error,
) (x RowExplanation, err error) {
	_, config, holds, err := m.explainer(ctx)
	if err != nil {
		return x, err
	}
	e, err := insight.NewExplainer(ctx, config, holds, table)
	if err != nil {
		return x, m.withTrash(ctx, table, err)
	}
	if namesHolds {
		if e.Holds, _, err = store.ListEffectiveHolds(ctx, m.calls, time.Now()); err != nil {
			return x, err
		}
	}
	if x.RowExplanation, err = e.Row(ctx, key, byText); err != nil {
		return x, m.withTrash(ctx, table, err)
	}
	if x.Exists {
		return x, cmp.Or(x.Uncovered, m.explainUnproven(ctx, &x.RowExplanation))
	}
	complete := false
	if x.Trash, complete, err = trash.Find(ctx, m.calls, x.Table, x.Key); err != nil {
		return x, err
	}
	if !complete {
		x.Why = "the trash has too many rows of the table to look for this one: see cleanupd trash list"
	}
	if x.Trash == nil && complete && x.Uncovered != nil {
		return x, x.Uncovered
	}
	x.Deletions, err = store.Deletions(ctx, m.calls, x.Table, maxDeletions)
	return x, err
}

// withTrash adds to the refusal of a table that no task covers that the trash has rows of it, if it has.
func (m *Manager) withTrash(ctx context.Context, table string, err error) error {
	refused := (*failure.Refusal)(nil)
	if !errors.As(err, &refused) || refused.Reason != failure.ReasonNotCovered {
		return err
	}
	entries, failed := trash.Entries(ctx, m.calls, "")
	isOf := func(e trash.Entry) bool { return e.Of(table) && (e.Rows > 0 || e.Kind != trash.Rows) }
	if failed != nil || !slices.ContainsFunc(entries, isOf) {
		return cmp.Or(failed, err)
	}
	with := *refused
	with.Message += "; the trash has rows of it: see cleanupd trash list"
	return &with
}

// explainUnproven notes for each policy that deletes the row if only runs that follow a saved plan do so.
func (m *Manager) explainUnproven(ctx context.Context, x *insight.RowExplanation) error {
	for i, s := range x.Steps {
		name, ok := strings.CutPrefix(s.Task, policy.Prefix)
		if !ok || s.Verdict != insight.Deleted {
			continue
		}
		stored, err := store.GetPolicy(ctx, m.calls, name)
		switch {
		case errors.Is(err, store.ErrNoPolicy) || stored.Proven:
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
) (list TaskList, config cleanup.Config, holds rules.Holds, err error) {
	if list, err = m.Tasks.Read(ctx, m.calls); err != nil {
		return list, config, holds, err
	}
	config = m.configure(list)
	config.Pool, config.Log = m.calls, m.log
	holds, _, err = store.EffectiveHolds(ctx, m.calls, time.Now())
	return list, config, holds, err
}
