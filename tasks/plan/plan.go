package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Env is what a task is compiled for.
type Env struct {
	// Catalog and Options are those of the database.
	Catalog *campaign.Catalog
	Options *campaign.Options
	// Now is the run's only clock.
	Now time.Time
	// Earlier are moments to go by in place of those in force, by the names of their delays, as in Task.Cutoffs.
	Earlier map[string]time.Time
	// DryRun says that nothing is to be changed: fewer rights are needed.
	DryRun bool
	// Holds is what stays; Pipeline are all tasks that there are, by whose rules rows belong to others.
	Holds    Holds
	Pipeline []Task
	// Predecessors are, in a dry run, its tasks up to the one that is compiled: what is read is as these would have left
	// it.
	Predecessors []Task
	// RelatedListTables are further tables whose iGroupId is the id of a list.
	RelatedListTables []string
	// Include are further tables that tasks take in, by the tasks' names: stored names.
	Include map[string][]string
	// Record returns a statement that records deliveries which stay on mid-sourcing servers; see Step.Records. A dry
	// run needs none.
	Record func(query string) string
}

// Plan is what a task does in a database.
type Plan struct {
	Task Task
	// Parents is the task's set; nil: it has none, or it is not applicable.
	Parents *Parents
	// Jobs are in the order of the steps.
	Jobs []Job
	// SkippedSteps are the steps on tables that are not applicable to this database.
	SkippedSteps []Skip
	// SkippedTables are tables that may have rows of the task's, but are left alone for the reasons in Notes.
	SkippedTables []*campaign.Table
	// Drops are the kinds of work tables that are dropped.
	Drops []Drop
	// RollUpOnHold says that foreign keys may delete or change rows on hold with those that are coalesced.
	RollUpOnHold bool
	// Notes say what is not done, and why.
	Notes []Note
	// Rights are the GRANTs that are missing.
	Rights []string
}

// Skip is a step on a table that is not done.
type Skip struct {
	Table *campaign.Table
	Step  Step
	// Rule says in words which rows it is about, Why why it is not done.
	Rule, Why string
}

// Parents is the set of a task in a database: a query for its rows r.
type Parents struct {
	Table *campaign.Table
	Key   string
	// From is what the rows are read from.
	From  string
	Where string
	Args  []any
	// OnHold is the condition of those that are on hold themselves; it has no text if none is.
	OnHold purge.Condition
	// Retaining are the tables that are passed over, though rows of theirs depend on the set's.
	Retaining []Retaining
	// Rule says in words which rows they are, and Date is the SQL of the date that it goes by; empty: by none.
	Rule, Date string
}

// Retaining is a table that is passed over: rows of the set stay that it refers to by a column.
type Retaining struct {
	Table *campaign.Table
	Link  string
}

// Rows is the FROM and WHERE of a query for the rows.
func (p *Parents) Rows() string {
	return fmt.Sprintf(" FROM %s AS r WHERE %s AND r.%s <> 0", p.From, p.Where, p.Key)
}

// Query is SQL with its parameters after the first one, of which some may be known only when it is run.
type Query struct {
	SQL  string
	Args []any
}

// Job is a step on one relation.
type Job struct {
	// Sweep is what it does. Some of its parameters may stand for values that are known only when it is run, and so are
	// its Keys.
	purge.Sweep
	// StepNumber is the number of its step, from 1, and Does that step.
	StepNumber int
	Step       Step
	// Rule says in words which rows are obsolete; empty: all that depend on the task's set.
	Rule string
	// Date is the SQL of the date that the rules go by, and DateColumns are its columns; empty: they go by none.
	Date        string
	DateColumns []string
	// Table is the table that the relation is, or is a part of.
	Table *campaign.Table
	// ParentIDs is a query for the ids of the set's rows that a row r depends on; empty: it does not.
	ParentIDs string
	// Location is where its rows are; empty: here.
	Location string
	// Unlogged says that standbys have none of its rows.
	Unlogged bool
	// CompanionWrites is what accompanies its rows, if these may be changed without that; empty: they may not.
	CompanionWrites string
	// Orphans are the links whose parents must have rows, or be credible when empty. OnlyOrphans says that no row is
	// obsolete for another reason: where no parent is credible, there is nothing to do.
	Orphans     []Orphan
	OnlyOrphans bool
	// OnHold are the ways in which rows are on hold, which Where does not exclude; nil: none is.
	OnHold []HoldCondition
	// Except is rows that stay in spite of the rules; nil: there are none.
	Except *Except
	// TypedTables is the SQL of whether a row r may have tables of its own, for a step with Tables.
	TypedTables string
}

