package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type Kind int

// The kinds of tasks. An external task works on another database.
const (
	BuiltIn Kind = iota
	Policy
	External
)

// String returns the stored name.
func (k Kind) String() string { return [...]string{"BUILT_IN", "POLICY", "EXTERNAL"}[k] }

// Task is one entry of the pipeline. It is plain data.
type Task struct {
	Name        string
	Kind        Kind
	Title       string
	Description string
	// Requires are earlier tasks that must succeed before this one runs. Tasks that were not selected, or had nothing to
	// do, do not count.
	Requires []string
	// ParentRule is nil if the steps are independent. Otherwise they work on parents and the rows that depend on these.
	ParentRule *ParentRule
	// Steps are executed in order: rows that depend on parents are deleted before the parents.
	Steps []Step
	// RollUp describes rows that are replaced by their sums, if any.
	RollUp *RollUp
	// Drops are the work tables that are dropped after the steps.
	Drops []WorkTables
	// Vacuums is set if the task vacuums and analyzes the tables of the application.
	Vacuums bool
	// Disabled is set if the task runs only in dry runs that name it.
	Disabled bool
	// Names are further tables, in any schema, that the task reads or changes.
	Names []string
	// Basis identifies a rule that users can change; it is empty for others. A saved plan with another basis does not
	// apply to the task.
	Basis string
	// Revision identifies the stored version of a rule that users can change or disable; it is empty for others. A run
	// stops when it changes.
	Revision string
	// Undo is how long the trash keeps deleted rows after the run ends; nil if not set.
	Undo *time.Duration
	// Advances is the option in which the reference time is stored if the task retained no row; the zero value means none.
	Advances campaign.Option
}

// StatisticsTask is the name of the task that vacuums. Tasks after it vacuum the tables that they empty themselves.
const StatisticsTask = "statistics"

// ParentRule describes the parents of a task. They are chosen once, when the task starts, so that no parent is
// deleted without looking for its dependent rows. Every statement checks again that they still match.
type ParentRule struct {
	// Key is the id column of the table Parent.
	Parent, Key string
	Rules       Rules
	// MidSourced is set if rows are first deleted on their mid-sourcing servers, where the rules are not checked.
	MidSourced bool
}

// Step is a statement on one table, or on several similar ones.
type Step struct {
	On Selector
	// Link is the column that refers to a parent. If set, only rows that refer to one of the parents match.
	Link string
	// Message is the column that refers to the log of a message. If set, only rows match whose message belongs to one of
	// the parents, which are deliveries.
	Message string
	// OfParents is set if only the parents themselves match.
	OfParents bool
	Rules     Rules
	// NeededBy is a task that finds rows through the logs of messages, as its steps with Message do; nil if there is none.
	// A log is retained if that task needs it to find the dependent rows of parents that it retained in this run.
	NeededBy *Task
	// Update has the new values of rows; nil deletes them. Assignments to columns that a table does not have are left out.
	Update []Assignment
	// Partitions says what to do with partitions whose rows all match, if the rules only compare one date with a cutoff.
	Partitions purge.Partitions
	// Limit is the most rows that one statement may touch; 0 means 5,000.
	Limit int
	// Paired is a table whose rows with the same ids are also deleted.
	Paired *Paired
	// ByKey is the integer column by which a sweep finds rows on another server; empty means the table's key.
	ByKey string
	// Entry is the entry of the job log that is written for each row; nil for none.
	Entry *Entry
	// Records is set if deliveries that are retained on their mid-sourcing servers are recorded.
	Records bool
	// Empties is set if the step regularly deletes most rows of a table. The share guard does not apply then.
	Empties bool
	// Tables describes the tables that belong to single rows and are dropped with them, such as those of lists; nil if
	// there are none.
	Tables *OwnTables
}

// childless reports whether the step matches only rows to which no row of another table refers.
func (s Step) childless() bool {
	return slices.ContainsFunc(slices.Concat(s.Rules...), func(p Part) bool { _, is := p.(Unreferenced); return is })
}

