// Package outside says what a task of a run is that works on another database. Package execute has it done in its place
// among the others; the product that knows the other database does it.
package outside

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Task is a task on another database. It deletes items, such as process instances, each with all that belongs to it.
type Task struct {
	// Name is its name in requests, which begins with the prefix of its source; Title and Description are for people.
	Name, Title, Description string
	// Disabled says that it is only foreseen, by a dry run that names it.
	Disabled bool
	// Basis is what it goes by, in words. Another one is another task to a plan, and to a guard that is latched.
	Basis string
	// Work does it; nil: it has been removed since the run was requested.
	Work
}

// Work is how a task is done.
type Work interface {
	// Due finds what is due at a moment, and changes nothing.
	Due(ctx context.Context, now time.Time) (*Due, error)
	// Foresee calls found with how many rows of which tables would go with what is due, some of it at a time, and
	// changes nothing.
	Foresee(ctx context.Context, due *Due, found func(ctx context.Context, rows map[string]int64) error) error
	// Purge deletes what is due, if it still is, on behalf of a run. After each transaction it calls done with how many
	// rows the task has deleted in that run, another worker's included. If done fails it brings to an end what it has
	// begun, and returns that error. Any other one says what stays.
	Purge(ctx context.Context, run string, due *Due, done func(ctx context.Context, rows int64) error) error
	// Purged returns how many rows the task has deleted in a run, as far as is known.
	Purged(ctx context.Context, run string) (rows int64, err error)
	// Lately returns how many items of the table were deleted by a run, and by those that began less than a period
	// before it, by this or another task of the source, without those whose share of the table was accepted.
	Lately(ctx context.Context, run string, period time.Duration) (items int64, err error)
	// Statements are those by which it finds and deletes items, for people.
	Statements(ctx context.Context, now time.Time) ([]Statement, error)
}

// Due is what is due at a moment.
type Due struct {
	// Table is that of the items, of which it has Total, and Items are those that are due, by their ids.
	Table string
	Total int64
	Items []Item
	// Rule says in words which they are: those with a date before Cutoff, among others.
	Rule   string
	Cutoff time.Time
	// Notes say what is left aside, and why.
	Notes []string
}

// Item is something that goes with all that belongs to it.
type Item struct {
	ID   int64
	Date time.Time
}

// Statement is one that a task makes.
type Statement struct {
	Table, Rule, SQL string
	// Deletes says that it deletes; otherwise it finds.
	Deletes bool
}

// Querier is a pool or a transaction of the database that is cleaned.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Source is where tasks on another database come from.
type Source struct {
	// Prefix begins the names of its tasks, and no others.
	Prefix string
	// Tasks returns those that there are, in the order of a run.
	Tasks func(ctx context.Context, db Querier) ([]Task, error)
}
