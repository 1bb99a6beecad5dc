package userdata

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/userdata/gds"
)

// deleteInFolder deletes the documents of the sessions. It reports those that cannot be deleted, and keeps their
// sessions in the record for the next attempt.
func deleteInFolder(ctx context.Context, e *erasure, folder string, sessions []string) error {
	root, err := openFolder(ctx, e, folder)
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
	failed, err := deleteDocuments(ctx, e, root, documents)
	if err != nil {
		return err
	}
	return e.transact(ctx, func(tx pgx.Tx) error { return e.removeSessions(ctx, tx, sessions, failed) })
}

// OpenFolder opens the folder, locks it for one erasure, and reports the files that an earlier attempt deleted there. If
// the folder cannot be opened, it reports that and returns nil.
func openFolder(ctx context.Context, e *erasure, folder string) (*os.Root, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, e.report(ctx, unreadableEvent(err))
	}
	if err = e.lockFolder(ctx); err == nil {
		err = reportDeleted(ctx, e, root)
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

// reportDeleted reports files that an earlier attempt deleted but did not report. It forgets the other files of that
// attempt, since a new search finds out whether they must be deleted.
func reportDeleted(ctx context.Context, e *erasure, root *os.Root) error {
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

// SearchFolder returns the documents of the sessions, and an event with the number of files.
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

// DeleteDocuments deletes documents. It reports those that cannot be deleted, and returns their sessions.
func deleteDocuments(
	ctx context.Context, e *erasure, root *os.Root, documents []gds.Document,
) (failed []string, err error) {
	for batch := range slices.Chunk(documents, documentsPerBatch) {
		if err := e.unlessHeld(ctx, func() error {
			sessions, err := deleteBatch(ctx, e, root, batch)
			failed = append(failed, sessions...)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return failed, nil
}

// deleteBatch records files before it deletes them, so that each is reported once, even after a crash.
func deleteBatch(
	ctx context.Context, e *erasure, root *os.Root, documents []gds.Document,
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

// DocumentEvents returns the events that deleting the documents would cause.
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
