package userdata

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/userdata/forms"
)

// ProcessManager is the Forms server, which identifies process instances by their long-lived invocation ids.
type ProcessManager interface {
	// TerminateProcess may return before the process instance has ended.
	TerminateProcess(ctx context.Context, invocation string) error
	// PurgeProcessInstance deletes everything that an ended process instance has in the database and in the document
	// storage.
	PurgeProcessInstance(ctx context.Context, invocation string) error
}

const (
	// terminateTimeout is how long a process instance may take to end after it was told to terminate.
	terminateTimeout = 5 * time.Minute
	statusInterval   = time.Second
)

// ErrNoInvocation refuses a process instance without an id, since the Forms server might purge another one instead.
var errNoInvocation = errors.New(
	"it has no long-lived invocation id, by which the Forms server identifies it; erase it with the database alone, " +
		"while the Forms server is switched off",
)

var errStillRunning = errors.New("it was still running five minutes after it was to terminate")

// eraseByServer lets the Forms server erase the process instance that is the only element of ids.
func (x eraser) eraseByServer(ctx context.Context, e *erasure, ids []int64) error {
	id := ids[0]
	purging, err := e.isPurging(ctx, e.Record, id)
	if err != nil {
		return err
	}
	in, err := e.Forms.Instance(ctx, id)
	if err != nil {
		return err
	}
	if in == nil {
		return x.recordMissing(ctx, e, id, purging)
	}
	if e.Purge != nil && !purging {
		var others []int64
		if err := e.Forms.Snapshot(ctx, func(tx *forms.Transaction) (err error) {
			_, others, err = e.Purge.stillMatching(ctx, tx, ids, "")
			return err
		}); err != nil {
			return err
		}
		if len(others) > 0 {
			return settleEntry(ctx, e, &entry{
				Kind:   kindInstance,
				Items:  others,
				Events: notMatchingEvents(others),
			})
		}
	}
	if err := x.purge(ctx, e, in); err != nil {
		return err
	}
	return settleEntry(ctx, e, &entry{Kind: kindInstance, Items: ids, Events: x.instanceEvents(id, in, nil)})
}

// recordMissing settles a process instance that no longer exists. It counts as erased if the Forms server was asked
// to purge it. It counts as failed if other rows of it are left, which the Forms server does not purge.
func (x eraser) recordMissing(ctx context.Context, e *erasure, id int64, purging bool) error {
	ids := []int64{id}
	entry := &entry{Kind: kindInstance, Items: ids}
	if purging {
		in := &forms.Instance{ID: id, Status: forms.Terminated}
		entry.Events = x.instanceEvents(id, in, nil)
		return settleEntry(ctx, e, entry)
	}
	var left *forms.Removal
	if err := e.Forms.Snapshot(ctx, func(tx *forms.Transaction) (err error) {
		left, err = forms.NewRemover(tx, true).Instances(ctx, ids, x.InDatabase)
		return err
	}); err != nil {
		return err
	}
	entry.Events = x.instanceEvents(id, nil, left.Rows[id])
	if len(left.Rows[id]) > 0 {
		entry.Items, entry.Kept = nil, ids
	}
	return settleEntry(ctx, e, entry)
}

func settleEntry(ctx context.Context, e *erasure, entry *entry) error {
	return e.transact(ctx, func(tx pgx.Tx) error { return e.settle(ctx, tx, entry) })
}

// purge asks the Forms server to purge the process instance, after terminating it if it is running.
func (x eraser) purge(ctx context.Context, e *erasure, in *forms.Instance) error {
	if in.Invocation == "" {
		return errNoInvocation
	}
	if !in.Ended() {
		if err := askServer(ctx, e, in, "terminateProcess", x.Server.TerminateProcess); err != nil {
			return err
		}
		if exists, err := waitForEnd(ctx, e, in.ID); err != nil || !exists {
			return err
		}
	}
	problem := askServer(ctx, e, in, "purgeProcessInstance", x.Server.PurgeProcessInstance)
	if left, err := e.Forms.Instance(ctx, in.ID); err != nil || left == nil { // deleted, even if the response was lost
		return err
	}
	if problem != nil {
		return problem
	}
	return errors.New("the Forms server reported that it was purged, but it still exists")
}

// waitForEnd waits until the process instance has ended or no longer exists, and reports whether it still exists.
func waitForEnd(ctx context.Context, e *erasure, id int64) (exists bool, err error) {
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

// request calls the Forms server, unless everything is on hold. It first records the request, so that a process
// instance that is missing after a crash counts as erased.
func askServer(
	ctx context.Context, e *erasure, in *forms.Instance, operation string,
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
