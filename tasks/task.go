package tasks

import (
	"context"
	"time"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Task is one entry of the pipeline, a value.
type Task struct {
	// Name is its name in requests.
	Name string
	// Title is its name for people.
	Title string
	// Description says what it deletes.
	Description string
	// Set is the parent rows that are deleted together with everything that depends on them; nil: the steps are independent.
	Set *Set
	// Prepare is called when the set is known, and may narrow it; nil: nothing to prepare. later fails the task when the
	// steps are done, err at once.
	Prepare func(ctx context.Context, e *Env) (later, err error)
	// Requires are the names of earlier tasks without whose success it is not run, unless they were not to be run or there was
	// nothing for them to work on.
	Requires []string
	// Steps are executed in order, those that depend on the set first.
	Steps []Step
	// Needs are the rights that it needs in addition to those of its steps.
	Needs []Need
	// Options are the options that it reads in addition to those of its steps.
	Options []campaign.Option
	// After is called in one transaction with the run's account when the steps are done and no row had to be left, but not in
	// a dry run; nil: nothing more to do.
	After func(ctx context.Context, tx Tx, e *Env) error
	// Do is what a task does beyond its steps, after them; nil for most. It returns whether there was anything to
	// work on.
	Do func(ctx context.Context, e *Env) (bool, error)
}

// Need is rights on a table, if it is there: SELECT, INSERT, UPDATE, DELETE.
type Need struct {
	Table  string
	Rights []string
}

// Set is the rows of a parent table that a task begins with. They are chosen once, at its beginning, so that no parent is
// deleted whose dependents were not looked for; every statement checks again that they still match.
type Set struct {
	// Parent is the table, Key its id column.
	Parent, Key string
	Rules       []Rule
}

// OptionNames returns the names of the options that the task reads.
func (t Task) OptionNames() []string {
	var names []string
	seen := map[string]bool{}
	add := func(o campaign.Option) {
		if o.Name != "" && !seen[o.Name] {
			seen[o.Name] = true
			names = append(names, o.Name)
		}
	}
	if t.Set != nil {
		for _, r := range t.Set.Rules {
			add(r.Option)
		}
	}
	for _, s := range t.Steps {
		for _, r := range s.Rules {
			add(r.Option)
		}
	}
	for _, o := range t.Options {
		add(o)
	}
	return names
}

// Step is a statement on a table, or on each of several similar ones.
type Step struct {
	// On selects the tables.
	On Selector
	// Link is the column by which rows depend on the task's set; the step is for such rows only. Empty: for any row.
	Link string
	// Message is the column with the id of a message's log, by whose delivery rows depend on the task's set; empty: they do not.
	Message string
	// OfSet says that the rows are those of the set itself.
	OfSet bool
	// Rules say which rows: those that match any of them, or all if there are none. A rule that is not applicable to
	// a table (for want of a column, a parent or a usable option) is reported and ignored.
	Rules []Rule
	// Unless returns the SQL of rows that stay although a rule names them, empty for none; nil: there are none.
	Unless func(ctx context.Context, c *condition) (string, error)
	// Update is what is assigned to the rows; nil: they are deleted. Assignments to missing columns are omitted.
	Update []Assignment
	// Limit is the most rows one statement may touch; 0: 5,000.
	Limit int
	// Twin is a table whose rows are deleted with those of the same id; nil: none.
	Twin *Twin
	// ByKey is the integer column to go by where rows are on another server; empty: the table's key.
	ByKey string
	// Also returns a statement that accompanies each batch's, unless it is refused; nil: none.
	Also func(ctx context.Context, c *condition) (*alsoSQL, error)
}

// dependent reports whether the rows are of the task's set, or depend on it.
func (s Step) dependent() bool { return s.OfSet || s.Link != "" || s.Message != "" }

// Twin is a table that shares its ids, in the column Key, with another table, which has them in ID.
type Twin struct{ Table, Key, ID string }

// Assignment is a column and the SQL of its new value, in the terms of Rule.Where.
type Assignment struct{ Column, Value string }

// Rule is a condition on a row. All of its parts must hold.
type Rule struct {
	// Where is SQL over the row, whose alias is r. It may use @now, the run's clock; @cutoff, @now minus Option and
	// Extra; @last_cleanup, the moment of that option, or NULL; @cancelled, the id of the message that a delivery was
	// cancelled, or NULL; and other tables as {NmsDelivery} d, always with an
	// alias. The columns that it names must exist, except in a COALESCE with another choice. A column is a word of the
	// application's form: a lower-case prefix and a capital (iStatus, tsLog).
	Where string
	// Option is the delay behind @cutoff.
	Option campaign.Option
	// Extra is added to the delay.
	Extra time.Duration
	// Orphan is a link that must lead to a row that is gone; nil: none.
	Orphan *Link
}

// Link is a column that holds the id of a row of another table; 0 means no link.
type Link struct {
	Column string
	// Parent is the table that it leads to, Key its id column.
	Parent, Key string
	// EmptyAfter names the task whose success in this run makes an empty parent credible; empty: an empty parent
	// proves nothing.
	EmptyAfter string
}

// defaultLimit is the most rows that a statement touches if the step has no limit.
const defaultLimit = 5_000