// Except is rows that stay while parents of another task have to.
type Except struct {
	// Task is that task, Parents its set.
	Task    string
	Parents *Parents
	// Condition is true for these rows. ParentIDs stands for the ids of the retained parents.
	Condition purge.Condition
	// Elsewhere says that it reads a distributed table.
	Elsewhere bool
	// Rights are the GRANTs that are missing for it.
	Rights []string
}

// Drop is a kind of work tables, and which of them are in use.
type Drop struct {
	WorkTables
	// Owner is the table whose rows they belong to.
	Owner *campaign.Table
	// Rule says in words of which owners the tables are in use; empty: of all.
	Rule string
	// InUse is a query for those of some ids ($1) whose tables are in use.
	InUse Query
	// HasOwners is a query for whether there is any owner; an empty table of them proves nothing.
	HasOwners Query
	// Groups is the table of lists; nil: what is in it is not known. OfLists is a query for those of some ids ($1) that
	// are lists, and Listed for whether there is any list.
	Groups               *campaign.Table
	KnownLists, HasLists Query
}

// Note is a message for people.
type Note struct {
	Level severity.Level
	Text  string
}

// DependsOn returns the names of the tasks on whose outcome in a run it depends what this one does.
func (p *Plan) DependsOn() []string {
	names := slices.Clone(p.Task.Requires)
	add := func(args []any) {
		for _, a := range args {
			switch a := a.(type) {
			case SucceededTask:
				names = append(names, string(a))
			case DryRunSet:
				names = append(names, string(a))
			case RolledUpFrom:
				names = append(names, string(a))
			}
		}
	}
	if p.Parents != nil {
		add(p.Parents.Args)
	}
	for _, j := range p.Jobs {
		add(j.Args)
		for _, o := range j.Orphans {
			names = append(names, o.EmptyAfter)
		}
		if j.Except != nil {
			names = append(names, j.Except.Task)
		}
	}
	return names
}

// Parameters of a job that are known only when it is run.
type (
	// ParentIDs are the ids of the parents at work.
	ParentIDs struct{}
	// RemoteIDs are those of them that stay on their mid-sourcing servers. If there are none, Also is omitted.
	RemoteIDs struct{}
	// SucceededTask is whether a task has succeeded in this run.
	SucceededTask string
	// DryRunSet is, in a dry run, the ids of the set of a task, as the name says.
	DryRunSet string
	// DryRunParents are, in a dry run, the ids of the parents of a task, as the name says, whose dependent rows it would
	// delete, whether or not they are retained themselves.
	DryRunParents string
	// RolledUpFrom is, in a dry run, from when on a task would have coalesced rows; NULL: it would not.
	RolledUpFrom string
	// Lookup is what a query returns, asked once a task.
	Lookup string
)

// requireRights adds the GRANT of the rights that the role lacks on a table, nil if that is missing. A dry run only
// needs SELECT.
func (p *Plan) requireRights(env Env, t *campaign.Table, rights ...string) {
	if t == nil {
		return
	}
	has := map[string]bool{
		"SELECT": t.CanSelect,
		"INSERT": t.CanInsert || env.DryRun,
		"DELETE": t.CanDelete || env.DryRun,
		"UPDATE": t.CanUpdate || env.DryRun,
	}
	lacking := slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return has[right] })
	grant := fmt.Sprintf(
		"GRANT %s ON %s TO %s",
		strings.Join(lacking, ", "),
		t.Quoted(),
		pgx.Identifier{env.Catalog.Role}.Sanitize(),
	)
	if len(lacking) > 0 && !slices.Contains(p.Rights, grant) {
		p.Rights = append(p.Rights, grant)
	}
}

func (p *Plan) note(level severity.Level, format string, args ...any) {
	n := Note{level, fmt.Sprintf(format, args...)}
	if !slices.Contains(p.Notes, n) {
		p.Notes = append(p.Notes, n)
	}
}