// Rights returns the rights to a table that the step needs.
func (s Step) Rights() []string {
	switch {
	case s.Partitions == purge.DetachPartitions: // detaching also takes a membership in the owner
		return []string{"SELECT"}
	case s.Update != nil:
		return []string{"SELECT", "UPDATE"}
	case s.Tables != nil:
		return []string{"SELECT", "DELETE", "UPDATE"}
	}
	return []string{"SELECT", "DELETE"}
}

func (s Step) Dependent() bool { return s.OfParents || s.Link != "" || s.Message != "" }

// Paired is a table whose column Key has the same ids as the column ID of another table.
type Paired struct{ Table, Key, ID string }

// Entry is an entry of the job log (XtkJobLog) about a row.
type Entry struct {
	// Job is the column with the id of the job. Rows with 0 in the column If get no entry.
	Job, If string
	Message string
}

// OwnTables describes tables that each belong to one row. A table's name is the prefix followed by the id of its row.
type OwnTables struct {
	Prefix string
	// If is true for rows that have a table. If it is not applicable, any row may have one.
	If Part
}

// RollUp replaces the rows since the last time by their sums.
type RollUp struct {
	Table string
	// By are the columns by which rows are grouped. Date is the column of their time; a sum gets the start of the period.
	By   []string
	Date string
	// Sums are the columns that are added up. Missing columns are ignored, and columns that are not named here get
	// their defaults.
	Sums []string
	// Total is one of Sums. If its sum is less than Least, rows are deleted without being replaced by a sum.
	Total string
	Least int
	// Since is the option with the time up to which rows have been rolled up.
	Since campaign.Option
}

type WorkTables struct {
	Prefix string
	// Bare is set if nothing follows the id in the names.
	Bare bool
	// Except is the prefix of another kind whose names begin with this prefix too; it may be empty.
	Except string
	// Owner is the table whose rows own the work tables, and Key is its id column.
	Owner, Key string
	// InUse matches the owners whose tables are in use; nil if the tables of all existing owners are.
	InUse Rule
	// Lists is set if a table is also in use as long as a list exists whose id follows _grp in the table's name. The id
	// ends at an underscore or with the name.
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

// delays returns the delays of a rule. The zero Option means the reference time itself. If there are no delays, the
// rule does not depend on the reference time.
func (rule Rule) delays() (delays []campaign.Option) {
	for _, p := range rule {
		switch p := p.(type) {
		case Age:
			delays = append(delays, p.Delay)
		case Linked:
			delays = append(delays, p.That.delays()...)
		case SQL:
			if strings.Contains(p.Text, "{now}") {
				delays = append(delays, campaign.Option{})
			}
		}
	}
	return delays
}

func (t Task) allRules() (all Rules) {
	if t.ParentRule != nil {
		all = t.ParentRule.Rules
	}
	for _, s := range t.Steps {
		all = slices.Concat(all, s.Rules)
	}
	return all
}

// Cutoffs returns the cutoffs of a task by the names of their delays; the name is "" for a cutoff without a delay.
// Delays that cannot be used are left out.
func (t Task) Cutoffs(env Env) map[string]time.Time {
	cutoffs := map[string]time.Time{}
	for _, rule := range t.allRules() {
		for _, delay := range rule.delays() {
			if at, _, err := (Age{Delay: delay}).cutoff(env); err == nil {
				cutoffs[delay.Name] = at
			}
		}
	}
	return cutoffs
}

// WithoutDelays returns a task with only those rules that do not depend on the reference time, and the steps to
// which they apply.
func (t Task) WithoutDelays() Task {
	hasDelay := func(rule Rule) bool { return rule.delays() != nil }
	untimed := func(rules Rules) (rest Rules, applies bool) {
		rest = slices.DeleteFunc(slices.Clone(rules), hasDelay)
		return rest, len(rules) == 0 || len(rest) > 0
	}
	hasParents := false
	if t.ParentRule != nil {
		parents := *t.ParentRule
		parents.Rules, hasParents = untimed(parents.Rules)
		t.ParentRule = &parents
	}
	var steps []Step
	for _, s := range t.Steps {
		var applies bool
		if s.Rules, applies = untimed(s.Rules); applies && (hasParents || !s.Dependent()) {
			steps = append(steps, s)
		}
	}
	if t.Steps = steps; !hasParents {
		t.ParentRule = nil
	}
	return t
}
