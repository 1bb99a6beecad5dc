package userdata

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks"
)

// filesAtOnce is how many documents' deletions are written down at once.
const filesAtOnce = 200

// files deletes the files of the sessions that the erasure is to delete, walking through the folder once. What can not be
// deleted is told; its sessions are kept for the next attempt.
func (e *erasure) files(ctx context.Context) error {
	left, err := collect(ctx, e.Pool, pgx.RowTo[string], "SELECT session_id FROM cleanupd.erasure_session WHERE erasure_id = $1::text::uuid", e.id)
	if err != nil || len(left) == 0 {
		return err
	}
	sessions := map[string]bool{}
	for _, id := range left {
		sessions[id] = true
	}
	var (
		events []Event
		failed = map[string]bool{} // sessions
		lost   error
	)
	note := func(force bool) error {
		if len(events) == 0 || len(events) < filesAtOnce && !force {
			return nil
		}
		told := events
		events = nil
		return e.transact(ctx, func(tx pgx.Tx) error { return e.append(ctx, tx, told...) })
	}
	tell := func(event Event) error {
		events = append(events, event)
		return nil
	}
	err = eachFile(e.Folder, sessions, tell, func(root *os.Root, f file) (bool, error) {
		err := root.Remove(f.name)
		switch {
		case err == nil:
			events = append(events, Event{File: f.name})
		case !errors.Is(err, fs.ErrNotExist):
			events = append(events, logged(tasks.Error, "a file could not be deleted: "+err.Error()))
			for _, id := range f.sessions {
				failed[id] = true
			}
		}
		lost = errors.Join(note(false), ctx.Err())
		return err == nil || errors.Is(err, fs.ErrNotExist), lost
	})
	if lost != nil {
		return lost
	}
	if err != nil {
		events = append(events, logged(tasks.Error, "the document storage's folder could not be worked on: "+err.Error()))
		failed = sessions
	}
	if err := note(true); err != nil {
		return err
	}
	var gone []string
	for id := range sessions {
		if !failed[id] {
			gone = append(gone, id)
		}
	}
	return e.transact(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM cleanupd.erasure_session WHERE erasure_id = $1::text::uuid AND session_id = ANY ($2)", e.id, gone)
		return err
	})
}
