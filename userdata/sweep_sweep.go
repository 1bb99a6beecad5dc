package userdata

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Run sweeps the folder, or the database if folder is empty. It returns failed as true if some
// stale documents could not be deleted.
func sweepDocuments(ctx context.Context, e *erasure, folder string) (failed bool, err error) {
	if folder == "" {
		return sweepDatabase(ctx, e)
	}
	return sweepFolder(ctx, e, folder)
}

// Preview reports what a sweep would delete, and changes nothing.
func previewSweep(
	ctx context.Context, record *pgxpool.Pool, db *forms.Database, folder string,
) ([]Event, error) {
	if folder == "" {
		return previewDatabase(ctx, record, db)
	}
	return previewFolder(ctx, record, db, folder)
}

// reportRetained reports the retained documents. If they cannot be counted, the sweep does not fail.
func reportRetained(ctx context.Context, e *erasure, count func() (Event, error)) error {
	event, err := count()
	if e.interrupts(ctx, err) {
		return err
	}
	if err != nil {
		event = warningf("the retained documents could not be counted: %s", sqlstate.Explain(err))
	}
	return e.report(ctx, event)
}
