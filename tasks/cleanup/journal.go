package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// These errors end an attempt at a task, but are not failures of the task.
var (
	// ErrStopped means that the run must stop; the journal has the reason.
	ErrStopped = errors.New("the run was stopped")
	// ErrLost means that another worker may have the run, or that the database cannot be reached.
	ErrLost = errors.New("the run was lost")
	// ErrHoldCreated means that a hold was created since the task began; nothing of the batch was committed.
	ErrHoldCreated = errors.New("a hold was created meanwhile")
	// ErrPolicyChanged means that the policy was changed, disabled or deleted since the run read it; nothing of the
	// batch was committed.
	ErrPolicyChanged = errors.New("the policy was changed meanwhile")
)

// A Journal records what a run does, and controls it. Every method that returns an error fails if another worker may
// have the run. Batches may call Write, and the methods from At to Proceed, concurrently.
type Journal interface {
	// TaskStarted reports that the task begins, or is resumed after another worker.
	TaskStarted(ctx context.Context, task string) error
	// Holds and PolicyChange are read by each attempt at a task. PolicyChange returns the change that keeps the task from
	// deleting, if the policy was changed since the run read it; nil if there is none.
	Holds(ctx context.Context) (rules.Holds, error)
	PolicyChange(ctx context.Context, t rules.Task) (*message.Message, error)
	// History returns the guards' history; nil turns them off. It is called before the first task of the run, and for each
	// task.
	History(ctx context.Context) (*guard.History, error)
	// Write counts a batch in its transaction. If the run must stop, the batch is committed and then fails with
	// ErrStopped, or with ErrLost if the run will go on. If a hold was created since the task began, or its policy was
	// changed, the batch is not committed and fails with ErrHoldCreated or ErrPolicyChanged.
	purge.Ledger
	// Count adds rows that a dry run counted, or that were deleted in another database.
	Count(ctx context.Context, d purge.Delta) error
	TaskFinished(ctx context.Context, o Outcome) error

	// At reports what the task is working on, and how many rows it is expected to delete and update in total; negative if
	// unknown.
	At(object string, expected int64)
	Log(ctx context.Context, messages ...message.Message) error
	Scanning(scan purge.Scan)
	// Throttled reports why the next batch waits, or that it no longer does.
	Throttled(throttle purge.Throttle)
	// Retried reports that a batch is repeated after an error with this SQLSTATE.
	Retried(state string)
	// Proceed fails, as a batch would, if the run must stop.
	Proceed(ctx context.Context) error

	// Done is how many rows the current task has deleted and updated in this run.
	Done() int64
	DoneByTable(ctx context.Context) ([]purge.Space, error)
	// Emptied returns the quoted names of the tables from which a task of the run has deleted rows, or any task if
	// task is "". Tables with the most rows come first.
	Emptied(ctx context.Context, task string) ([]string, error)

	// RecordRemote returns a statement that becomes part of the one that deletes mid-sourced deliveries only in the
	// main database. The columns of query are account ("" without one), there and here (the ids on the server and in
	// the main database), and label.
	RecordRemote(query sqlexpr.Expr) sqlexpr.Expr
	// RemoteIDs returns the ids that the recorded deliveries of an account have on its server, without those on hold.
	RemoteIDs(ctx context.Context, account string) ([]int64, error)
	// ForgetRemote removes recorded deliveries, given by their ids on the server.
	ForgetRemote(ctx context.Context, account string, ids []int64) error
}

// Discard is the journal of a simulation, which has these holds. It reports nothing, and guards are off.
type Discard struct{ Held rules.Holds }

var _ Journal = Discard{}

func (Discard) TaskStarted(context.Context, string) error { return nil }

func (d Discard) Holds(context.Context) (rules.Holds, error) { return d.Held, nil }

func (Discard) PolicyChange(context.Context, rules.Task) (*message.Message, error) { return nil, nil }

func (Discard) History(context.Context) (*guard.History, error) { return nil, nil }

func (Discard) Write(context.Context, *pgx.Batch, purge.Delta) (func(error) error, error) {
	return nil, errors.New("a simulation deletes nothing")
}

func (Discard) Count(context.Context, purge.Delta) error { return nil }

func (Discard) TaskFinished(context.Context, Outcome) error { return nil }

func (Discard) At(string, int64) {}

func (Discard) Log(context.Context, ...message.Message) error { return nil }

func (Discard) Scanning(purge.Scan) {}

func (Discard) Throttled(purge.Throttle) {}

func (Discard) Retried(string) {}

func (Discard) Proceed(context.Context) error { return nil }

func (Discard) Done() int64 { return 0 }

func (Discard) DoneByTable(context.Context) ([]purge.Space, error) { return nil, nil }

func (Discard) Emptied(context.Context, string) ([]string, error) { return nil, nil }

func (Discard) RecordRemote(query sqlexpr.Expr) sqlexpr.Expr { return query }

func (Discard) RemoteIDs(context.Context, string) ([]int64, error) { return nil, nil }

func (Discard) ForgetRemote(context.Context, string, []int64) error { return nil }

// silent is the journal of a dry run whose results are shown with those of another one.
type silent struct{ Journal }

func (s silent) Count(ctx context.Context, _ purge.Delta) error { return s.Proceed(ctx) }

