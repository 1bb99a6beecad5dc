package erasure

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/userdata/claim"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/record"
	"github.com/cleanupd/cleanupd/userdata/removal"
	"github.com/cleanupd/cleanupd/userdata/report"
)

// By their long-lived invocation ids.
type ProcessManager interface {
	// A running process instance may end some time later.
	TerminateProcess(ctx context.Context, invocation string) error
	// Deletes everything that an ended process instance has in the database and in the document storage.
	PurgeProcessInstance(ctx context.Context, invocation string) error
}

const (
	// Until a process instance has ended.
	terminateTimeout = 5 * time.Minute
	pollInterval     = time.Second
)

// Without an id, the Forms server might purge another process instance.
var ErrNoInvocation = errors.New(
	"it has no long-lived invocation id, by which the Forms server identifies it; erase it with the database alone, " +
		"while the Forms server is switched off",
)

var errStillRunning = errors.New("it was still running five minutes after it was to terminate")

// ids has one process instance.
func (x Eraser) eraseByServer(ctx context.Context, e *claim.Erasure, ids []int64) error {
	id := ids[0]
	purging, err := e.IsPurging(ctx, e.Record, id)
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
			_, others, err = e.Purge.StillMatching(ctx, tx, ids, "")
			return err
		}); err != nil {
			return err
		}
		if len(others) > 0 {
			return settle(ctx, e, &report.Entry{
				Kind:   record.KindInstance,
				Items:  others,
				Events: notMatchingEvents(others),
			})
		}
	}
	if err := x.purge(ctx, e, in); err != nil {
		return err
	}
	return settle(ctx, e, &report.Entry{Kind: record.KindInstance, Items: ids, Events: x.Events(id, in, nil)})
}

// A missing process instance is recorded as erased if the Forms server was asked to purge it, and as failed if other
// rows of it are left, which the Forms server does not purge.
func (x Eraser) recordMissing(ctx context.Context, e *claim.Erasure, id int64, purging bool) error {
	ids := []int64{id}
	entry := &report.Entry{Kind: record.KindInstance, Items: ids}
	if purging {
		in := &forms.Instance{ID: id, Status: forms.Terminated}
		entry.Events = x.Events(id, in, nil)
		return settle(ctx, e, entry)
	}
	var left *removal.Removal
	if err := e.Forms.Snapshot(ctx, func(tx *forms.Transaction) (err error) {
		left, err = removal.New(tx, true).Instances(ctx, ids, x.Storage.InDatabase)
		return err
	}); err != nil {
		return err
	}
	entry.Events = x.Events(id, nil, left.Rows[id])
	if len(left.Rows[id]) > 0 {
		entry.Items, entry.Kept = nil, ids
	}
	return settle(ctx, e, entry)
}

func settle(ctx context.Context, e *claim.Erasure, entry *report.Entry) error {
	return e.Transact(ctx, func(tx pgx.Tx) error { return e.Settle(ctx, tx, entry) })
}

// purge terminates the process instance first, unless it has ended.
func (x Eraser) purge(ctx context.Context, e *claim.Erasure, in *forms.Instance) error {
	if in.Invocation == "" {
		return ErrNoInvocation
	}
	if !in.Ended() {
		if err := request(ctx, e, in, "terminateProcess", x.Server.TerminateProcess); err != nil {
			return err
		}
		if exists, err := waitForEnd(ctx, e, in.ID); err != nil || !exists {
			return err
		}
	}
	problem := request(ctx, e, in, "purgeProcessInstance", x.Server.PurgeProcessInstance)
	if left, err := e.Forms.Instance(ctx, in.ID); err != nil || left == nil { // deleted, even if the response was lost
		return err
	}
	if problem != nil {
		return problem
	}
	return errors.New("the Forms server reported that it was purged, but it still exists")
}

// exists: the process instance still does.
func waitForEnd(ctx context.Context, e *claim.Erasure, id int64) (exists bool, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, terminateTimeout, errStillRunning)
	defer cancel()
	for {
		select {
		case <-time.After(pollInterval):
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

// Unless everything is on hold. The request is recorded before, so that a process instance that is gone after a crash
// counts as erased.
func request(
	ctx context.Context, e *claim.Erasure, in *forms.Instance, operation string,
	call func(ctx context.Context, invocation string) error,
) error {
	return e.UnlessHeld(ctx, func() error {
		if err := e.Transact(ctx, func(tx pgx.Tx) error { return e.MarkPurging(ctx, tx, in.ID) }); err != nil {
			return err
		}
		if err := call(ctx, in.Invocation); err != nil {
			// not wrapped: the database has not failed
			return errors.New("the Forms server, " + operation + ": " + err.Error())
		}
		return nil
	})
}
