package tasks

import (
	"context"
	"time"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Task is one entry of the pipeline, a value.
type Task struct {
	// Name is how requests name it.
	Name string
	// Title is its name for a person.
	Title string
	// Description says what it deletes.
	Description string
	// Set is rows that are worked on together with all that depends on them; nil: the steps have nothing in common.
	Set *Set
	// Prepare is called when the set is known and not empty, and may narrow it; nil: nothing to prepare. later fails
	// the task when the steps are done, err at once.
	Prepare func(ctx context.Context, e *Env) (later, err error)
	// Steps are carried out in their order, those that depend on the set first.
	Steps []Step
	// Needs are the rights that it needs beside those of its steps.
	Needs []Need
	// Options are the options it reads beside those of its steps.
	Options []campaign.Option
	// After is called when the steps have been carried out and no row had to be left, in one transaction that it shares
	// with the run's account, and not in a dry run; nil: nothing more to do.
	After func(ctx context.Context, tx Tx, e *Env) error
	// Do is what a task does beyond its steps, after them; nil for most. It says whether there was anything to
	// work on.
	Do func(ctx context.Context, e *Env) (bool, error)
}

// Need is rights on a table, if it is there: SELECT, INSERT, UPDATE, DELETE.
type Need struct {
	Table  string
	Rights []string
}

// Set is the rows of a parent table that a task begins with. Which they are is settled once, at its beginning, so that
// a parent never goes whose dependents were not looked for; that they still match is asked again by every
// statement.
type Set struct {
	// Parent is the table, Key its id column.
	Parent, Key string
	Rules       []Rule
}

// OptionNames lists the names of the options that the task reads.
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

// Step is a statement on a table, or on each of some alike.
type Step struct {
	// On selects the tables.
	On Selector
	// Link is the column by which rows depend on the task's set: only such are meant; empty: any row.
	Link string
	// Via is the SQL of how rows depend on the task's set by another way than a link, and settles the condition's parents;
	// nil: they do not.
	Via func(ctx context.Context, c *condition) (string, error)
	// OfSet says that the rows are those of the set itself.
	OfSet bool
	// Rules say which rows: those for which any of them holds, all when there are none. A rule that can not be asked of
	// a table (a missing column, parent or usable option) falls out alone and is reported.
	Rules []Rule
	// Update is what is assigned to the rows; nil: they are deleted. What can not be assigned (a missing column) is
	// left out.
	Update []Assignment
	// Limit is the most rows one statement may touch; 0: 5,000.
	Limit int
	// Twin is a table whose rows go with those of the same id; nil: none.
	Twin *Twin
	// Also is a statement beside each batch's; nil: none.
	Also func(ctx context.Context, c *condition) (*alsoSQL, error)
}

// dependent tells whether the rows are of the task's set, or depend on it.
func (s Step) dependent() bool { return s.OfSet || s.Link != "" || s.Via != nil }

// Twin is a table that shares its ids, in the column Key, with another one, which has them in ID.
type Twin struct{ Table, Key, ID string }

// Assignment is a column and the SQL of its new value, in the terms of Rule.Where.
type Assignment struct{ Column, Value string }

// Rule is a condition on a row. Its parts are all needed.
type Rule struct {
	// Where is SQL over the row, whose alias is r. It may use @now, the run's clock; @cutoff, @now minus Option and
	// Extra; @last_cleanup, the moment of that option, or NULL; and other tables as {NmsDelivery} d, always with an
	// alias. The columns it names must be there, except those that COALESCE has another choice for: a column is a word
	// of the application's form, a small prefix and a capital (iStatus, tsLog).
	Where string
	// Option is the delay behind @cutoff.
	Option campaign.Option
	// Extra is added to the delay.
	Extra time.Duration
	// Orphan asks for a link to a row that is gone; nil: not asked.
	Orphan *Link
}

// Link is a column that holds the id of a row of another table; 0 means no link.
type Link struct {
	Column string
	// Parent is the table asked, Key its id column.
	Parent, Key string
	// EmptyAfter names the task whose success in this run makes an empty parent a true answer; empty: an empty parent
	// proves nothing.
	EmptyAfter string
}

// defaultLimit is the most rows a statement touches where the rule gives no number.
const defaultLimit = 5_000
