package execute

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Tx is a transaction of the database that is cleaned.
type Tx = pgx.Tx

// State is the state of a task in a run.
type State string

// States of a task.
const (
	Pending   State = "PENDING"
	Running   State = "RUNNING"
	Succeeded State = "SUCCEEDED"
	Skipped   State = "SKIPPED"
	Failed    State = "FAILED"
	NotRun    State = "NOT_RUN"
	Cancelled State = "CANCELLED"
)

// Outcome is how a task ended.
type Outcome struct {
	State State
	// Problem is why it failed; empty: it did not.
	Problem string
	// Retained is how many obsolete rows it left.
	Left purge.Retained
	// Reason is that of a RefusedError, with its metadata; empty: the task was not refused.
	Reason   string
	Metadata map[string]string
	// Trips are the guards that refused it.
	Trips []Trip
	// Options are those that the task reads, as they are in force, and Cutoffs what its rules went by; nil: it was not
	// begun.
	Options map[string]string
	Cutoffs map[string]Cutoff
	// Planned is what a dry run has found; nil: it is none.
	Planned *Planned
	// Detail says in words what it left, or why it was not run; empty: neither.
	Detail string
}

// failure is the error of a task that failed.
func (o Outcome) failure(task string) error {
	text := fmt.Sprintf("task %s failed: %s", task, o.Problem)
	if o.Reason != "" {
		return &RefusedError{Reason: o.Reason, Metadata: o.Metadata, Message: text}
	}
	return errors.New(text)
}

// Journal keeps a run's account. Every method with an error fails when the run is no longer this worker's. Write, Log,
// Proceed, Throttled and Retried are called concurrently.
type Journal interface {
	// TaskStarted reports that a task begins, or is resumed after another worker.
	TaskStarted(ctx context.Context, task string) error
	// Ledger adds batches to that of the current task. A batch fails with ErrStopped, having been committed, when the
	// run must stop.
	purge.Ledger
	// Holds returns what stays. A batch that is written after another hold was created fails with ErrHeld, uncommitted.
	Holds(ctx context.Context) (plan.Holds, error)
	// Count adds rows that a dry run found.
	Count(ctx context.Context, d purge.Delta) error
	// Proceed fails as a batch does when the run must stop, or is no longer this worker's.
	Proceed(ctx context.Context) error
	// Emptied returns the quoted names of the tables that a task of the run, or any (if it is empty), has deleted rows
	// from, those with the most rows first.
	Emptied(ctx context.Context, task string) ([]string, error)
	// Gone returns how many rows of relations the current task has deleted and updated in this run.
	Gone(ctx context.Context) ([]purge.Space, error)
	// History returns what guards compare with, before the run's first task or for the current one.
	History(ctx context.Context) (*History, error)
	// Record returns a statement that records deliveries which stay on mid-sourcing servers. It is part of the
	// statement that deletes them here. The columns of query are account (empty: none), there and here (the ids), and
	// label.
	Record(query string) string
	// Leftovers returns the recorded deliveries of an account, by their ids there, but for those that are held.
	Leftovers(ctx context.Context, account string) ([]int64, error)
	// Forget removes recorded deliveries of an account, by their ids there: they are gone there, too.
	Forget(ctx context.Context, account string, ids []int64) error
	// At reports the current table, and how many rows the task is expected to have deleted at its end (negative:
	// unknown).
	At(object string, expected int64)
	// ScanMethod reports how the rows of the current table are found.
	ScanMethod(way string)
	// Throttled reports why the next batch waits, or that it no longer does.
	Throttled(throttle purge.Throttle)
	// Retried reports the SQLSTATE that causes a retry.
	Retried(state string)
	// Log writes messages for people.
	Log(ctx context.Context, level severity.Level, messages ...string) error
	// Done returns how many rows the current task has deleted and updated so far, in this run.
	Done() int64
	// TaskFinished reports that the current task has ended.
	TaskFinished(ctx context.Context, o Outcome) error
}
