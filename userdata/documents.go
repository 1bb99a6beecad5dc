package userdata

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// documents deletes the documents of the sessions that the erasure has recorded, its own or those that earlier ones
// left, from wherever the document storage is. What cannot be deleted is reported, and its sessions are kept for the
// next attempt.
func (e *erasure) documents(ctx context.Context) error {
	sessions, err := collect(
		ctx,
		e.Record,
		pgx.RowTo[string],
		"SELECT session_id FROM cleanupd.erasure_session WHERE erasure_id = $1::text::uuid ORDER BY session_id",
		e.id,
	)
	switch {
	case err != nil || len(sessions) == 0:
		return err
	case e.InDatabase:
		return e.rowsOf(ctx, sessions)
	case e.Folder == "":
		return e.tell(ctx, unknown(sessions))
	}
	return e.files(ctx, sessions)
}

// unknown is the event that documents stay, since it is not known where they are.
func unknown(sessions []string) Event {
	const most = 10
	list := strings.Join(sessions[:min(most, len(sessions))], ", ")
	if more := len(sessions) - most; more > 0 {
		list += fmt.Sprintf(", and %d more", more)
	}
	return logged(
		severity.Error,
		fmt.Sprintf(
			"the documents of these sessions stay, if they have any: %s; the document storage (GDS) is not known "+
				"here: erase again with --forms-gds-dir or --forms-gds-in-database",
			list,
		),
	)
}

// rowsOf deletes the documents of sessions from the database. Those of the erasure's own items went with these.
func (e *erasure) rowsOf(ctx context.Context, sessions []string) error {
	problem := e.change(ctx, maxTries, func(tx *transaction) (*entry, error) {
		gone := &removal{rows: map[int64]Rows{}}
		err := newRemover(tx, false).documents(ctx, gone, ofNone(sessions))
		return &entry{Rows: gone.total(), Settled: sessions}, err
	})
	if problem == nil || e.endsWork(ctx, problem) {
		return problem
	}
	return e.tell(
		ctx,
		logged(
			severity.Error,
			"documents that an earlier erasure left could not be deleted: "+sqlstate.Explain(problem),
		),
	)
}

// ofNone are sessions whose process instances or tasks are gone already.
func ofNone(ids []string) (sessions []session) {
	for _, id := range ids {
		sessions = append(sessions, session{ID: id})
	}
	return sessions
}

// forget removes sessions from the record, but for some.
func (e *erasure) forget(ctx context.Context, tx pgx.Tx, sessions, but []string) error {
	_, err := tx.Exec(
		ctx,
		"DELETE FROM cleanupd.erasure_session WHERE erasure_id = $1::text::uuid AND session_id = ANY ($2) AND "+
			"session_id <> ALL ($3)",
		e.id,
		sessions,
		append([]string{}, but...),
	)
	return err
}

// tell writes an event to the erasure's log.
func (e *erasure) tell(ctx context.Context, event Event) error {
	return e.transact(ctx, func(tx pgx.Tx) error { return e.append(ctx, tx, event) })
}
