// Package external defines tasks of runs that work on another database, such as purges of AEM Forms. A package that
// works on the other database implements Work; package runs adds the tasks to the pipeline, and the executors in
// package tasks carry them out.
package external

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
)

// Task deletes items, such as process instances, each with everything that belongs to it.
type Task struct {
	// Name identifies the task in requests; Title and Description are for people.
	Name, Title, Description string
	// Disabled says that only dry runs that name the task execute it.
	Disabled bool
	// Basis describes the rule. A saved plan or a refusal with another basis does not apply to the task.
	Basis string
	// Work is nil if the task was removed after the run was requested.
	Work
}

type Work interface {
	Matches(ctx context.Context, now time.Time) (*Matches, error)
	// Preview calls found once for each group of items, with how many rows of which tables the task would delete.
	Preview(ctx context.Context, m *Matches, found func(ctx context.Context, rows map[string]int64) error) error
	// Delete deletes the items that still match, on behalf of a run. After each transaction it calls done with how many
	// rows the task has deleted in that run, including rows that another worker deleted. If done fails, Delete finishes
	// the items that it has begun and returns that error. Any other error describes the retained items.
	Delete(ctx context.Context, run string, m *Matches, done func(ctx context.Context, rows int64) error) error
	// Deleted returns how many rows the task is known to have deleted in a run.
	Deleted(ctx context.Context, run string) (rows int64, err error)
	// RecentlyDeleted returns how many items of the table this and other tasks of the source deleted in the given run
	// and in runs that began less than a period before it. It leaves out runs for which the guard on the table's share
	// was accepted.
	RecentlyDeleted(ctx context.Context, run string, period time.Duration) (items int64, err error)
	// Statements returns the statements that find and delete items, for people to read.
	Statements(ctx context.Context, now time.Time) ([]Statement, error)
}

// Matches are items that match a rule.
type Matches struct {
	// Table is the table of the items, and Total the number of its rows.
	Table string
	Total int64
	Items []Item
	// Rule is a text for people. The items' dates are before Cutoff.
	Rule   string
	Cutoff time.Time
	// Notes say what cannot be considered, and why.
	Notes []message.Message
}

// Item is deleted with everything that belongs to it.
type Item struct {
	ID   int64
	Date time.Time
}

type Statement struct {
	Table, Rule, SQL string
	// Deletes is false if the statement only finds items.
	Deletes bool
}

// Querier reads the service's own database.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Source lists the external tasks in pipeline order.
type Source func(ctx context.Context, db Querier) ([]Task, error)
