package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/midsourcing"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type remote struct{ main *task }

func (r remote) Open(ctx context.Context, account string) (midsourcing.Server, error) {
	j := r.main.journal
	j.Proceed = func(ctx context.Context) error {
		if err := r.main.journal.Proceed(ctx); err != nil {
			return fmt.Errorf("%w: %w", midsourcing.ErrMain, err)
		}
		return nil
	}
	ledger := &serverLedger{main: r.main.Binder.Engine, proceed: j.Proceed}
	j.Ledger = ledger
	engine := *r.main.Binder.Engine
	engine.Ledger, engine.Durable = ledger, true
	a, err := r.main.run.OnServer(ctx, account, r.main.Task, j, engine)
	if err != nil {
		return nil, err
	}
	return &server{&task{Attempt: a, run: r.main.run, journal: j, expected: -1}, ledger}, nil
}

// Stop stops deliveries, and returns those that are retained. A delivery whose row is locked is left to the next
// run.
func (r remote) Stop(ctx context.Context, ids []int64) (retained []int64, err error) {
	stops := slices.DeleteFunc(slices.Clone(r.main.Plan.Jobs), func(j plan.Job) bool {
		return !j.Step.OfParents || j.Step.Update == nil
	})
	stopped, err := r.main.sweepAll(ctx, stops, binding.Parents{IDs: ids})
	return binding.Without(ids, stopped), err
}

func (r remote) Forget(ctx context.Context, account string, ids []int64) error {
	return r.main.journal.Register.Forget(ctx, account, ids)
}

// DeleteHereAlone only notes the deliveries; they are recorded when they are deleted.
func (r remote) DeleteHereAlone(_ context.Context, ids []int64) error {
	r.main.Binder.Remote = append(r.main.Binder.Remote, ids...)
	return nil
}

type server struct {
	task   *task
	ledger *serverLedger
}

func (s *server) Purge(ctx context.Context, ids []int64) ([]int64, midsourcing.Summary, error) {
	ctx = s.task.Database().InZone(ctx)
	ids, err := s.task.RetainForSkipped(ctx, ids)
	if err != nil {
		return nil, midsourcing.Summary{}, err
	}
	purged, err := s.task.sweepAll(ctx, s.task.Jobs, binding.Parents{IDs: ids})
	if err == nil {
		err = s.task.Unfinished
	}
	return purged, midsourcing.Summary{Verb: "purged", Deleted: s.ledger.deleted, Updated: s.ledger.updated}, err
}

// serverLedger keeps deletions on a mid-sourcing server out of the counts of the run.
type serverLedger struct {
	main             *purge.Engine
	proceed          func(ctx context.Context) error
	deleted, updated int64
}

// Write first checks whether the run may proceed, in a transaction of the main database that ends after the batch
// on the server. Anyone who waits for the run's batches so also waits for those on the server.
func (l *serverLedger) Write(ctx context.Context, _ *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	tx, err := l.main.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", midsourcing.ErrMain, err)
	}
	if err := l.proceed(ctx); err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	return func(err error) error {
		_ = tx.Rollback(ctx) // the transaction changed nothing
		if err == nil {
			l.deleted += d.Deleted
			l.updated += d.Updated
		}
		return err
	}, nil
}
