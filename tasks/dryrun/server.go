package dryrun

import (
	"context"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/midsourcing"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type remote struct{ *task }

func (r remote) Open(ctx context.Context, account string) (midsourcing.Server, error) {
	if r.setsOnly { // the server can be reached, and would purge its deliveries
		return reachable{}, nil
	}
	a, err := r.run.OnServer(ctx, account, r.Task, r.run.Journal, *r.Binder.Engine)
	if err != nil {
		return nil, err
	}
	return &server{a, r.run.Journal}, nil
}

func (remote) Stop(context.Context, []int64) ([]int64, error) { return nil, nil }

func (remote) Forget(context.Context, string, []int64) error { return nil }

func (r remote) DeleteHereAlone(ctx context.Context, ids []int64) error {
	return r.run.Journal.Counts.Count(ctx, purge.Delta{Recorded: int64(len(ids))})
}

type reachable struct{}

func (reachable) Purge(_ context.Context, ids []int64) ([]int64, midsourcing.Summary, error) {
	return ids, midsourcing.Summary{Verb: "would purge"}, nil
}

type server struct {
	attempt *pipeline.Attempt
	journal pipeline.Journal
}

func (s *server) Purge(ctx context.Context, ids []int64) (purged []int64, sum midsourcing.Summary, err error) {
	a := s.attempt
	ctx = a.Database().InZone(ctx)
	sum.Verb = "would purge"
	if ids, err = a.RetainForSkipped(ctx, ids); err != nil {
		return nil, sum, err
	}
	for _, j := range a.Jobs {
		if err := s.count(ctx, j, binding.Parents{IDs: ids}, &sum); err != nil {
			return nil, sum, err
		}
	}
	return ids, sum, a.Unfinished
}

func (s *server) count(ctx context.Context, j plan.Job, parents binding.Parents, sum *midsourcing.Summary) error {
	a := s.attempt
	s.journal.Progress.At(j.Name, -1)
	sweep, err := a.Binder.Sweep(ctx, &j, parents.IDs)
	if err != nil {
		return err
	}
	if err := sweep.OtherServerError(); err != nil {
		a.OtherServerFailed(ctx, j, sweep, err)
		return nil
	}
	return a.Uncounted(ctx, j, sweep, a.Binder.Engine.Count(ctx, sweep, func(_ context.Context, rows int64) error {
		if sweep.Set != nil {
			sum.Updated += rows
		} else {
			sum.Deleted += rows
		}
		return nil
	}))
}
