package userdata

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/severity"
)

// documentsAtOnce is how many documents, with their markers, are deleted at a time.
const documentsAtOnce = 100

// folderLock is the advisory lock for working in the folder: "folder" in ASCII. Two erasures that searched it at once
// would each leave a document that both refer to to the other.
const folderLock = 0x666f6c646572

// lockFolder waits until no other erasure works in the folder, unless it is another role's session that is in the way.
// The lock is released with the erasure's own.
func (e *erasure) lockFolder(ctx context.Context) error {
	if err := advisory.Squatted(ctx, e.conn, folderLock, false); err != nil {
		return err
	}
	_, err := e.conn.Exec(
		ctx,
		fmt.Sprintf(
			"SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SELECT pg_advisory_lock(%d)",
			folderLock,
		),
	)
	return err
}

// openFolder opens the document storage's folder for this erasure alone, and reports what a previous attempt did in it.
// It returns nil if the folder cannot be opened, which it reports.
func (e *erasure) openFolder(ctx context.Context) (*os.Root, error) {
	root, err := os.OpenRoot(e.Folder)
	if err != nil {
		return nil, e.tellUnreadable(ctx, err)
	}
	if err = e.lockFolder(ctx); err == nil {
		err = e.recall(ctx, root)
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

// files deletes the files of sessions, walking through the folder once. What cannot be deleted is reported, and its
// sessions are kept for the next attempt.
func (e *erasure) files(ctx context.Context, sessions []string) error {
	root, err := e.openFolder(ctx)
	if err != nil || root == nil {
		return err
	}
	defer func() { _ = root.Close() }()
	documents, looked, err := walk(ctx, root, sessions)
	if err != nil {
		return e.tellUnreadable(ctx, err)
	}
	if err := e.tell(ctx, looked); err != nil {
		return err
	}
	failed, err := e.removeAll(ctx, root, documents)
	if err != nil {
		return err
	}
	return e.transact(ctx, func(tx pgx.Tx) error { return e.forget(ctx, tx, sessions, failed) })
}

// removeAll deletes the files of documents, some at a time. It returns the sessions of what cannot be deleted.
func (e *erasure) removeAll(ctx context.Context, root *os.Root, documents []document) (failed []string, err error) {
	for some := range slices.Chunk(documents, documentsAtOnce) {
		if err := e.unlessHeld(ctx, func() error {
			stuck, err := e.removeFiles(ctx, root, some)
			failed = append(failed, stuck...)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return failed, nil
}

// unreadable is the event that nothing can be done in the folder.
func unreadable(problem error) Event {
	return logged(severity.Error, "the document storage's folder could not be worked on: "+problem.Error())
}

func (e *erasure) tellUnreadable(ctx context.Context, problem error) error {
	return e.tell(ctx, unreadable(problem))
}

// recall reports the files that a previous attempt deleted without having reported them. Whether the others must be
// deleted is determined anew.
func (e *erasure) recall(ctx context.Context, root *os.Root) error {
	return e.transact(ctx, func(tx pgx.Tx) error {
		names, err := e.intended(ctx, tx)
		if err != nil {
			return err
		}
		var events []Event
		for _, name := range names {
			if _, err := root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
				events = append(events, deleted(name))
			}
		}
		return e.settled(ctx, tx, names, events)
	})
}

// intended are the files that are recorded as about to be deleted.
func (e *erasure) intended(ctx context.Context, tx pgx.Tx) ([]string, error) {
	return collect(ctx, tx, func(row pgx.CollectableRow) (string, error) {
		var name []byte
		err := row.Scan(&name)
		return string(name), err
	}, "SELECT DISTINCT name FROM cleanupd.erasure_file WHERE erasure_id = $1::text::uuid", e.id)
}

// settled reports what happened to files that were about to be deleted.
func (e *erasure) settled(ctx context.Context, tx pgx.Tx, names []string, events []Event) error {
	if _, err := tx.Exec(
		ctx,
		"DELETE FROM cleanupd.erasure_file WHERE erasure_id = $1::text::uuid AND name = ANY ($2)",
		e.id,
		inBytes(names),
	); err != nil {
		return err
	}
	return e.append(ctx, tx, events...)
}

// inBytes converts names for the database, whose text cannot hold every string.
func inBytes(names []string) [][]byte {
	list := make([][]byte, len(names))
	for i, name := range names {
		list[i] = []byte(name)
	}
	return list
}

// removeFiles deletes the files of documents. They are recorded beforehand, so that each is reported once, even after a
// crash in between. It returns the sessions of what cannot be deleted.
func (e *erasure) removeFiles(ctx context.Context, root *os.Root, documents []document) (failed []string, err error) {
	var names []string
	err = e.transact(ctx, func(tx pgx.Tx) error {
		names = nil
		for _, d := range documents {
			if d.strange {
				continue
			}
			for _, f := range d.files {
				if _, err := root.Lstat(f.name); !errors.Is(err, fs.ErrNotExist) {
					names = append(names, f.name)
				}
			}
		}
		_, err := tx.Exec(
			ctx,
			"INSERT INTO cleanupd.erasure_file (erasure_id, name) SELECT $1::text::uuid, unnest($2::bytea[])",
			e.id,
			inBytes(names),
		)
		return err
	})
	if err != nil {
		return nil, err
	}
	// outside of a transaction, which must not be idle while large folders are read
	marked, unread := marks(ctx, root, documents)
	err = e.transact(ctx, func(tx pgx.Tx) error {
		// the file system may be slow
		if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = '5min'"); err != nil {
			return err
		}
		list, err := e.intended(ctx, tx)
		if err != nil {
			return err
		}
		intended := set(list)
		if slices.ContainsFunc(names, func(name string) bool { return !intended[name] }) {
			return errTaken
		}
		var events []Event
		failed = nil
		for _, d := range documents {
			if d.strange {
				events = append(events, d.stays())
				failed = append(failed, sessionsOfFiles(d.files)...)
				continue
			}
			if err := unread[path.Dir(d.name)]; err != nil {
				events = append(events, logged(severity.Error, "a document could not be deleted: "+err.Error()))
				failed = append(failed, sessionsOfFiles(d.files)...)
				continue
			}
			for _, f := range d.files {
				if f.name == d.name && marked[d.name] {
					continue
				}
				err := root.Remove(f.name)
				if err == nil || errors.Is(err, fs.ErrNotExist) {
					if intended[f.name] {
						events = append(events, deleted(f.name))
					}
					continue
				}
				events = append(events, logged(severity.Error, "a file could not be deleted: "+err.Error()))
				failed = append(failed, f.sessions...)
				if f.name == d.name {
					break // its markers are kept with it
				}
			}
		}
		return e.settled(ctx, tx, names, events)
	})
	return failed, err
}
