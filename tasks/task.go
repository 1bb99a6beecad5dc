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
	// Steps are carried out in their order.
	Steps []Step
	// Options are the options it reads beside those of its steps.
	Options []campaign.Option
	// After is called when the steps have been carried out, in one transaction that it shares with the run's
	// account, and not in a dry run; nil: nothing more to do.
	After func(ctx context.Context, tx Tx, e *Env) error
	// Do is what a task does that is more than steps; nil for all others.
	Do func(ctx context.Context, e *Env) error
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
	// Rules say which rows go: those for which any of them holds. A rule that can not be asked of a table (a
	// missing column, parent or usable option) falls out alone and is reported.
	Rules []Rule
	// Limit is the most rows one statement may touch; 0: 5,000.
	Limit int
	// Twin names a table whose rows go with those of the same id; empty: none.
	Twin string
}

// Rule is a condition on a row. Its parts are all needed.
type Rule struct {
	// Where is SQL over the row's columns. It may use @now, the run's clock; @cutoff, @now minus Option and
	// Extra; and @last_cleanup, the moment of that option, or minus infinity. The columns it names are those the
	// table must have: a word of the application's form, a small prefix and a capital (iStatus, tsLog).
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
}

// defaultLimit is the most rows a statement touches where the rule gives no number.
const defaultLimit = 5_000
