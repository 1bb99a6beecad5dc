package userdata

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

type eraser struct {
	// Folder is the folder of the document storage, or InDatabase is true; otherwise, the storage is unknown.
	Folder     string
	InDatabase bool
	// Server is asked to erase process instances; if it is nil, they are erased directly in the database.
	Server ProcessManager
}

// ItemsPerTransaction is high, because each transaction reads a whole table if an index is missing.
const itemsPerTransaction = 100

// stopError stops an erasure before the process instances that were not begun.
type stopError struct{ error }

// Run carries out the erasure. It fails only if the work is interrupted and must be resumed. If progress is not nil,
// it is called after each transaction that erases items. If progress fails, or everything is put on hold during a
// purge, no further process instances are erased: Run ends the erasure, and returns the reason as stopped.
func (x eraser) run(
	ctx context.Context, e *erasure, progress func(ctx context.Context) error,
) (stopped, err error) {
	erase, size := x.eraseInstances, itemsPerTransaction
	if x.Server != nil {
		erase, size = x.eraseByServer, 1
	}
	err = eraseItems(ctx, e, kindInstance, size, erase, progress)
	var stop *stopError
	switch {
	case errors.As(err, &stop):
		return stop.error, x.stop(ctx, e, stop.error)
	case err != nil:
		return nil, err
	}
	return nil, x.finish(ctx, e)
}

// Stop ends the erasure without beginning further process instances.
func (x eraser) stop(ctx context.Context, e *erasure, reason error) error {
	if err := e.transact(ctx, func(tx pgx.Tx) error {
		n, err := e.dropPendingItems(ctx, tx)
		if err != nil {
			return err
		}
		return e.appendEvents(ctx, tx, infof("%v: %d process instances were not begun, and are retained", reason, n))
	}); err != nil {
		return err
	}
	return x.finish(ctx, e)
}

func (x eraser) finish(ctx context.Context, e *erasure) error {
	if err := eraseItems(ctx, e, kindTask, itemsPerTransaction, x.eraseOrphans, nil); err != nil {
		return err
	}
	if err := x.deleteDocuments(ctx, e); err != nil {
		return err
	}
	return e.finish(ctx, false)
}

type eraseFunc func(ctx context.Context, e *erasure, ids []int64) error

// eraseItems erases the unsettled items of a kind, at most size of them at once.
func eraseItems(
	ctx context.Context, e *erasure, kind string, size int, erase eraseFunc,
	progress func(ctx context.Context) error,
) error {
	ids, err := e.unsettledItems(ctx, e.Record, kind)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(ids, size) {
		if err := eraseOrBisect(ctx, e, kind, chunk, erase); err != nil {
			if e.Purge != nil && errors.As(err, new(*heldError)) {
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
func eraseOrBisect(ctx context.Context, e *erasure, kind string, ids []int64, erase eraseFunc) error {
	problem := erase(ctx, e, ids)
	if problem == nil || e.interrupts(ctx, problem) {
		return problem
	}
	if half := len(ids) / 2; half > 0 {
		if err := eraseOrBisect(ctx, e, kind, ids[:half], erase); err != nil {
			return err
		}
		return eraseOrBisect(ctx, e, kind, ids[half:], erase)
	}
	return e.transact(ctx, func(tx pgx.Tx) error {
		if err := e.markFailed(ctx, tx, kind, ids...); err != nil {
			return err
		}
		return e.appendEvents(ctx, tx, failedEvent(kind, ids[0], problem))
	})
}

func failedEvent(kind string, id int64, problem error) Event {
	noun := "process instance"
	if kind == kindTask {
		noun = "orphan task"
	}
	return errorf("%s %d could not be erased: %s", noun, id, sqlstate.Explain(problem))
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
func (x eraser) instanceEvents(id int64, in *forms.Instance, rows forms.Rows) []Event {
	switch {
	case in != nil:
		return []Event{{Instance: &InstanceErased{
			ID:         id,
			Invocation: in.Invocation,
			Terminated: !in.Ended(),
			Rows:       rows,
		}}}
	case len(rows) == 0:
		return []Event{infof("process instance %d does not exist", id)}
	case x.Server != nil:
		return []Event{errorf(
			"process instance %d no longer exists, but rows of it are retained in %s: the Forms server purges only "+
				"process instances that exist; erase it again with the database alone, while the Forms server is switched off",
			id, strings.Join(slices.Sorted(maps.Keys(rows)), ", "),
		)}
	}
	return []Event{
		infof("process instance %d no longer exists; its remaining rows are deleted", id),
		{Instance: &InstanceErased{ID: id, Rows: rows}},
	}
}

func notMatchingEvents(ids []int64) (events []Event) {
	for _, id := range ids {
		events = append(events,
			infof("process instance %d no longer exists, or no longer matches the purge: it is retained", id))
	}
	return events
}
