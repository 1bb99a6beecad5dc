package pipeline

import (
	"context"
	"errors"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/midsourcing"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Errors about the run rather than the current task.
var (
	// ErrStopped reports that the run must stop. The journal knows why.
	ErrStopped = errors.New("the run was stopped")
	// ErrLost reports that another worker may have the run, or that the database cannot be reached.
	ErrLost = errors.New("the run was lost")
	// ErrHoldCreated reports that a hold was created since the task began: nothing of the batch was committed.
	ErrHoldCreated = errors.New("a hold was created meanwhile")
	// ErrPolicyChanged reports that the policy was changed, disabled or deleted since the run read it: nothing of the
	// batch was committed.
	ErrPolicyChanged = errors.New("the policy was changed meanwhile")
)

// Journal is where a run is reported. Every function with an error fails if another worker may have the run.
type Journal struct {
	// Ledger writes the counts of a batch in its transaction. If the run must stop, the batch is committed and fails
	// with ErrStopped; if a hold was created since the task began, it is not committed and fails with ErrHoldCreated;
	// if its policy was changed, with ErrPolicyChanged.
	Ledger   purge.Ledger
	Counts   Counts
	Tasks    Tasks
	Progress Progress
	Activity Activity
	Safety   Safety
	Register midsourcing.Register
	// Proceed fails as a batch does if the run must stop. It is called concurrently.
	Proceed func(ctx context.Context) error
}

// Counts has the exact counts of a run.
type Counts interface {
	// Count adds rows that were counted by a dry run, or deleted in another database.
	Count(ctx context.Context, d purge.Delta) error
	// Done returns how many rows the current task has deleted and updated so far in this run.
	Done() int64
	// DoneByTable returns the same for each relation.
	DoneByTable(ctx context.Context) ([]purge.Space, error)
	// Emptied returns the quoted names of the tables that a task of the run, or any task if it is "", has deleted rows
	// from, the ones with the most rows first.
	Emptied(ctx context.Context, task string) ([]string, error)
}

// Tasks receives the tasks of a run.
type Tasks interface {
	// TaskStarted reports that a task begins, or is resumed after another worker.
	TaskStarted(ctx context.Context, task string) error
	// TaskFinished reports that the current task has ended.
	TaskFinished(ctx context.Context, o Outcome) error
}

// Progress shows people what a task does. It is called concurrently.
type Progress interface {
	// At reports the current table, and how many rows the task is expected to have deleted at its end; negative if that
	// is not known.
	At(object string, expected int64)
	// Log writes messages.
	Log(ctx context.Context, messages ...message.Message) error
}

// Activity receives what the engine does. It is called concurrently.
type Activity interface {
	// Scanning reports how the rows of the current table are found.
	Scanning(scan purge.Scan)
	// Throttled reports why the next batch waits, or that it no longer does.
	Throttled(throttle purge.Throttle)
	// Retried reports the SQLSTATE that causes a retry.
	Retried(state string)
}

// Safety has what protects rows.
type Safety interface {
	// Holds returns the holds.
	Holds(ctx context.Context) (plan.Holds, error)
	// PolicyChange returns which change of its policy since the run read it keeps a task from deleting; nil if none does.
	PolicyChange(ctx context.Context, t plan.Task) (*message.Message, error)
	// History returns what guards compare with, before the first task of the run or for the current one; nil to judge
	// nothing.
	History(ctx context.Context) (*guard.History, error)
}
