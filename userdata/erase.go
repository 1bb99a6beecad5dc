package userdata

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// itemsPerTransaction is high, because each transaction reads a whole table if an index is missing.
const itemsPerTransaction = 100

// stopError stops an erasure before the process instances that were not begun.
type stopError struct{ error }

// erase carries out the erasure of process instances and tasks. It fails only if the work is interrupted and must be
// resumed. If progress is not nil, it is called after each transaction that erases items. If progress fails, or
// everything is put on hold during a purge, no further process instances are erased: erase ends the erasure, and
// returns the reason as stopped.
func (e *erasure) erase(
	ctx context.Context, progress func(ctx context.Context) error,
) (stopped, err error) {
	erase, size := e.eraseInstances, itemsPerTransaction
	if e.Server != nil {
		erase, size = e.eraseByServer, 1
	}
	err = e.eraseItems(ctx, kindInstance, size, erase, progress)
	var stop *stopError
	switch {
	case errors.As(err, &stop):
		return stop.error, e.stop(ctx, stop.error)
	case err != nil:
		return nil, err
	}
	return nil, e.eraseRest(ctx)
}

// stop ends the erasure without beginning further process instances.
func (e *erasure) stop(ctx context.Context, reason error) error {
	if err := e.transact(ctx, func(tx pgx.Tx) error {
		n, err := e.dropPendingItems(ctx, tx)
		if err != nil {
			return err
		}
		return e.appendEvents(ctx, tx, infof("%v: %d process instances were not begun, and are retained", reason, n))
	}); err != nil {
		return err
	}
	return e.eraseRest(ctx)
}

// eraseRest erases orphan tasks and documents, and ends the erasure.
func (e *erasure) eraseRest(ctx context.Context) error {
	if err := e.eraseItems(ctx, kindTask, itemsPerTransaction, e.eraseOrphans, nil); err != nil {
		return err
	}
	if err := e.deleteDocuments(ctx); err != nil {
		return err
	}
	return e.finish(ctx, false)
}

type eraseFunc func(ctx context.Context, ids []int64) error

