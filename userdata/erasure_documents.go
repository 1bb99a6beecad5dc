package userdata

import (
	"context"
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// deleteDocuments deletes the documents of all sessions in the record, including those that earlier erasures could
// not delete. It reports documents that cannot be deleted, and keeps their sessions in the record for the next
// attempt.
func (x eraser) deleteDocuments(ctx context.Context, e *erasure) error {
	sessions, err := e.sessions(ctx, e.Record)
	switch {
	case err != nil || len(sessions) == 0:
		return err
	case x.InDatabase:
		return deleteLeftovers(ctx, e, sessions)
	case x.Folder == "":
		return e.report(ctx, unknownStorageEvent(sessions))
	}
	return deleteInFolder(ctx, e, x.Folder, sessions)
}

// UnknownStorageEvent says that documents are retained because the document storage is unknown.
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
func deleteLeftovers(ctx context.Context, e *erasure, sessions []string) error {
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

// WithoutItem returns the sessions with these ids, whose process instances or tasks no longer exist.
func withoutItem(ids []string) (sessions []forms.Session) {
	for _, id := range ids {
		sessions = append(sessions, forms.Session{ID: id})
	}
	return sessions
}
