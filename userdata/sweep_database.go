package userdata

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

const documentsPerTransaction = 100

// observeDatabase observes the sessions of all documents in the database, and returns these sessions by document.
func observeDatabase(
	ctx context.Context, tx *forms.Transaction,
) (documents map[string][]string, o observation, err error) {
	if documents, err = tx.AllReferences(ctx); err == nil {
		o, err = observe(ctx, tx, slices.Concat(slices.Collect(maps.Values(documents))...))
	}
	return documents, o, err
}

// deleteStale deletes documents whose sessions are all dead, or counts them in a dry run.
func deleteStale(
	ctx context.Context, tx *forms.Transaction, dryRun bool, ids []string, confirmed map[string]bool,
) (*entry, error) {
	remover := forms.NewRemover(tx, dryRun)
	all, err := remover.References(ctx, ids)
	if err != nil {
		return nil, err
	}
	documents, err := onlyDead(ctx, tx, all, confirmed)
	if err != nil {
		return nil, err
	}
	rows, err := remover.WithReferences(ctx, documents)
	if err != nil {
		return nil, err
	}
	entry := &entry{Rows: forms.Rows{}}
	for _, id := range slices.Sorted(maps.Keys(documents)) {
		entry.Rows.Add(rows[id])
		slices.Sort(documents[id])
		entry.Events = append(entry.Events, Event{Document: &DocumentErased{
			ID:       id,
			Sessions: slices.Compact(documents[id]),
			Rows:     rows[id],
		}})
	}
	return entry, nil
}

func sweepDatabase(ctx context.Context, e *erasure) (failed bool, err error) {
	var documents map[string][]string
	var o observation
	if err := e.Forms.Snapshot(ctx, func(tx *forms.Transaction) (err error) {
		documents, o, err = observeDatabase(ctx, tx)
		return err
	}); err != nil {
		return false, err
	}
	confirmed, err := confirm(ctx, e, o)
	if err != nil {
		return false, err
	}
	ids := slices.Sorted(maps.Keys(onlyOf(documents, confirmed)))
	for chunk := range slices.Chunk(ids, documentsPerTransaction) {
		problem := e.change(ctx, forms.MaxTries, func(tx *forms.Transaction) (*entry, error) {
			return deleteStale(ctx, tx, false, chunk, confirmed)
		})
		if problem == nil {
			continue
		}
		if e.interrupts(ctx, problem) {
			return false, problem
		}
		failed = true
		if err := e.report(
			ctx,
			errorf("the documents from %s to %s are retained: %s", chunk[0], chunk[len(chunk)-1],
				sqlstate.Explain(problem)),
		); err != nil {
			return false, err
		}
	}
	return failed, reportRetained(ctx, e, func() (event Event, err error) {
		err = e.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
			sessions, err := tx.AllReferences(ctx)
			if err == nil {
				event, err = retainedInDatabase(ctx, tx, sessions, nil)
			}
			return err
		})
		return event, err
	})
}

func previewDatabase(ctx context.Context, record *pgxpool.Pool, db *forms.Database) (events []Event, err error) {
	err = db.Snapshot(ctx, func(tx *forms.Transaction) error {
		documents, o, err := observeDatabase(ctx, tx)
		if err != nil {
			return err
		}
		confirmed, unconfirmed, err := confirmedSessions(ctx, record, db.Identity(), o)
		if err != nil {
			return err
		}
		ids := slices.Sorted(maps.Keys(onlyOf(documents, confirmed)))
		for chunk := range slices.Chunk(ids, documentsPerTransaction) {
			entry, err := deleteStale(ctx, tx, true, chunk, confirmed)
			if err != nil {
				return err
			}
			events = append(events, entry.Events...)
		}
		retained, err := retainedInDatabase(ctx, tx, documents, ids)
		events = append(append(events, unconfirmed...), retained)
		return err
	})
	return events, err
}
