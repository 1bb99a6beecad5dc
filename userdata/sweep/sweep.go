package sweep

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/claim"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/report"
)

// Run sweeps the folder, or the database if folder is empty. It returns failed as true if some
// stale documents could not be deleted.
func Run(ctx context.Context, e *claim.Erasure, folder string) (failed bool, err error) {
	if folder == "" {
		return sweepDatabase(ctx, e)
	}
	return sweepFolder(ctx, e, folder)
}

// Preview reports what a sweep would delete, and changes nothing.
func Preview(
	ctx context.Context, record *pgxpool.Pool, db *forms.Database, folder string,
) ([]report.Event, error) {
	if folder == "" {
		return previewDatabase(ctx, record, db)
	}
	return previewFolder(ctx, record, db, folder)
}

// reportRetained reports the retained documents. If they cannot be counted, the sweep does not fail.
func reportRetained(ctx context.Context, e *claim.Erasure, count func() (report.Event, error)) error {
	event, err := count()
	if e.Interrupts(ctx, err) {
		return err
	}
	if err != nil {
		event = report.Warningf("the retained documents could not be counted: %s", sqlstate.Explain(err))
	}
	return e.Report(ctx, event)
}
