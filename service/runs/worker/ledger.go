package worker

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type entry struct {
	attempt      *attempt
	delta        purge.Delta
	counted      bool // whether it adds the delta to the exact counts; otherwise it only asks whether to proceed
	sql          string
	args         pgx.StrictNamedArgs
	instructions []string // the result of the statement, for store.ParseInstructions
}

// newEntry returns an entry that adds a batch to the ledger, or one that only asks whether to proceed if there is
// nothing to count.
func (a *attempt) newEntry(d purge.Delta) *entry {
	if a.current.unchanged(d) {
		e := a.newQuestion()
		e.delta = d
		return e
	}
	e := &entry{attempt: a, delta: d, counted: true}
	e.sql, e.args = store.LedgerStatement(a.claim.Epoch, a.current.knows(), a.current.name(), d)
	return e
}

// newQuestion returns an entry that only asks whether to proceed.
func (a *attempt) newQuestion() *entry {
	e := &entry{attempt: a}
	e.sql, e.args = store.ProceedStatement(a.claim.Epoch, a.current.knows())
	return e
}

func (a *attempt) Proceed(ctx context.Context) error {
	e := a.newQuestion()
	return e.settle(e.send(ctx))
}

func (e *entry) send(ctx context.Context) error {
	return e.attempt.w.Pool.QueryRow(ctx, e.sql, e.args).Scan(&e.instructions)
}

// settle counts the batch if the statement succeeded. It fails if the statement failed, or if the run has to stop.
func (e *entry) settle(err error) error {
	if err != nil {
		return store.LedgerError(err)
	}
	a := e.attempt
	a.current.add(e.delta, e.counted)
	if e.counted {
		a.progressed()
	}
	if !a.claim.DryRun {
		a.w.Metrics.Committed(a.current.name(), e.delta)
	}
	return a.follow(store.ParseInstructions(e.instructions))
}

func (a *attempt) Write(_ context.Context, b *pgx.Batch, d purge.Delta) (settled func(error) error, err error) {
	e := a.newEntry(d)
	b.Queue(e.sql, e.args).QueryRow(func(row pgx.Row) error { return row.Scan(&e.instructions) })
	return e.settle, nil
}
