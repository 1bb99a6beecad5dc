package userdata

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// ErrNoStorage says that the document storage is not known, so that there is nothing to sweep.
var ErrNoStorage = failure.New(
	failure.Precondition,
	"the document storage (GDS) is not known here: start the server with --forms-gds-dir or --forms-gds-in-database",
)

// DocumentErased says that a stale document in the database was deleted, or would be.
type DocumentErased struct {
	ID       string   `json:"ID"`
	Sessions []string `json:"Sessions"`
	Rows     Rows     `json:"Rows"`
}

// onlyOf returns those of some documents whose every session is one of some, with their sessions.
func onlyOf[V any](documents map[string][]string, some map[string]V) map[string][]string {
	only := maps.Clone(documents)
	maps.DeleteFunc(only, func(_ string, sessions []string) bool {
		return slices.ContainsFunc(sessions, func(s string) bool { _, is := some[s]; return !is })
	})
	return only
}

// onlyDead returns those of some documents whose every session is dead, with their sessions: the sessions are
// confirmed, and what they name does not exist in this transaction.
func onlyDead(
	ctx context.Context,
	tx *transaction,
	documents map[string][]string,
	confirmed map[string]bool,
) (map[string][]string, error) {
	stale := onlyOf(documents, confirmed)
	dead, err := withoutOwner(ctx, tx, slices.Concat(slices.Collect(maps.Values(stale))...))
	return onlyOf(stale, dead), err
}

// references are the sessions of documents in the database, by document: of all documents, or of some. An unknown
// session is an empty one.
func references(ctx context.Context, tx *transaction, condition string, a args) (map[string][]string, error) {
	documents := map[string][]string{}
	var document, session string
	err := tx.each(
		ctx,
		"SELECT r.documentid, COALESCE(r.sessionid, '') FROM tb_dm_session_reference AS r WHERE r.documentid IS NOT "+
			"NULL"+condition,
		a,
		[]any{&document, &session},
		func() {
			documents[document] = append(documents[document], session)
		},
	)
	return documents, err
}

// lookAtDatabase looks at the sessions of all documents in the database, which it returns, too.
func lookAtDatabase(ctx context.Context, tx *transaction) (documents map[string][]string, l look, err error) {
	if documents, err = references(ctx, tx, "", nil); err == nil {
		l, err = lookAt(ctx, tx, slices.Concat(slices.Collect(maps.Values(documents))...))
	}
	return documents, l, err
}

// sweep deletes those of some documents from the database whose sessions are all dead, and returns what it deleted.
func (r *remover) sweep(ctx context.Context, ids []string, confirmed map[string]bool) (*entry, error) {
	if !r.dry {
		if err := r.tx.lockReferences(ctx, r.tx); err != nil {
			return nil, err
		}
	}
	all, err := references(ctx, r.tx, " AND "+r.tx.among("r.documentid", "@ids")+r.locking(), args{"ids": ids})
	if err != nil {
		return nil, err
	}
	documents, err := onlyDead(ctx, r.tx, all, confirmed)
	if err != nil {
		return nil, err
	}
	list := slices.Sorted(maps.Keys(documents))
	a := args{"documents": list, "sessions": slices.Concat(slices.Collect(maps.Values(documents))...)}
	references, err := r.remove(
		ctx,
		doomed{
			"tb_dm_session_reference",
			r.tx.among("r.documentid", "@documents") + " AND " + r.tx.among("r.sessionid", "@sessions"),
			"r.documentid",
		},
		a,
	)
	if err != nil {
		return nil, err
	}
	chunks, err := r.unreferenced(ctx, list)
	if err != nil {
		return nil, err
	}
	done := &entry{Rows: Rows{}}
	for _, id := range list {
		rows := Rows{}
		for table, n := range map[string]int64{"tb_dm_session_reference": references[id], "tb_dm_chunk": chunks[id]} {
			if n > 0 {
				rows[table] = n
			}
		}
		done.Rows.add(rows)
		slices.Sort(documents[id])
		done.Events = append(done.Events, Event{Document: &DocumentErased{id, slices.Compact(documents[id]), rows}})
	}
	return done, nil
}

// sweep deletes the documents whose every session names a task or form data that does not exist.
func (e *erasure) sweep(ctx context.Context) (failed bool, err error) {
	if e.InDatabase {
		return e.sweepDatabase(ctx)
	}
	return e.sweepFolder(ctx)
}

func (e *erasure) sweepDatabase(ctx context.Context) (failed bool, err error) {
	var documents map[string][]string
	var l look
	if err := e.Forms.snapshot(ctx, func(tx *transaction) (err error) {
		documents, l, err = lookAtDatabase(ctx, tx)
		return err
	}); err != nil {
		return false, err
	}
	confirmed, err := e.confirm(ctx, l)
	if err != nil {
		return false, err
	}
	ids := slices.Sorted(maps.Keys(onlyOf(documents, confirmed)))
	for some := range slices.Chunk(ids, documentsAtOnce) {
		problem := e.change(
			ctx,
			maxTries,
			func(tx *transaction) (*entry, error) { return newRemover(tx, false).sweep(ctx, some, confirmed) },
		)
		if problem == nil {
			continue
		}
		if e.endsWork(ctx, problem) {
			return false, problem
		}
		failed = true
		if err := e.tell(
			ctx,
			logged(
				severity.Error,
				fmt.Sprintf(
					"the documents from %s to %s stay: %s",
					some[0],
					some[len(some)-1],
					sqlstate.Explain(problem),
				),
			),
		); err != nil {
			return false, err
		}
	}
	return failed, e.reportRetained(ctx, func() (event Event, err error) {
		err = e.Forms.snapshot(ctx, func(tx *transaction) error {
			sessions, err := references(ctx, tx, "", nil)
			if err == nil {
				event, err = retainedInDatabase(ctx, tx, sessions, nil)
			}
			return err
		})
		return event, err
	})
}

// reportRetained reports what the sweep leaves. That it cannot be counted does not fail the sweep.
func (e *erasure) reportRetained(ctx context.Context, count func() (Event, error)) error {
	event, err := count()
	if e.endsWork(ctx, err) {
		return err
	}
	if err != nil {
		event = logged(severity.Warning, "the retained documents could not be counted: "+sqlstate.Explain(err))
	}
	return e.tell(ctx, event)
}

// foretellSweep returns the events about what a sweep would delete, and how many rows.
func (d *Database) foretellSweep(ctx context.Context) (events []Event, rows Rows, err error) {
	rows = Rows{}
	if !d.InDatabase {
		events, err = d.foretellSweepOfFolder(ctx)
		return events, rows, err
	}
	err = d.Forms.snapshot(ctx, func(tx *transaction) error {
		documents, l, err := lookAtDatabase(ctx, tx)
		if err != nil {
			return err
		}
		confirmed, unconfirmed, err := d.confirmed(ctx, d.Record, l)
		if err != nil {
			return err
		}
		ids := slices.Sorted(maps.Keys(onlyOf(documents, confirmed)))
		for some := range slices.Chunk(ids, documentsAtOnce) {
			done, err := newRemover(tx, true).sweep(ctx, some, confirmed)
			if err != nil {
				return err
			}
			events = append(events, done.Events...)
			rows.add(done.Rows)
		}
		retained, err := retainedInDatabase(ctx, tx, documents, ids)
		events = append(append(events, unconfirmed...), retained)
		return err
	})
	return events, rows, err
}
