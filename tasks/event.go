package tasks

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Tx is a transaction of the database that is cleaned.
type Tx = pgx.Tx

// State is where a task of a run stands.
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

// Level is the weight of a log line.
type Level string

// Levels.
const (
	Info    Level = "INFO"
	Warning Level = "WARNING"
	Error   Level = "ERROR"
)

// Journal is where a run's account goes. Every method fails when the run is no longer this worker's. Commit, Log,
// Proceed, Throttled and Retried are called by several at once.
type Journal interface {
	// TaskStarted tells that a task begins, or goes on after another worker.
	TaskStarted(ctx context.Context, task string) error
	// Commit adds a batch to the account of the task at work, in the batch's transaction, and commits it. It
	// fails with ErrStopped, having committed, when the run is to stop.
	Commit(ctx context.Context, tx Tx, d purge.Delta) error
	// Count adds rows that a dry run found.
	Count(ctx context.Context, d purge.Delta) error
	// Proceed fails as Commit does when the run is to stop, or no longer this worker's.
	Proceed(ctx context.Context) error
	// Emptied are the tables that the run has deleted rows from, by their quoted names, those with the most rows first.
	Emptied(ctx context.Context) ([]string, error)
	// At says which table is at hand, and how many rows the task is expected to have deleted at its end (negative:
	// unknown).
	At(object string, expected int64)
	// Way says how the rows of the table at hand are found.
	Way(way string)
	// Throttled says why the next batch waits; empty: it no longer does.
	Throttled(reason string)
	// Retried says for which SQLSTATE something is tried again.
	Retried(state string)
	// Log tells a person something.
	Log(ctx context.Context, level Level, messages ...string) error
	// TaskFinished tells that the task at work has ended.
	TaskFinished(ctx context.Context, state State, problem string) error
}
