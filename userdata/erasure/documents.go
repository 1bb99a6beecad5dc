package erasure

import (
	"context"
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/claim"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/report"
)

// deleteDocuments deletes the documents of all sessions in the record, including those that earlier erasures could
// not delete. It reports documents that cannot be deleted, and keeps their sessions in the record for the next
// attempt.
func (x Eraser) deleteDocuments(ctx context.Context, e *claim.Erasure) error {
	sessions, err := e.Sessions(ctx, e.Record)
	switch {
	case err != nil || len(sessions) == 0:
		return err
	case x.InDatabase:
		return deleteLeftovers(ctx, e, sessions)
	case x.Folder == "":
		return e.Report(ctx, UnknownStorageEvent(sessions))
	}
	return deleteInFolder(ctx, e, x.Folder, sessions)
}

// UnknownStorageEvent says that documents are retained because the document storage is unknown.
func UnknownStorageEvent(sessions []string) report.Event {
	const most = 10
	list := strings.Join(sessions[:min(most, len(sessions))], ", ")
	if more := len(sessions) - most; more > 0 {
		list += fmt.Sprintf(", and %d more", more)
	}
	return report.Errorf(
		"the documents of these sessions are retained, if they have any: %s; the location of the document storage (GDS) "+
			"is unknown: erase again with --forms-gds-dir or --forms-gds-in-database",
		list,
	)
}

// deleteLeftovers deletes documents in the database that earlier erasures left there. The documents of this
// erasure's own items were deleted together with the items.
func deleteLeftovers(ctx context.Context, e *claim.Erasure, sessions []string) error {
	problem := e.Change(ctx, forms.MaxTries, func(tx *forms.Transaction) (*report.Entry, error) {
		removed := &forms.Removal{Rows: map[int64]forms.Rows{}}
		err := forms.NewRemover(tx, false).Documents(ctx, removed, WithoutItem(sessions))
		return &report.Entry{Rows: removed.Total(), Settled: sessions}, err
	})
	if problem == nil || e.Interrupts(ctx, problem) {
		return problem
	}
	return e.Report(ctx,
		report.Errorf("documents that an earlier erasure left could not be deleted: %s", sqlstate.Explain(problem)))
}

// WithoutItem returns the sessions with these ids, whose process instances or tasks no longer exist.
func WithoutItem(ids []string) (sessions []forms.Session) {
	for _, id := range ids {
		sessions = append(sessions, forms.Session{ID: id})
	}
	return sessions
}
