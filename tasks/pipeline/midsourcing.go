package pipeline

import (
	"context"
	"errors"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/midsourcing"
)

// midSourcing returns how to delete parents on their mid-sourcing servers; nil if none can be there. A saved plan
// has no leftovers.
func (a *Attempt) midSourcing(r midsourcing.Remote) *midsourcing.Purge {
	if a.Plan.Parents == nil || !a.Task.ParentSet.MidSourced {
		return nil
	}
	return &midsourcing.Purge{
		Config:    a.run.Config.MidSourcing,
		Binder:    a.Binder,
		Remote:    r,
		Register:  a.run.Journal.Register,
		Log:       a.Log,
		Leftovers: a.run.Config.SavedPlan == nil,
	}
}

// PurgeMidSourced deletes parents on their servers, or counts them in a dry run, and returns those that are also to
// be deleted here.
func (a *Attempt) PurgeMidSourced(ctx context.Context, parents binding.Parents, r midsourcing.Remote) ([]int64, error) {
	m := a.midSourcing(r)
	if m == nil {
		return parents.IDs, nil
	}
	result, err := m.Run(ctx, parents)
	if err != nil {
		return nil, err
	}
	a.Retained.Dependent += result.Dependent
	a.ParentsRetained = a.ParentsRetained || len(result.IDs) < len(parents.IDs)
	a.Unfinished = errors.Join(a.Unfinished, result.Failed)
	return result.IDs, nil
}

func (a *Attempt) WithoutKept(ctx context.Context, ids []int64) ([]int64, error) {
	if m := a.midSourcing(nil); m != nil {
		return m.WithoutKept(ctx, ids)
	}
	return ids, nil
}
