package plan

import (
	"slices"

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
	// Requires are the names of earlier tasks without whose success it is not run, unless they were not to be run or
	// there was nothing for them to work on.
	Requires []string
	// ParentSet is the parent rows that are deleted together with everything that depends on them; nil: the steps are
	// independent.
	ParentSet *ParentSet
	// Steps are executed in order, those that depend on the set first.
	Steps []Step
	// RollUp is rows that are replaced by their sums; nil: none are.
	RollUp *RollUp
	// Drops are the kinds of work tables that are dropped after the steps.
	Drops []WorkTables
	// Vacuums says that it vacuums and analyzes the tables of the application.
	Vacuums bool
	// Advances is the moment that becomes the run's clock once nothing had to be left; the zero value: none does.
	Advances campaign.Option
}

// Vacuum is the name of the task that vacuums. Those behind it vacuum what they empty.
const Vacuum = "statistics"

// ParentSet is the rows of a parent table that a task begins with. They are chosen once, at its beginning, so that no parent
// is deleted whose dependents were not looked for; every statement checks again that they still match.
type ParentSet struct {
	// Parent is the table, Key its id column.
	Parent, Key string
	Rules       Rules
	// MidSourced says that they are deleted on their mid-sourcing servers first, whatever the rules say of them there.
	MidSourced bool
}

// Step is a statement on a table, or on each of several similar ones.
type Step struct {
	// On selects the tables.
	On Selector
	// Link is the column by which rows depend on the task's set; the step is for such rows only. Empty: for any row.
	Link string
	// Message is the column with the id of a message's log, by whose delivery rows depend on the task's set; empty:
	// they do not.
	Message string
	// OfParents says that the rows are those of the set itself.
	OfParents bool
	// Rules say which rows.
	Rules Rules
	// NeededBy is a task whose set refers to messages: logs stay that it needs to find the rest of parents that it had
	// to keep in this run. nil: none do.
	NeededBy *Task
	// Update is what is assigned to the rows; nil: they are deleted. Assignments to missing columns are omitted.
	Update []Assignment
	// Limit is the most rows one statement may touch; 0: 5,000.
	Limit int
	// Paired is a table whose rows are deleted with those of the same id; nil: none.
	Paired *Paired
	// ByKey is the integer column to go by where rows are on another server; empty: the table's key.
	ByKey string
	// Entry is an entry of the job log that accompanies each row; nil: none.
	Entry *Entry
	// Records says that deliveries which stay on their mid-sourcing servers are recorded.
	Records bool
	// Empties says that it empties its table by nature: the share of the rows that go says nothing.
	Empties bool
	// Tables says that rows are those of lists, deleted with the tables of these; nil: they are not.
	Tables *OwnTables
}

// Dependent reports whether the rows are of the task's set, or depend on it.
func (s Step) Dependent() bool { return s.OfParents || s.Link != "" || s.Message != "" }

// Paired is a table that shares its ids, in the column Key, with another table, which has them in ID.
type Paired struct{ Table, Key, ID string }

// Entry is an entry of the job log (XtkJobLog) about a row.
type Entry struct {
	// Job is the column with the id of the job, If one that is not 0 where there is to be an entry.
	Job, If string
	// Message is its text.
	Message string
}

// OwnTables are the tables that rows have for themselves: their names are the prefix and the id.
type OwnTables struct {
	Prefix string
	// If says which rows have one. Where it is not applicable, any row may.
	If Part
}

// RollUp is rows of a table that are replaced, from time to time, by their sums.
type RollUp struct {
	Table string
	// By are the columns that are equal in rows which are added up, Date that of their time, which becomes the first of
	// the period.
	By   []string
	Date string
	// Sums are the columns that are added up, as far as they are there. Others keep their defaults.
	Sums []string
	// Total is one of these; no row remains where its sum is less than Least.
	Total string
	Least int
	// Since is up to when rows were coalesced the last time.
	Since campaign.Option
}

// WorkTables is a kind of work tables: which belong to it, and which of them are in use.
type WorkTables struct {
	// Prefix begins their names.
	Prefix string
	// Bare says that nothing follows the id.
	Bare bool
	// Except is the prefix of another kind that begins with this one.
	Except string
	// Owner is the table whose rows they belong to, Key its id column.
	Owner, Key string
	// InUse says of which owners the tables are in use; nil: of all that exist.
	InUse Rule
	// Lists says that tables with _grp<id> at the end of their names, or before an underscore, stay while that list
	// exists.
	Lists bool
}

// OptionNames returns the names of the options that the task reads.
func (t Task) OptionNames() []string {
	var options []campaign.Option
	if t.ParentSet != nil {
		options = t.ParentSet.Rules.options()
	}
	for _, s := range t.Steps {
		options = append(options, s.Rules.options()...)
	}
	if t.RollUp != nil {
		options = append(options, t.RollUp.Since)
	}
	if t.Vacuums {
		options = append(options, campaign.NoStats)
	}
	var names []string
	for _, o := range append(options, t.Advances) {
		if o.Name != "" && !slices.Contains(names, o.Name) {
			names = append(names, o.Name)
		}
	}
	return names
}
