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
	// ErrStopped: the run must stop; the journal knows why.
	ErrStopped = errors.New("the run was stopped")
	// ErrLost: another worker may have the run, or the database cannot be reached.
	ErrLost = errors.New("the run was lost")
	// ErrHoldCreated: a hold was created since the task began; nothing of the batch was committed.
	ErrHoldCreated = errors.New("a hold was created meanwhile")
	// ErrPolicyChanged: the policy was changed, disabled or deleted since the run read it; nothing of the batch was
	// committed.
	ErrPolicyChanged = errors.New("the policy was changed meanwhile")
)

// Every function of the journal that returns an error fails if another worker may have the run.
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

// Counts are exact.
type Counts interface {
	// Count adds rows that a dry run counted, or that were deleted in another database.
	Count(ctx context.Context, d purge.Delta) error
	// Done is how many rows the current task has deleted and updated in this run.
	Done() int64
	DoneByTable(ctx context.Context) ([]purge.Space, error)
	// Emptied returns the quoted names of the tables that a task of the run, or any task if task is "", has deleted
	// rows from, those with the most rows first.
	Emptied(ctx context.Context, task string) ([]string, error)
}

type Tasks interface {
	// The task begins, or is resumed after another worker.
	TaskStarted(ctx context.Context, task string) error
	TaskFinished(ctx context.Context, o Outcome) error
}

// Progress is for people. It is called concurrently.
type Progress interface {
	// At reports the current table, and how many rows the task will probably have deleted at its end; negative if
	// unknown.
	At(object string, expected int64)
	Log(ctx context.Context, messages ...message.Message) error
}

// Activity is called concurrently.
type Activity interface {
	Scanning(scan purge.Scan)
	// Throttled reports why the next batch waits, or that it no longer does.
	Throttled(throttle purge.Throttle)
	// state is the SQLSTATE of the error.
	Retried(state string)
}

type Safety interface {
	Holds(ctx context.Context) (plan.Holds, error)
	// PolicyChange is which change since the run read the policy keeps the task from deleting; nil if none does.
	PolicyChange(ctx context.Context, t plan.Task) (*message.Message, error)
	// History is asked before the first task of the run, or for the current one; nil to judge nothing.
	History(ctx context.Context) (*guard.History, error)
}
