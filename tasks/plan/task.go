package plan

import (
	"slices"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

type Kind int

// An external task works on another database.
const (
	BuiltIn Kind = iota
	Policy
	External
)

// String is the stored name.
func (k Kind) String() string { return [...]string{"BUILT_IN", "POLICY", "EXTERNAL"}[k] }

// Task is one entry of the pipeline. It is plain data.
type Task struct {
	Name        string
	Kind        Kind
	Title       string
	Description string
	// Requires are earlier tasks that must succeed before this one runs. A task that was not selected, or had nothing
	// to do, does not count.
	Requires []string
	// nil if the steps are independent. The parents are deleted with all rows that depend on them.
	ParentSet *ParentSet
	// Steps are executed in order. Steps on rows that depend on the parent set come first.
	Steps []Step
	// Rows that are replaced by their sums, if any.
	RollUp *RollUp
	// Work tables are dropped after the steps.
	Drops []WorkTables
	// Vacuums: the task vacuums and analyzes the tables of the application.
	Vacuums bool
	// Disabled: only dry runs that name the task do it.
	Disabled bool
	// Further tables of any schema that the task reads or changes.
	Names []string
	// Basis is a rule that can be changed. A saved plan with another basis does not apply to the task.
	Basis string
	// Revision is what is stored of a rule that can be changed or disabled: a run stops when it changes.
	Revision string
	// Advances is the option in which the reference time is stored if the task retained no row, unless it is the zero
	// value.
	Advances campaign.Option
}

// The task that vacuums. Later tasks vacuum the tables that they empty themselves.
const StatisticsTask = "statistics"

// Parents are chosen once, when the task starts, so that no parent is deleted whose dependent rows were not looked for.
// Every statement checks again that they still match.
type ParentSet struct {
	// Key is the id column.
	Parent, Key string
	Rules       Rules
	// MidSourced: rows are first deleted on their mid-sourcing servers, where the rules are not checked.
	MidSourced bool
}

// Step is a statement on one or several similar tables.
type Step struct {
	On Selector
	// Link is the column by which rows refer to the parents, if only such rows match.
	Link string
	// Message is the column with the id of a log of a message, if only rows match whose message is of a delivery in the
	// parent set.
	Message string
	// OfParents: only the parents themselves match.
	OfParents bool
	Rules     Rules
	// NeededBy is a task with steps that depend on messages: logs are retained that it needs to find dependent rows of
	// parents that it retained in this run.
	NeededBy *Task
	// nil to delete. Assignments to missing columns are omitted.
	Update []Assignment
	// Rows that one statement may touch; 0 is 5,000.
	Limit int
	// Rows of Paired with the same ids are deleted, too.
	Paired *Paired
	// The integer column that a sweep uses if the rows are on another server; empty for the table's key.
	ByKey string
	// Written for each row; may be nil.
	Entry *Entry
	// Records: deliveries that are retained on their mid-sourcing servers are recorded.
	Records bool
	// Empties: the step regularly deletes most rows of a table, so that guards do not limit their share.
	Empties bool
	// Tables that the rows, lists, have for themselves and that are dropped with them; nil if they have none.
	Tables *OwnTables
}

func (s Step) Dependent() bool { return s.OfParents || s.Link != "" || s.Message != "" }

// Paired is a table that shares the ids in its column Key with another table, which has them in its column ID.
type Paired struct{ Table, Key, ID string }

// Entry is an entry of the job log (XtkJobLog) about a row.
type Entry struct {
	// Job is the column with the id of the job. If is a column that is 0 for rows without an entry.
	Job, If string
	Message string
}

// Each table belongs to one row: its name is the prefix and the id of the row.
type OwnTables struct {
	Prefix string
	// If is true of rows that have a table. Any row may have one if it is not applicable.
	If Part
}

// RollUp replaces rows, from time to time, by their sums.
type RollUp struct {
	Table string
	// By are the columns that are equal in rows that are added up. Date is the column of their time: the sum gets the
	// start of the period.
	By   []string
	Date string
	// Missing columns are ignored, and columns not named here get their defaults.
	Sums []string
	// Total is one of Sums. Rows are deleted without a sum if their total is less than Least.
	Total string
	Least int
	// The option with the time until which rows have been rolled up.
	Since campaign.Option
}

type WorkTables struct {
	Prefix string
	// Bare: names end with the id.
	Bare bool
	// The prefix of another kind that begins with this one; may be empty.
	Except string
	// Rows of Owner own the tables; Key is its id column.
	Owner, Key string
	// Owners whose tables are in use; nil if the tables of all existing owners are.
	InUse Rule
	// Lists: a table with _grp<id> at the end of its name, or before an underscore, is also in use while that list
	// exists.
	Lists bool
}

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
