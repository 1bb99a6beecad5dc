package pipeline

import (
	"context"
	"errors"
	"slices"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// OnServer returns an attempt on the database of a mid-sourcing account, with the steps of a task and for given
// parents, regardless of the task's rules. There are no holds: the holds of the main database name its own ids, and
// deliveries on hold were already left out there. The engine gets the server's pool, one worker and no lock, and
// the messages of the journal get the server's name.
func (r *Run) OnServer(ctx context.Context, account string, t plan.Task, j Journal, e purge.Engine) (*Attempt, error) {
	j.Progress, j.Safety = serverProgress{j.Progress, account}, DiscardJournal(plan.Holds{}).Safety
	e.Pool, e.Lock, e.Workers = r.Config.MidSourcing.Databases[account], 0, 1
	server := &Run{Config: r.Config, Journal: j, State: binding.State{Succeeded: r.State.Succeeded}}
	server.Database = NewDatabase(ctx, r.Config, j, e.Pool, e)
	if err := server.Database.Refresh(ctx); err != nil {
		return nil, err
	}
	table := server.Database.Env.Catalog.Table(t.ParentSet.Parent)
	switch {
	case table == nil:
		return nil, campaign.ErrNotCampaign
	case table.RowSecurity: // hidden rows would count as deleted
		return nil, errors.New("row security may hide rows of " + t.ParentSet.Parent)
	}
	t.ParentSet = &plan.ParentSet{Parent: t.ParentSet.Parent, Key: t.ParentSet.Key}
	compiled, err := server.Database.Compile(t)
	if err != nil {
		return nil, err
	}
	a := server.NewAttempt(compiled)
	a.Log(ctx, compiled.Notes...)
	return a, binding.RightsError(compiled.Rights)
}

type serverProgress struct {
	next    Progress
	account string
}

func (p serverProgress) At(object string, _ int64) { p.next.At(p.account+": "+object, -1) }

func (p serverProgress) Log(ctx context.Context, messages ...message.Message) error {
	named := slices.Clone(messages)
	for i, m := range messages {
		named[i] = m.OnServer(p.account)
	}
	return p.next.Log(ctx, named...)
}
