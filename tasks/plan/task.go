package plan

import (
	"slices"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Kind says where a task comes from.
type Kind int

// A task is built in, the rule of a policy, or external: on another database.
const (
	BuiltIn Kind = iota
	Policy
	External
)

// String returns the name of the kind, as it is stored.
func (k Kind) String() string { return [...]string{"BUILT_IN", "POLICY", "EXTERNAL"}[k] }

// Task is one entry of the pipeline. It is plain data.
type Task struct {
	// Name identifies the task in requests.
	Name string
	Kind Kind
	// Title is the task's name for people.
	Title string
	// Description describes which rows and tables the task deletes.
	Description string
	// Requires are the names of earlier tasks that must succeed before this one runs. A task that was not selected, or
	// had nothing to do, does not count.
	Requires []string
	// ParentSet selects the parent rows that are deleted with all rows that depend on them; nil if the steps are
	// independent.
	ParentSet *ParentSet
	// Steps are executed in order. Steps on rows that depend on the parent set come first.
	Steps []Step
	// RollUp describes rows that are replaced by their sums; nil if there are none.
	RollUp *RollUp
	// Drops are the kinds of work tables that are dropped after the steps.
	Drops []WorkTables
	// Vacuums is true if the task vacuums and analyzes the tables of the application.
	Vacuums bool
	// Disabled is true if only dry runs that name the task do it.
	Disabled bool
	// Names are the names of further tables of any schema, in addition to those of the application, that the task reads
	// or changes.
	Names []string
	// Basis describes a rule that can be changed. A saved plan of another basis does not apply to the task.
	Basis string
	// Revision tells what is stored of a rule that can be changed, or disabled, from others: a run that has read it does
	// not go on when it changes.
	Revision string
	// Advances, unless it is the zero value, is the option in which the reference time is stored if the task retained
	// no row.
	Advances campaign.Option
}

// Vacuum is the name of the task that vacuums. Later tasks vacuum the tables that they empty themselves.
const Vacuum = "statistics"

// ParentSet selects the rows of a parent table. They are chosen once, when the task starts, so that no parent is
// deleted whose dependent rows were not looked for. Every statement checks again that they still match.
type ParentSet struct {
	// Parent is the table, Key its id column.
	Parent, Key string
	Rules       Rules
	// MidSourced is true if the rows are first deleted on their mid-sourcing servers, where the rules are not checked.
	MidSourced bool
}

// Step is a statement on one or several similar tables.
type Step struct {
	// On selects the tables.
	On Selector
	// Link is the column by which rows refer to the parent set, if only such rows match; empty otherwise.
	Link string
	// Message is the column with the id of a log of a message, if only rows match whose message is of a delivery in the
	// parent set; empty otherwise.
	Message string
	// OfParents is true if only rows of the parent set itself match.
	OfParents bool
	// Rules select the rows.
	Rules Rules
	// NeededBy, unless it is nil, is a task with steps that depend on messages: logs are retained that it needs to find
	// dependent rows of parents that it retained in this run.
	NeededBy *Task
	// Update is assigned to the rows; nil if they are deleted. Assignments to missing columns are omitted.
	Update []Assignment
	// Limit is the largest number of rows that one statement may touch; 0 stands for 5,000.
	Limit int
	// Paired is a table whose rows with the same ids are deleted, too; may be nil.
	Paired *Paired
	// ByKey is the integer column that a sweep uses if the rows are on another server; empty for the table's key.
	ByKey string
	// Entry is an entry of the job log that is written for each row; may be nil.
	Entry *Entry
	// Records is true if deliveries that are retained on their mid-sourcing servers are recorded.
	Records bool
	// Empties is true if the step regularly deletes most rows of a table, so that guards do not limit their share.
	Empties bool
	// Tables describes the tables that the rows, lists, have for themselves and that are dropped with them; nil if they
	// have none.
	Tables *OwnTables
}

// Dependent reports whether the rows are parents, or depend on parents.
func (s Step) Dependent() bool { return s.OfParents || s.Link != "" || s.Message != "" }

// Paired is a table that shares the ids in its column Key with another table, which has them in its column ID.
type Paired struct{ Table, Key, ID string }

// Entry is an entry of the job log (XtkJobLog) about a row.
type Entry struct {
	// Job is the column with the id of the job. If is a column that is 0 for rows without an entry.
	Job, If string
	// Message is the text of the entry.
	Message string
}

// OwnTables are tables that belong to one row each. Their names are the prefix and the id of the row.
type OwnTables struct {
	Prefix string
	// If is true of rows that have a table. Any row may have one if it is not applicable.
	If Part
}

// RollUp describes how rows of a table are replaced, from time to time, by their sums.
type RollUp struct {
	Table string
	// By are the columns that are equal in rows that are added up. Date is the column of their time: the sum gets the
	// start of the period.
	By   []string
	Date string
	// Sums are the columns that are added up. Missing ones are ignored, and other columns get their defaults.
	Sums []string
	// Total is one of Sums. Rows are deleted without a sum if their total is less than Least.
	Total string
	Least int
	// Since is the option with the time until which rows have been rolled up.
	Since campaign.Option
}

// WorkTables is a kind of work tables.
type WorkTables struct {
	// Prefix is the beginning of their names.
	Prefix string
	// Bare is true if their names end with the id.
	Bare bool
	// Except is the prefix of another kind that begins with this one; may be empty.
	Except string
	// Owner is the table whose rows own the tables, Key its id column.
	Owner, Key string
	// InUse matches owners whose tables are in use; nil if the tables of all existing owners are.
	InUse Rule
	// Lists is true if a table with _grp<id> at the end of its name, or before an underscore, is also in use while that
	// list exists.
	Lists bool
}

// OptionNames returns the names of the options that the task reads.
func (t Task) OptionNames() []string {
	options := t.allRules().options()
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