// eraseItems erases the unsettled items of a kind, at most size of them at once.
func (e *erasure) eraseItems(
	ctx context.Context, kind string, size int, erase eraseFunc, progress func(ctx context.Context) error,
) error {
	ids, err := e.unsettledItems(ctx, kind)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(ids, size) {
		if err := e.eraseOrBisect(ctx, kind, chunk, erase); err != nil {
			if e.purge != nil && errors.As(err, new(*heldError)) {
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
func (e *erasure) eraseOrBisect(ctx context.Context, kind string, ids []int64, erase eraseFunc) error {
	problem := erase(ctx, ids)
	if problem == nil || e.interrupts(ctx, problem) {
		return problem
	}
	if half := len(ids) / 2; half > 0 {
		if err := e.eraseOrBisect(ctx, kind, ids[:half], erase); err != nil {
			return err
		}
		return e.eraseOrBisect(ctx, kind, ids[half:], erase)
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

func (e *erasure) eraseInstances(ctx context.Context, ids []int64) error {
	tries, lock := attempts(ids)
	return e.change(ctx, tries, func(tx *forms.Transaction) (*entry, error) {
		matches := ids
		var others []int64
		if e.purge != nil {
			var err error
			if matches, others, err = e.purge.stillMatching(ctx, tx, ids, lock); err != nil {
				return nil, err
			}
		}
		instances, err := tx.Instances(ctx, matches, lock)
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(
			ctx,
			"UPDATE tb_process_instance SET status = @terminated WHERE id IN (@ids) AND (status IN (@ended)) IS NOT "+
				"TRUE",
			forms.Args{"ids": matches, "terminated": forms.Terminated, "ended": forms.EndedStatuses},
		); err != nil {
			return nil, err
		}
		removed, err := forms.NewRemover(tx, false).Instances(ctx, matches, e.InDatabase)
		if err != nil {
			return nil, err
		}
		events := notMatchingEvents(others)
		for _, id := range matches {
			if instances[id] != nil && removed.Rows[id][forms.InstanceTable] == 0 {
				return nil, forms.ErrKept
			}
			events = append(events, e.instanceEvents(id, instances[id], removed.Rows[id])...)
		}
		return e.entry(kindInstance, slices.Concat(matches, others), removed, events), nil
	})
}

// attempts returns how often a transaction for the items is tried, and the clause that locks their rows. With several
// items, the transaction does not wait for locked rows, since the items are tried again in halves.
func attempts(ids []int64) (tries uint, lock string) {
	if len(ids) > 1 {
		return 1, " FOR UPDATE NOWAIT"
	}
	return forms.MaxTries, " FOR UPDATE"
}

// instanceEvents returns the events about a process instance whose rows were deleted, or would be. If the process
// instance no longer exists, in is nil; the Forms server cannot purge it then, although other rows of it are left.
func (m *Manager) instanceEvents(id int64, in *forms.Instance, rows forms.Rows) []Event {
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
	case m.Server != nil:
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

// entry returns the ledger's entry for a transaction that removed items with everything that depends on them.
func (e *erasure) entry(kind string, ids []int64, removed *forms.Removal, events []Event) *entry {
	entry := &entry{Kind: kind, Items: ids, Rows: removed.Total(), Events: events}
	if !e.InDatabase {
		entry.Sessions = removed.Sessions
	}
	return entry
}

// eraseOrphans erases orphan tasks. It reports tasks that now belong to a process instance or do not exist.
func (e *erasure) eraseOrphans(ctx context.Context, ids []int64) error {
	tries, lock := attempts(ids)
	return e.change(ctx, tries, func(tx *forms.Transaction) (*entry, error) {
		r := forms.NewRemover(tx, false)
		tasks, err := r.FindTasks(ctx, ids, lock)
		if err != nil {
			return nil, err
		}
		orphans, retained, events := orphansOf(tasks)
		removed, err := r.Orphans(ctx, orphans, e.InDatabase)
		if err != nil {
			return nil, err
		}
		for _, o := range orphans {
			if o.Exists && removed.Rows[o.ID]["tb_task"] == 0 {
				return nil, forms.ErrKept
			}
			events = append(events, Event{Task: &TaskErased{ID: o.ID, Rows: removed.Rows[o.ID]}})
		}
		erased := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(retained, id) })
		entry := e.entry(kindTask, erased, removed, events)
		entry.Kept = retained
		return entry, nil
	})
}

// orphansOf splits tasks into orphans and tasks that are retained, with events about the latter.
func orphansOf(tasks []forms.Task) (orphans []forms.Task, retained []int64, events []Event) {
	for _, t := range tasks {
		switch {
		case !t.Exists && !t.Left:
			events = append(events, infof("task %d does not exist", t.ID))
			continue
		case t.Instance == nil:
			events = append(events,
				errorf("task %d retained: could not determine its process instance", t.ID))
			retained = append(retained, t.ID)
			continue
		case *t.Instance != 0:
			events = append(events,
				errorf("task %d retained: it belongs to process instance %d", t.ID, *t.Instance))
			retained = append(retained, t.ID)
			continue
		case t.Left:
			events = append(events, infof("task %d no longer exists; its remaining rows are deleted", t.ID))
		}
		orphans = append(orphans, t)
	}
	return orphans, retained, events
}

// ProcessManager is the Forms server, which identifies process instances by their long-lived invocation ids.
type ProcessManager interface {
	// TerminateProcess may return before the process instance has ended.
	TerminateProcess(ctx context.Context, invocation string) error
	// PurgeProcessInstance deletes everything that an ended process instance has in the database and in the document
	// storage.
	PurgeProcessInstance(ctx context.Context, invocation string) error
}

const (
	// terminateTimeout is how long a process instance may take to end after the request to terminate.
	terminateTimeout = 5 * time.Minute
	statusInterval   = time.Second
)

// errNoInvocation refuses a process instance without an id, since the Forms server might purge another one instead.
var errNoInvocation = errors.New(
	"it has no long-lived invocation id, by which the Forms server identifies it; erase it with the database alone, " +
		"while the Forms server is switched off",
)

var errStillRunning = errors.New("it was still running five minutes after the request to terminate it")

// eraseByServer lets the Forms server erase the process instance that is the only element of ids.
func (e *erasure) eraseByServer(ctx context.Context, ids []int64) error {
	id := ids[0]
	purging, err := e.isPurging(ctx, id)
	if err != nil {
		return err
	}
	in, err := e.Forms.Instance(ctx, id)
	if err != nil {
		return err
	}
	if in == nil {
		return e.recordMissing(ctx, id, purging)
	}
	if e.purge != nil && !purging {
		var others []int64
		if err := e.Forms.Snapshot(ctx, func(tx *forms.Transaction) (err error) {
			_, others, err = e.purge.stillMatching(ctx, tx, ids, "")
			return err
		}); err != nil {
			return err
		}
		if len(others) > 0 {
			return e.settleEntry(ctx, &entry{
				Kind:   kindInstance,
				Items:  others,
				Events: notMatchingEvents(others),
			})
		}
	}
	if err := e.purgeByServer(ctx, in); err != nil {
		return err
	}
	return e.settleEntry(ctx, &entry{Kind: kindInstance, Items: ids, Events: e.instanceEvents(id, in, nil)})
}

// recordMissing settles a process instance that no longer exists. It counts as erased if the Forms server was asked
// to purge it. It counts as failed if other rows of it are left, which the Forms server does not purge.
func (e *erasure) recordMissing(ctx context.Context, id int64, purging bool) error {
	ids := []int64{id}
	entry := &entry{Kind: kindInstance, Items: ids}
	if purging {
		in := &forms.Instance{ID: id, Status: forms.Terminated}
		entry.Events = e.instanceEvents(id, in, nil)
		return e.settleEntry(ctx, entry)
	}
	var left *forms.Removal
	if err := e.Forms.Snapshot(ctx, func(tx *forms.Transaction) (err error) {
		left, err = forms.NewRemover(tx, true).Instances(ctx, ids, e.InDatabase)
		return err
	}); err != nil {
		return err
	}
	entry.Events = e.instanceEvents(id, nil, left.Rows[id])
	if len(left.Rows[id]) > 0 {
		entry.Items, entry.Kept = nil, ids
	}
	return e.settleEntry(ctx, entry)
}

func (e *erasure) settleEntry(ctx context.Context, entry *entry) error {
	return e.transact(ctx, func(tx pgx.Tx) error { return e.settle(ctx, tx, entry) })
}

// purgeByServer asks the Forms server to purge the process instance, after terminating it if it is running.
func (e *erasure) purgeByServer(ctx context.Context, in *forms.Instance) error {
	if in.Invocation == "" {
		return errNoInvocation
	}
	if !in.Ended() {
		if err := e.askServer(ctx, in, "terminateProcess", e.Server.TerminateProcess); err != nil {
			return err
		}
		if exists, err := e.waitForEnd(ctx, in.ID); err != nil || !exists {
			return err
		}
	}
	problem := e.askServer(ctx, in, "purgeProcessInstance", e.Server.PurgeProcessInstance)
	if left, err := e.Forms.Instance(ctx, in.ID); err != nil || left == nil { // deleted, even if the response was lost
		return err
	}
	if problem != nil {
		return problem
	}
	return errors.New("the Forms server reported it as purged, but it still exists")
}

// waitForEnd waits until the process instance has ended or no longer exists, and reports whether it still exists.
func (e *erasure) waitForEnd(ctx context.Context, id int64) (exists bool, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, terminateTimeout, errStillRunning)
	defer cancel()
	for {
		select {
		case <-time.After(statusInterval):
		case <-limited.Done():
			return false, context.Cause(limited)
		}
		in, err := e.Forms.Instance(ctx, id)
		switch {
		case err != nil || in == nil:
			return false, err
		case in.Ended():
			return true, nil
		}
	}
}

// askServer calls the Forms server, unless everything is on hold. It first records the request, so that a process
// instance that is missing after a crash counts as erased.
func (e *erasure) askServer(ctx context.Context, in *forms.Instance, operation string,
	call func(ctx context.Context, invocation string) error,
) error {
	return e.unlessHeld(ctx, func() error {
		if err := e.transact(ctx, func(tx pgx.Tx) error { return e.markPurging(ctx, tx, in.ID) }); err != nil {
			return err
		}
		if err := call(ctx, in.Invocation); err != nil {
			// not wrapped, since an error of the database would count as an interruption
			return errors.New("the Forms server, " + operation + ": " + err.Error())
		}
		return nil
	})
}
