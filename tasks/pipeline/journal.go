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

// These errors are about the run rather than the current task.
var (
	// ErrStopped means that the run must stop; the journal knows why.
	ErrStopped = errors.New("the run was stopped")
	// ErrLost means that another worker may have the run, or that the database cannot be reached.
	ErrLost = errors.New("the run was lost")
	// ErrHoldCreated means that a hold was created since the task began; nothing of the batch was committed.
	ErrHoldCreated = errors.New("a hold was created meanwhile")
	// ErrPolicyChanged means that the policy was changed, disabled or deleted since the run read it; nothing of the
	// batch was committed.
	ErrPolicyChanged = errors.New("the policy was changed meanwhile")
)

// Journal is where a run reports what it does, and by which it is controlled. Every function that returns an error
// fails if another worker may have the run.
type Journal struct {
	// Ledger writes the counts of a batch in its transaction. If the run must stop, the batch is committed and then
	// fails with ErrStopped. If a hold was created since the task began, or its policy was changed, the batch is not
	// committed and fails with ErrHoldCreated or ErrPolicyChanged.
	Ledger   purge.Ledger
	Counts   Counts
	Tasks    Tasks
	Progress Progress
	Activity Activity
	Safety   Safety
	Register midsourcing.Register
	// Proceed fails with the error of a batch if the run must stop. It is called concurrently.
	Proceed func(ctx context.Context) error
}

// Counts are exact.
type Counts interface {
	// Count adds rows that a dry run counted, or that were deleted in another database.
	Count(ctx context.Context, d purge.Delta) error
	// Done is how many rows the current task has deleted and updated in this run.
	Done() int64
	DoneByTable(ctx context.Context) ([]purge.Space, error)
	// Emptied returns the quoted names of the tables from which a task of the run has deleted rows, or any task if
	// task is "". Tables with the most rows come first.
	Emptied(ctx context.Context, task string) ([]string, error)
}

type Tasks interface {
	// TaskStarted reports that the task begins, or is resumed after another worker.
	TaskStarted(ctx context.Context, task string) error
	TaskFinished(ctx context.Context, o Outcome) error
}

// Progress is what users see of a run. It is called concurrently.
type Progress interface {
	// At reports the current table, and how many rows the task will probably have deleted at its end; a negative
	// number stands for unknown.
	At(object string, expected int64)
	Log(ctx context.Context, messages ...message.Message) error
}

// Activity is called concurrently.
type Activity interface {
	Scanning(scan purge.Scan)
	// Throttled reports why the next batch waits, or that it no longer does.
	Throttled(throttle purge.Throttle)
	// Retried reports that a batch is repeated after an error with this SQLSTATE.
	Retried(state string)
}

type Safety interface {
	Holds(ctx context.Context) (plan.Holds, error)
	// PolicyChange returns which change, made since the run read the policy, keeps the task from deleting; nil if
	// there is none.
	PolicyChange(ctx context.Context, t plan.Task) (*message.Message, error)
	// History returns what guards compare with; nil if they are not to judge. It is called before the first task of
	// the run, and for each task.
	History(ctx context.Context) (*guard.History, error)
}
