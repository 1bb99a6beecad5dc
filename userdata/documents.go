package userdata

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/gds"
)

// deleteDocuments deletes the documents of all sessions in the record, including those that earlier erasures could
// not delete. It reports documents that cannot be deleted, and keeps their sessions in the record for the next
// attempt.
func (e *erasure) deleteDocuments(ctx context.Context) error {
	sessions, err := e.sessions(ctx)
	switch {
	case err != nil || len(sessions) == 0:
		return err
	case e.InDatabase:
		return e.deleteLeftovers(ctx, sessions)
	case e.Folder == "":
		return e.report(ctx, unknownStorageEvent(sessions))
	}
	return e.deleteInFolder(ctx, sessions)
}

// unknownStorageEvent says that documents are retained because the document storage is unknown.
func unknownStorageEvent(sessions []string) Event {
	const most = 10
	list := strings.Join(sessions[:min(most, len(sessions))], ", ")
	if more := len(sessions) - most; more > 0 {
		list += fmt.Sprintf(", and %d more", more)
	}
	return errorf(
		"the documents of these sessions are retained, if they have any: %s; the location of the document storage (GDS) "+
			"is unknown: erase again with --forms-gds-dir or --forms-gds-in-database",
		list,
	)
}

// deleteLeftovers deletes documents in the database that earlier erasures left there. The documents of this
// erasure's own items were deleted together with the items.
func (e *erasure) deleteLeftovers(ctx context.Context, sessions []string) error {
	problem := e.change(ctx, forms.MaxTries, func(tx *forms.Transaction) (*entry, error) {
		removed := &forms.Removal{Rows: map[int64]forms.Rows{}}
		err := forms.NewRemover(tx, false).Documents(ctx, removed, withoutItem(sessions))
		return &entry{Rows: removed.Total(), Settled: sessions}, err
	})
	if problem == nil || e.interrupts(ctx, problem) {
		return problem
	}
	return e.report(ctx,
		errorf("documents that an earlier erasure left could not be deleted: %s", sqlstate.Explain(problem)))
}

// withoutItem returns the sessions with these ids, whose process instances or tasks no longer exist.
func withoutItem(ids []string) (sessions []forms.Session) {
	for _, id := range ids {
		sessions = append(sessions, forms.Session{ID: id})
	}
	return sessions
}

// deleteInFolder deletes the documents of the sessions. It reports those that cannot be deleted, and keeps their
// sessions in the record for the next attempt.
func (e *erasure) deleteInFolder(ctx context.Context, sessions []string) error {
	root, err := e.openFolder(ctx)
	if err != nil || root == nil {
		return err
	}
	defer func() { _ = root.Close() }()
	documents, summary, err := searchFolder(ctx, root, sessions)
	if err != nil {
		return e.report(ctx, unreadableEvent(err))
	}
	if err := e.report(ctx, summary); err != nil {
		return err
	}
	failed, err := e.deleteFiles(ctx, root, documents)
	if err != nil {
		return err
	}
	return e.transact(ctx, func(tx pgx.Tx) error { return e.removeSessions(ctx, tx, sessions, failed) })
}

