package erasure

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/claim"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/record"
	"github.com/cleanupd/cleanupd/userdata/report"
)

type Eraser struct {
	// Folder is the folder of the document storage, or InDatabase is true; otherwise, the storage is unknown.
	Folder     string
	InDatabase bool
	// Server is asked to erase process instances; if it is nil, they are erased directly in the database.
	Server ProcessManager
}

// ItemsPerTransaction is high, because each transaction reads a whole table if an index is missing.
const ItemsPerTransaction = 100

// stopError stops an erasure before the process instances that were not begun.
type stopError struct{ error }

// Run carries out the erasure. It fails only if the work is interrupted and must be resumed. If progress is not nil,
// it is called after each transaction that erases items. If progress fails, or everything is put on hold during a
// purge, no further process instances are erased: Run ends the erasure, and returns the reason as stopped.
func (x Eraser) Run(
	ctx context.Context, e *claim.Erasure, progress func(ctx context.Context) error,
) (stopped, err error) {
	erase, size := x.eraseInstances, ItemsPerTransaction
	if x.Server != nil {
		erase, size = x.eraseByServer, 1
	}
	err = eraseItems(ctx, e, record.KindInstance, size, erase, progress)
	var stop *stopError
	switch {
	case errors.As(err, &stop):
		return stop.error, x.Stop(ctx, e, stop.error)
	case err != nil:
		return nil, err
	}
	return nil, x.finish(ctx, e)
}

// Stop ends the erasure without beginning further process instances.
func (x Eraser) Stop(ctx context.Context, e *claim.Erasure, reason error) error {
	if err := e.Transact(ctx, func(tx pgx.Tx) error {
		n, err := e.DropPendingItems(ctx, tx)
		if err != nil {
			return err
		}
		return e.Append(ctx, tx, report.Infof("%v: %d process instances were not begun, and are retained", reason, n))
	}); err != nil {
		return err
	}
	return x.finish(ctx, e)
}

func (x Eraser) finish(ctx context.Context, e *claim.Erasure) error {
	if err := eraseItems(ctx, e, record.KindTask, ItemsPerTransaction, x.eraseOrphans, nil); err != nil {
		return err
	}
	if err := x.deleteDocuments(ctx, e); err != nil {
		return err
	}
	return e.Finish(ctx, false)
}

type eraseFunc func(ctx context.Context, e *claim.Erasure, ids []int64) error

// eraseItems erases the unsettled items of a kind, at most size of them at once.
func eraseItems(
	ctx context.Context, e *claim.Erasure, kind string, size int, erase eraseFunc,
	progress func(ctx context.Context) error,
) error {
	ids, err := e.UnsettledItems(ctx, e.Record, kind)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(ids, size) {
		if err := eraseOrBisect(ctx, e, kind, chunk, erase); err != nil {
			if e.Purge != nil && errors.As(err, new(*claim.HeldError)) {
				err = &stopError{err}
			}
			return err
		}
		if progress == nil {
			continue
		}
		if err := progress(ctx); err != nil {
			return &stopError{err}
		}
	}
	return nil
}

// eraseOrBisect erases items. If that fails, it tries each half of them, so that only the items that cannot be
// erased are recorded as failed. It fails only if the work is interrupted.
func eraseOrBisect(ctx context.Context, e *claim.Erasure, kind string, ids []int64, erase eraseFunc) error {
	problem := erase(ctx, e, ids)
	if problem == nil || e.Interrupts(ctx, problem) {
		return problem
	}
	if half := len(ids) / 2; half > 0 {
		if err := eraseOrBisect(ctx, e, kind, ids[:half], erase); err != nil {
			return err
		}
		return eraseOrBisect(ctx, e, kind, ids[half:], erase)
	}
	return e.Transact(ctx, func(tx pgx.Tx) error {
		if err := e.MarkFailed(ctx, tx, kind, ids...); err != nil {
			return err
		}
		return e.Append(ctx, tx, FailedEvent(kind, ids[0], problem))
	})
}

func FailedEvent(kind string, id int64, problem error) report.Event {
	noun := "process instance"
	if kind == record.KindTask {
		noun = "orphan task"
	}
	return report.Errorf("%s %d could not be erased: %s", noun, id, sqlstate.Explain(problem))
}

// attempts returns how often a transaction about the items is tried, and the clause that locks their rows. With
// several items, the transaction does not wait for locked rows, since the items are tried again in halves.
func attempts(ids []int64) (tries uint, lock string) {
	if len(ids) > 1 {
		return 1, " FOR UPDATE NOWAIT"
	}
	return forms.MaxTries, " FOR UPDATE"
}

// Events returns the events about a process instance whose rows were deleted, or would be. If the process instance
// no longer exists, in is nil; the Forms server cannot purge it then, although other rows of it are left.
func (x Eraser) Events(id int64, in *forms.Instance, rows forms.Rows) []report.Event {
	switch {
	case in != nil:
		return []report.Event{{Instance: &report.InstanceErased{
			ID:         id,
			Invocation: in.Invocation,
			Terminated: !in.Ended(),
			Rows:       rows,
		}}}
	case len(rows) == 0:
		return []report.Event{report.Infof("process instance %d does not exist", id)}
	case x.Server != nil:
		return []report.Event{report.Errorf(
			"process instance %d no longer exists, but rows of it are retained in %s: the Forms server purges only "+
				"process instances that exist; erase it again with the database alone, while the Forms server is switched off",
			id, strings.Join(slices.Sorted(maps.Keys(rows)), ", "),
		)}
	}
	return []report.Event{
		report.Infof("process instance %d no longer exists; its remaining rows are deleted", id),
		{Instance: &report.InstanceErased{ID: id, Rows: rows}},
	}
}

func notMatchingEvents(ids []int64) (events []report.Event) {
	for _, id := range ids {
		events = append(events,
			report.Infof("process instance %d no longer exists, or no longer matches the purge: it is retained", id))
	}
	return events
}