func (silent) Done() int64 { return 0 }

func (silent) Log(context.Context, ...message.Message) error { return nil }

func (silent) History(context.Context) (*guard.History, error) { return nil, nil }

// recorder logs each warning, for example about a lock, once per task.
type recorder struct {
	Journal
	ctx context.Context // the context of the run

	mu     sync.Mutex
	warned map[string]bool
}

var _ purge.Recorder = (*recorder)(nil)

func (r *recorder) startTask() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.warned)
}

func (r *recorder) Warn(m message.Message) {
	r.mu.Lock()
	known := r.warned[m.Text]
	r.warned[m.Text] = true
	r.mu.Unlock()
	if !known {
		_ = r.Log(r.ctx, m)
	}
}

type State string

const (
	Pending   State = "PENDING"
	Running   State = "RUNNING"
	Succeeded State = "SUCCEEDED"
	Skipped   State = "SKIPPED"
	Failed    State = "FAILED"
	NotRun    State = "NOT_RUN"
	Cancelled State = "CANCELLED"
)

type Outcome struct {
	State State
	// Problem is why the task failed; "" if it did not.
	Problem  string
	Retained purge.Retained
	// Details are about retained rows, or why the task was not run.
	Details []message.Message
	// Reason and Metadata are those of a failure.Refusal; empty if the task was not refused. Trips are the guards that
	// refused it.
	Reason   string
	Metadata map[string]string
	Trips    []guard.Trip
	// Options are the effective options that the task reads, and Cutoffs the times that its rules compare with; nil if
	// the task did not begin.
	Options map[string]string
	Cutoffs map[string]guard.CutoffRecord
	// Preview is what a dry run found; nil in a run that deletes.
	Preview *SavedTask
	// Existing is how many rows a restore left in the trash, since rows with their keys exist again.
	Existing int64
}

func (o *Outcome) fail(problem string, err error) {
	o.State, o.Problem = Failed, problem
	if refusal := (*failure.Refusal)(nil); errors.As(err, &refusal) {
		o.Reason, o.Metadata = refusal.Reason, refusal.Metadata
	}
	if tripped := (*guard.TrippedError)(nil); errors.As(err, &tripped) {
		o.Trips = tripped.Trips
	}
}

func (o *Outcome) err(task string) error {
	text := fmt.Sprintf("task %s failed: %s", task, o.Problem)
	if o.Reason != "" {
		return &failure.Refusal{Reason: o.Reason, Metadata: o.Metadata, Message: text}
	}
	return errors.New(text)
}

func retainedDetails(r purge.Retained) (details []message.Message) {
	add := func(n int64, m message.Message) {
		if n > 0 {
			details = append(details, m)
		}
	}
	add(r.Failed, message.ResultFailed.With("rows", r.Failed))
	add(r.Locked, message.ResultLocked.With("rows", r.Locked))
	add(r.Suppressed, message.ResultSuppressed.With("rows", r.Suppressed))
	add(r.Dependent, message.ResultDependent.With("rows", r.Dependent))
	add(r.OnHold, message.ResultOnHold.With("rows", r.OnHold))
	add(r.Tables, message.ResultTables.With("tables", r.Tables))
	return details
}

func (t *executedTask) report(ctx context.Context, table string, r purge.Result) purge.Retained {
	if r.Locked > 0 {
		t.Log(ctx, message.RowsLocked.With("table", table, "rows", r.Locked))
	}
	if r.TableLocked {
		t.Log(ctx, message.TableLocked.With("table", table))
	}
	if r.Suppressed > 0 {
		t.Log(ctx, message.RowsSuppressed.With("table", table, "rows", r.Suppressed))
	}
	for _, a := range r.Affected {
		t.Log(ctx,
			message.RowsCascaded.With("table", table, "child", a.Root, "deleted", a.Deleted, "updated", a.Updated))
	}
	if r.Failed > 0 {
		t.Log(ctx, message.RowsFailed.With("table", table, "rows", r.Failed))
	}
	if r.GaveUp {
		t.giveUp(ctx, table)
	}
	if r.Dropped {
		t.dropped = append(t.dropped, table)
		t.Log(ctx, message.PartitionDropped.With("table", table))
	}
	if t.detached = t.detached || r.Detached; r.Detached {
		t.Log(ctx, message.PartitionDetached.With("table", table))
	}
	if r.Dropped || r.Detached { // so that the tasks that follow do not find the partition
		t.run.Database.Forget()
	}
	t.RowError = cmp.Or(t.RowError, r.FirstError)
	retained := r.Retained
	if r.NotDetached != "" {
		t.Log(ctx, message.PartitionNotDetached.With("table", table, "problem", r.NotDetached))
		retained.Tables++
	}
	if r.TableLocked || r.GaveUp {
		retained.Tables++
	}
	t.Retained = t.Retained.Plus(retained)
	return retained
}

// giveUp records that too many rows of a table failed, so that the task fails at its end.
func (t *executedTask) giveUp(ctx context.Context, table string) {
	m := message.TooManyRowsFailed.With("table", table, "rows", purge.MaxFailedRows)
	t.Log(ctx, m)
	t.Unfinished = errors.Join(t.Unfinished, errors.New(m.Text))
}
