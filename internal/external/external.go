// Package external defines tasks of runs that work on another database, such as purges of AEM Forms. A product that
// knows the other database implements Work; package runs adds the tasks to the pipeline, and the executors in package
// tasks carry them out.
package external

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
)

// Deletes items, such as process instances, each with everything that belongs to it.
type Task struct {
	// Name is for requests; Title and Description are for people.
	Name, Title, Description string
	// Only a dry run that names the task does it.
	Disabled bool
	// Describes the rule. A saved plan or a refusal with another basis does not apply to the task.
	Basis string
	// nil if the task was removed since the run was requested.
	Work
}

type Work interface {
	// The items that match the rule at a reference time.
	Candidates(ctx context.Context, now time.Time) (*Candidates, error)
	// Preview calls found with how many rows of which tables the task would delete, some items at a time.
	Preview(ctx context.Context, c *Candidates, found func(ctx context.Context, rows map[string]int64) error) error
	// Delete deletes the items that still match, on behalf of a run. After each transaction it calls done with how many
	// rows the task has deleted in that run, including rows that another worker deleted. If done fails, Delete finishes
	// the items that it has begun and returns that error. Any other error describes the retained items.
	Delete(ctx context.Context, run string, c *Candidates, done func(ctx context.Context, rows int64) error) error
	// Rows that the task is known to have deleted in a run.
	Deleted(ctx context.Context, run string) (rows int64, err error)
	// RecentlyDeleted is how many items of the table this and other tasks of the source deleted in a run, and in runs that
	// began less than a period before it, without runs whose share of the table was accepted.
	RecentlyDeleted(ctx context.Context, run string, period time.Duration) (items int64, err error)
	// Those that find and delete items, for people.
	Statements(ctx context.Context, now time.Time) ([]Statement, error)
}

// Items that match a rule.
type Candidates struct {
	// Table has the items, and Total rows.
	Table string
	Total int64
	Items []Item
	// Rule is a text for people. Items have dates before Cutoff.
	Rule   string
	Cutoff time.Time
	// What cannot be considered, and why.
	Notes []message.Message
}

// Deleted with everything that belongs to it.
type Item struct {
	ID   int64
	Date time.Time
}

type Statement struct {
	Table, Rule, SQL string
	// false: the statement finds items.
	Deletes bool
}

// Of the service's own database.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

type Source struct {
	// In the order of a run.
	Tasks func(ctx context.Context, db Querier) ([]Task, error)
}
