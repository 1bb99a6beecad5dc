package userdata

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// ProcessManager is what the Forms server can do to its process instances.
type ProcessManager interface {
	// TerminateProcess terminates a running process instance, by its long-lived invocation id. It may end some time
	// later.
	TerminateProcess(ctx context.Context, invocation string) error
	// PurgeProcessInstance deletes everything that a process instance that has ended has in the database and in the
	// document storage.
	PurgeProcessInstance(ctx context.Context, invocation string) error
}

// Statuses of process instances that have ended.
const (
	complete   = 2
	terminated = 4
)

func ended(status int32) bool { return status == complete || status == terminated }

// terminateTimeout is how long a process instance may take to end, terminateEvery how often it is checked.
const (
	terminateTimeout = 5 * time.Minute
	terminateEvery   = time.Second
)

// errNoInvocation says that the Forms server cannot purge a process instance: without an id it might purge another one.
var errNoInvocation = errors.New(
	"it has no long-lived invocation id, by which the Forms server knows it; erase it with the database alone, while " +
		"the Forms server is switched off",
)

// errStillRuns says that a process instance did not end.
var errStillRuns = errors.New("it was told to terminate, and still ran five minutes later")

// readInstances reads those of some process instances that exist, by their ids; lock is what the statement ends with.
func readInstances(ctx context.Context, tx *transaction, ids []int64, lock string) (map[int64]*Instance, error) {
	there := map[int64]*Instance{}
	var in Instance
	err := tx.each(
		ctx,
		"SELECT id, COALESCE(long_lived_invocation_id, ''), COALESCE(status, 0) FROM tb_process_instance WHERE id IN "+
			"(@ids) ORDER BY id"+lock,
		args{"ids": ids},
		[]any{&in.ID, &in.Invocation, &in.Status},
		func() {
			found := in
			there[in.ID] = &found
		},
	)
	return there, err
}

// readInstance reads a process instance; nil if it does not exist.
func (f *Forms) readInstance(ctx context.Context, id int64) (in *Instance, err error) {
	err = f.snapshot(ctx, func(tx *transaction) error {
		there, err := readInstances(ctx, tx, []int64{id}, "")
		in = there[id]
		return err
	})
	return in, err
}

// byServer has the Forms server carry out an operation on a process instance, unless everything is on hold. The request
// is recorded first, so that an instance that is gone after a crash counts as erased.
func (e *erasure) byServer(
	ctx context.Context,
	in *Instance,
	operation string,
	call func(ctx context.Context, invocation string) error,
) error {
	return e.unlessHeld(ctx, func() error {
		if err := e.transact(
			ctx,
			func(tx pgx.Tx) error { return e.mark(ctx, tx, "PURGING", anInstance, in.ID) },
		); err != nil {
			return err
		}
		if err := call(ctx, in.Invocation); err != nil {
			// not wrapped: the database has not failed
			return errors.New("the Forms server, " + operation + ": " + err.Error())
		}
		return nil
	})
}

// purgeByServer has the Forms server erase a process instance.
func (e *erasure) purgeByServer(ctx context.Context, in *Instance) (err error) {
	if in.Invocation == "" {
		return errNoInvocation
	}
	if !ended(in.Status) {
		if err := e.byServer(ctx, in, "terminateProcess", e.Manager.TerminateProcess); err != nil {
			return err
		}
		limited, cancel := context.WithTimeoutCause(ctx, terminateTimeout, errStillRuns)
		defer cancel()
		for !ended(in.Status) {
			select {
			case <-time.After(terminateEvery):
			case <-limited.Done():
				return context.Cause(limited)
			}
			if in, err = e.Forms.readInstance(ctx, in.ID); err != nil || in == nil {
				return err
			}
		}
	}
	problem := e.byServer(ctx, in, "purgeProcessInstance", e.Manager.PurgeProcessInstance)
	if in, err = e.Forms.readInstance(ctx, in.ID); err != nil || in == nil { // gone, even if the answer was lost
		return err
	}
	if problem != nil {
		return problem
	}
	return errors.New("the Forms server says that it was purged, and it is still there")
}

// instanceByServer has the Forms server erase the one process instance of ids.
func (e *erasure) instanceByServer(ctx context.Context, ids []int64) error {
	id := ids[0]
	var state string
	if err := e.Record.QueryRow(ctx, "SELECT state FROM cleanupd.erasure_item WHERE erasure_id = $1::text::uuid AND "+
		"kind = $2 AND item_id = $3", e.id, anInstance, id).
		Scan(&state); err != nil {
		return err
	}
	in, err := e.Forms.readInstance(ctx, id)
	if err != nil {
		return err
	}
	if in != nil && state != "PURGING" && e.purge != nil {
		var passed []int64
		if err := e.Forms.snapshot(ctx, func(tx *transaction) (err error) {
			_, passed, err = e.stillDue(ctx, tx, ids, "")
			return err
		}); err != nil {
			return err
		}
		if len(passed) > 0 {
			return e.transact(ctx, func(tx pgx.Tx) error {
				return e.settle(ctx, tx, &entry{Kind: anInstance, Items: passed, Events: notDue(passed)})
			})
		}
	}
	if in != nil {
		if err := e.purgeByServer(ctx, in); err != nil {
			return err
		}
	} else if state == "PURGING" {
		in = &Instance{ID: id, Status: terminated}
	}
	left := &removal{}
	if in == nil {
		if err := e.Forms.snapshot(ctx, func(tx *transaction) (err error) {
			left, err = newRemover(tx, true).instances(ctx, ids, e.InDatabase)
			return err
		}); err != nil {
			return err
		}
	}
	return e.transact(ctx, func(tx pgx.Tx) error {
		done := &entry{Kind: anInstance, Items: ids, Events: e.erased(id, in, left.rows[id])}
		if len(left.rows[id]) > 0 {
			done.Items, done.Kept = nil, ids
		}
		return e.settle(ctx, tx, done)
	})
}
