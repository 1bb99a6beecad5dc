package userdata

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/internal/severity"
)

// youngestFile is how old the files of a document must be for a sweep: a younger document may belong to a task that is
// not stored yet.
const youngestFile = 24 * time.Hour

func (e *erasure) sweepFolder(ctx context.Context) (failed bool, err error) {
	root, err := e.openFolder(ctx)
	if err != nil || root == nil {
		return root == nil, err
	}
	defer func() { _ = root.Close() }()
	unreadable := func(err error) (bool, error) {
		if e.endsWork(ctx, err) {
			return false, err
		}
		return true, e.tellUnreadable(ctx, err)
	}
	l, err := e.lookAtFolder(ctx, root)
	if err != nil {
		return unreadable(err)
	}
	confirmed, err := e.confirm(ctx, l)
	if err != nil {
		return false, err
	}
	documents, young, err := staleFiles(ctx, root, confirmed)
	if err != nil {
		return unreadable(err)
	}
	if young != nil {
		if err := e.tell(ctx, *young); err != nil {
			return false, err
		}
	}
	stuck, err := e.removeAll(ctx, root, documents)
	if err != nil {
		return false, err
	}
	return len(stuck) > 0, e.reportRetained(ctx, func() (Event, error) { return retainedInFolder(ctx, root, nil) })
}

// lookAtFolder looks at the sessions that a folder's markers name.
func (d *Database) lookAtFolder(ctx context.Context, root *os.Root) (l look, err error) {
	named := map[string]bool{}
	if err := eachFile(ctx, root, func(_ string, entry fs.DirEntry) {
		if _, session, ok := marker(entry.Name()); ok {
			named[session] = true
		}
	}); err != nil {
		return l, err
	}
	err = d.Forms.snapshot(ctx, func(tx *transaction) (err error) {
		l, err = lookAt(ctx, tx, slices.Collect(maps.Keys(named)))
		return err
	})
	return l, err
}

// staleFiles returns the documents in a folder whose sessions are all confirmed, and reports those that are too young;
// nil if none is.
func staleFiles(
	ctx context.Context,
	root *os.Root,
	confirmed map[string]bool,
) (list []document, young *Event, err error) {
	documents, _, err := walk(ctx, root, slices.Collect(maps.Keys(confirmed)))
	if err != nil {
		return nil, nil, err
	}
	retained := 0
	for _, d := range documents {
		switch {
		case d.kept:
		case d.youngerThan(root, youngestFile):
			retained++
		default:
			list = append(list, d)
		}
	}
	if retained > 0 {
		young = new(
			logged(
				severity.Warning,
				fmt.Sprintf(
					"%d documents without a task or form data are retained: a file of theirs is younger than a day",
					retained,
				),
			),
		)
	}
	return list, young, nil
}

// youngerThan reports whether a file of the document was changed less than an age ago.
func (d document) youngerThan(root *os.Root, age time.Duration) bool {
	return slices.ContainsFunc(d.files, func(f file) bool {
		info, err := root.Lstat(f.name)
		return err == nil && time.Since(info.ModTime()) < age
	})
}

// foretellSweepOfFolder returns the events about what a sweep would delete from the folder.
func (d *Database) foretellSweepOfFolder(ctx context.Context) (events []Event, err error) {
	root, err := os.OpenRoot(d.Folder)
	if err != nil {
		return []Event{unreadable(err)}, nil
	}
	defer func() { _ = root.Close() }()
	l, err := d.lookAtFolder(ctx, root)
	if err != nil {
		return nil, err
	}
	confirmed, unconfirmed, err := d.confirmed(ctx, d.Record, l)
	if err != nil {
		return nil, err
	}
	documents, young, err := staleFiles(ctx, root, confirmed)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, d := range documents {
		paths = append(paths, d.name)
	}
	events = append(filesOf(documents), unconfirmed...)
	if young != nil {
		events = append(events, *young)
	}
	retained, err := retainedInFolder(ctx, root, paths)
	return append(events, retained), err
}