// openFolder opens the folder, locks it for one erasure, and reports the files that an earlier attempt deleted there.
// If the folder cannot be opened, it reports that and returns nil.
func (e *erasure) openFolder(ctx context.Context) (*os.Root, error) {
	root, err := os.OpenRoot(e.Folder)
	if err != nil {
		return nil, e.report(ctx, unreadableEvent(err))
	}
	if err = e.lockFolder(ctx); err == nil {
		err = e.reportDeleted(ctx, root)
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

// reportDeleted reports files that an earlier attempt deleted but did not report. It forgets the other files of that
// attempt, since a new search finds out whether they must be deleted.
func (e *erasure) reportDeleted(ctx context.Context, root *os.Root) error {
	return e.transact(ctx, func(tx pgx.Tx) error {
		names, err := e.files(ctx, tx)
		if err != nil {
			return err
		}
		var events []Event
		for _, name := range names {
			if _, err := root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
				events = append(events, fileDeleted(name))
			}
		}
		return e.settleFiles(ctx, tx, names, events)
	})
}

// searchFolder returns the documents of the sessions, and an event with the number of files.
func searchFolder(ctx context.Context, root *os.Root, sessions []string) ([]gds.Document, Event, error) {
	documents, count, err := gds.Search(ctx, root, sessions)
	return documents, infof("searched the %d files of the document storage: %d documents belong to erased tasks",
		count, len(documents)), err
}

func unreadableEvent(problem error) Event {
	return errorf("cannot access the document storage's folder: %v", problem)
}

// documentsPerBatch is how many documents a transaction deletes, with their markers.
const documentsPerBatch = 100

// deleteFiles returns the sessions of documents it could not delete. It reports these as events, not as an error.
func (e *erasure) deleteFiles(
	ctx context.Context, root *os.Root, documents []gds.Document,
) (failed []string, err error) {
	for batch := range slices.Chunk(documents, documentsPerBatch) {
		if err := e.unlessHeld(ctx, func() error {
			sessions, err := e.deleteBatch(ctx, root, batch)
			failed = append(failed, sessions...)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return failed, nil
}

// deleteBatch records files before it deletes them, so that each is reported once, even after a crash.
func (e *erasure) deleteBatch(
	ctx context.Context, root *os.Root, documents []gds.Document,
) (failed []string, err error) {
	var names []string
	err = e.transact(ctx, func(tx pgx.Tx) error {
		names = existingFiles(root, documents)
		return e.addFiles(ctx, tx, names)
	})
	if err != nil {
		return nil, err
	}
	// outside of a transaction, which must not be idle while large folders are read
	marked, unreadable := gds.NewMarkers(ctx, root, documents)
	err = e.transact(ctx, func(tx pgx.Tx) error {
		// the file system may be slow
		if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = '5min'"); err != nil {
			return err
		}
		list, err := e.files(ctx, tx)
		if err != nil {
			return err
		}
		recorded := map[string]bool{}
		for _, name := range list {
			recorded[name] = true
		}
		if slices.ContainsFunc(names, func(name string) bool { return !recorded[name] }) {
			return errTaken
		}
		var events []Event
		failed = nil
		for _, d := range documents {
			documentEvents, sessions := deleteDocument(root, d, recorded, marked[d.Path], unreadable[path.Dir(d.Path)])
			events, failed = append(events, documentEvents...), append(failed, sessions...)
		}
		return e.settleFiles(ctx, tx, names, events)
	})
	return failed, err
}

func existingFiles(root *os.Root, documents []gds.Document) (names []string) {
	for _, d := range documents {
		if d.Irregular {
			continue
		}
		for _, f := range d.Files {
			if _, err := root.Lstat(f.Name); !errors.Is(err, fs.ErrNotExist) {
				names = append(names, f.Name)
			}
		}
	}
	return names
}

// deleteDocument returns the events and the sessions of files that cannot be deleted. It does not report files that
// were not recorded.
func deleteDocument(
	root *os.Root, d gds.Document, recorded map[string]bool, marked bool, unreadable error,
) (events []Event, failed []string) {
	switch {
	case d.Irregular:
		return []Event{irregularEvent(d)}, d.Sessions()
	case unreadable != nil:
		return []Event{errorf("a document could not be deleted: %v", unreadable)}, d.Sessions()
	}
	for _, f := range d.Delete(root, marked) {
		switch {
		case f.Err != nil:
			events = append(events, errorf("a file could not be deleted: %v", f.Err))
			failed = append(failed, f.Sessions...)
		case recorded[f.Name]:
			events = append(events, fileDeleted(f.Name))
		}
	}
	return events, failed
}

func irregularEvent(d gds.Document) Event {
	return errorf(
		"document %s is retained: it or one of its markers is not a regular file; find out what it is, remove it, and "+
			"erase again",
		d.Path,
	)
}

// documentEvents returns the events that deleting the documents would cause.
func documentEvents(documents []gds.Document) (events []Event) {
	for _, d := range documents {
		if d.Irregular {
			events = append(events, irregularEvent(d))
			continue
		}
		for _, f := range d.Files {
			events = append(events, fileDeleted(f.Name))
		}
	}
	return events
}

// sessions returns the sessions whose documents the erasure must still delete.
func (e *erasure) sessions(ctx context.Context) ([]string, error) {
	const query = "SELECT session_id FROM cleanupd.erasure_session WHERE erasure_id = $1::text::uuid ORDER BY session_id"
	rows, _ := e.Record.Query(ctx, query, e.id)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// addSessions adds sessions to the erasure. A session of an earlier erasure is moved to this one.
func (e *erasure) addSessions(ctx context.Context, tx pgx.Tx, kind string, sessions []forms.Session) error {
	var ids []string
	var items []int64
	for _, s := range sessions {
		ids, items = append(ids, s.ID), append(items, s.Item)
	}
	_, err := e.exec(ctx, tx, `INSERT INTO cleanupd.erasure_session (session_id, erasure_id, kind, item_id, forms_id)
			SELECT s, $1::text::uuid, $2, i, $5 FROM unnest($3::text[], $4::bigint[]) AS u (s, i)
		ON CONFLICT (forms_id, session_id) DO UPDATE SET erasure_id = EXCLUDED.erasure_id`, kind, ids, items, e.formsID)
	return err
}

// removeSessions removes sessions, whose documents have been deleted, except those in except.
func (e *erasure) removeSessions(ctx context.Context, tx pgx.Tx, sessions, except []string) error {
	_, err := e.exec(ctx, tx, `DELETE FROM cleanupd.erasure_session WHERE erasure_id = $1::text::uuid
		AND session_id = ANY ($2) AND session_id <> ALL ($3)`, sessions, append([]string{}, except...))
	return err
}

// files returns the files that the erasure is about to delete.
func (e *erasure) files(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, _ := tx.Query(ctx, "SELECT DISTINCT name FROM cleanupd.erasure_file WHERE erasure_id = $1::text::uuid", e.id)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var name []byte
		err := row.Scan(&name)
		return string(name), err
	})
}

// addFiles records files before they are deleted, so that each is reported once, even after a crash.
func (e *erasure) addFiles(ctx context.Context, tx pgx.Tx, names []string) error {
	const insert = "INSERT INTO cleanupd.erasure_file (erasure_id, name) SELECT $1::text::uuid, unnest($2::bytea[])"
	_, err := e.exec(ctx, tx, insert, asBytes(names))
	return err
}

// settleFiles records that the files are no longer about to be deleted, with events that say what happened to them.
func (e *erasure) settleFiles(ctx context.Context, tx pgx.Tx, names []string, events []Event) error {
	const settle = "DELETE FROM cleanupd.erasure_file WHERE erasure_id = $1::text::uuid AND name = ANY ($2)"
	if _, err := e.exec(ctx, tx, settle, asBytes(names)); err != nil {
		return err
	}
	return e.appendEvents(ctx, tx, events...)
}

// asBytes converts file names for a column of bytes, since they may not be valid UTF-8, as a text column requires.
func asBytes(names []string) [][]byte {
	list := make([][]byte, len(names))
	for i, name := range names {
		list[i] = []byte(name)
	}
	return list
}
