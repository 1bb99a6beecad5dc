package userdata

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/gds"
)

// minFileAge protects younger documents, since they may belong to a task that is not stored yet.
const minFileAge = 24 * time.Hour

func sweepFolder(ctx context.Context, e *erasure, folder string) (failed bool, err error) {
	root, err := openFolder(ctx, e, folder)
	if err != nil || root == nil {
		return root == nil, err
	}
	defer func() { _ = root.Close() }()
	fail := func(err error) (bool, error) {
		if e.interrupts(ctx, err) {
			return false, err
		}
		return true, e.report(ctx, unreadableEvent(err))
	}
	o, err := observeFolder(ctx, e.Forms, root)
	if err != nil {
		return fail(err)
	}
	confirmed, err := confirm(ctx, e, o)
	if err != nil {
		return false, err
	}
	documents, young, err := staleDocuments(ctx, root, confirmed)
	if err != nil {
		return fail(err)
	}
	if err := e.report(ctx, young...); err != nil {
		return false, err
	}
	stuck, err := deleteDocuments(ctx, e, root, documents)
	if err != nil {
		return false, err
	}
	return len(stuck) > 0, reportRetained(ctx, e,
		func() (Event, error) { return retainedInFolder(ctx, root, nil) })
}

func observeFolder(ctx context.Context, db *forms.Database, root *os.Root) (o observation, err error) {
	sessions := map[string]bool{}
	if err := gds.EachFile(ctx, root, func(_ string, entry fs.DirEntry) {
		if _, session, ok := gds.ParseMarker(entry.Name()); ok {
			sessions[session] = true
		}
	}); err != nil {
		return o, err
	}
	err = db.Snapshot(ctx, func(tx *forms.Transaction) (err error) {
		o, err = observe(ctx, tx, slices.Collect(maps.Keys(sessions)))
		return err
	})
	return o, err
}

// staleDocuments returns the documents whose sessions are all confirmed. If some documents are too young, it also
// returns an event about them.
func staleDocuments(
	ctx context.Context, root *os.Root, confirmed map[string]bool,
) (stale []gds.Document, young []Event, err error) {
	documents, _, err := gds.Search(ctx, root, slices.Collect(maps.Keys(confirmed)))
	if err != nil {
		return nil, nil, err
	}
	retained := 0
	for _, d := range documents {
		switch {
		case d.Retained:
		case d.YoungerThan(root, minFileAge):
			retained++
		default:
			stale = append(stale, d)
		}
	}
	if retained > 0 {
		young = append(young,
			warningf(
				"%d documents without a task or form data are retained: one of their files is younger than a day",
				retained))
	}
	return stale, young, nil
}

func previewFolder(
	ctx context.Context, record *pgxpool.Pool, db *forms.Database, folder string,
) ([]Event, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return []Event{unreadableEvent(err)}, nil
	}
	defer func() { _ = root.Close() }()
	o, err := observeFolder(ctx, db, root)
	if err != nil {
		return nil, err
	}
	confirmed, unconfirmed, err := confirmedSessions(ctx, record, db.Identity(), o)
	if err != nil {
		return nil, err
	}
	documents, young, err := staleDocuments(ctx, root, confirmed)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, d := range documents {
		paths = append(paths, d.Path)
	}
	retained, err := retainedInFolder(ctx, root, paths)
	return append(slices.Concat(documentEvents(documents), unconfirmed, young), retained), err
}
