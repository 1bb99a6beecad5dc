package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Env struct {
	Catalog *campaign.Catalog
	Options *campaign.Options
	Now     time.Time
	// Earlier are cutoffs to use instead of the current ones, by the names of their delays as in Task.Cutoffs.
	Earlier map[string]time.Time
	// DryRun is set if nothing is changed, so that fewer rights are needed.
	DryRun bool
	// AllRights makes Plan.Rights all that the role needs, whether or not it has them.
	AllRights bool
	// Pipeline has all tasks. Their rules define which rows belong to rows on hold.
	Holds    Holds
	Pipeline []Task
	// Predecessors are the tasks up to the compiled one in a dry run. Tables are read as these would have left them.
	Predecessors []Task
	// Record returns the statement that records the deliveries that a query returns; see Step.Records. It is nil where
	// plans are not executed.
	Record func(query sqlexpr.Expr) sqlexpr.Expr
}

type Plan struct {
	Task Task
	// Parents is nil if the task has no parents, or if they are not applicable to the database.
	Parents *Parents
	// Jobs are in the order of the steps.
	Jobs []Job
	// Partitionless are the jobs on partitioned tables that have no partition yet, so that there is nothing to do.
	Partitionless []Job
	SkippedSteps  []Skip
	// SkippedTables may have rows for the task, but are not cleaned, or not completely. Notes say why.
	SkippedTables []*campaign.Table
	Drops         []Drop
	// RollUpOnHold is set if foreign keys may delete or change rows on hold together with rows that are rolled up.
	RollUpOnHold bool
	// Notes say what the plan leaves out, and why.
	Notes []message.Message
	// Rights are the GRANT statements for what the role lacks, and RunRights those for what only a run needs, if the plan
	// is of a dry run.
	Rights, RunRights []string

	reads []*campaign.Table // the tables that the SQL being compiled reads
}

// Relations returns the object ids of the relations that the jobs change and read, by quoted name. There are none
// if the task could not be compiled.
func (p *Plan) Relations() map[string]string {
	if p == nil {
		return nil
	}
	relations := map[string]string{}
	for _, j := range p.Jobs {
		for _, f := range j.Facts {
			relations[f.Relation], _, _ = strings.Cut(f.Facts, " ")
		}
	}
	return relations
}

// Skip is a step that is not applicable to a table.
type Skip struct {
	Table *campaign.Table
	Step  Step
	// Rule describes the rows of the step; Why is the reason.
	Rule, Why string
}

type Parents struct {
	Table *campaign.Table
	Key   string
	// From is the table, or the subquery, from which the rows are read.
	From  sqlexpr.Expr
	Where sqlexpr.Expr
	// OnHold is the condition that a row is on hold; empty if none is.
	OnHold sqlexpr.Expr
	// Retaining are skipped tables with rows that depend on the parents.
	Retaining []Retaining
	// Date is the SQL of the date that the rules compare with a cutoff, if any.
	Rule, Date string
}

// Retaining is a skipped table, and the column by which its rows refer to parents. Such parents are retained. If
// Link is empty, the rows refer to messages, and all parents are retained.
type Retaining struct {
	Table *campaign.Table
	Link  string
}

// Query returns a query for a column of the parents, which may be an expression.
func (p *Parents) Query(column string) sqlexpr.Expr {
	return sqlexpr.Format("SELECT %s FROM %s AS r WHERE %s AND r.%s <> 0", column, p.From, p.Where, p.Key)
}

// Job is a step on one relation.
type Job struct {
	// Sweep still has placeholders for some arguments, and no Keys.
	purge.Sweep
	// StepNumber counts from 1.
	StepNumber int
	Step       Step
	// Rule describes which rows are obsolete; it is empty if all rows that depend on parents are.
	Rule string
	// Date is the SQL of the date that the rules compare with a cutoff, if any. DateColumns are the stored names of its
	// columns.
	Date        string
	DateColumns []string
	// Table is the relation, or the table of which it is a partition or child.
	Table    *campaign.Table
	Affected []*campaign.Table
	// ParentIDs is a query for the ids of the parents on which a row r depends; empty if it depends on none.
	ParentIDs string
	// Estimates says why the number of rows in a dry run may differ from that of a run; nil if it is exact.
	Estimates []string
	// Location says where the rows are; empty if they are on this server.
	Location string
	// Unlogged is set if standbys have none of the rows.
	Unlogged bool
	// CompanionWrites describes the rows that the companion statement writes, if it may be left out when it fails;
	// otherwise empty.
	CompanionWrites string
	// Orphans are the links whose parent tables must have rows, or be trusted when empty. OnlyOrphans is set if no
	// other rule matches a row: if no parent table is trusted, there is nothing to do then.
	Orphans     []Orphan
	OnlyOrphans bool
	// OnHold are the ways in which rows are on hold. Where does not exclude these rows.
	OnHold []HoldCondition
	// Except are the rows that are retained because parents of another task are; nil if there are none.
	Except *Except
	// TypedTables is the SQL of whether a row r may have a table, for a step with Tables.
	TypedTables sqlexpr.Expr
}

func (j Job) ParentsOf(relation string, where sqlexpr.Expr) sqlexpr.Expr {
	return sqlexpr.Format("SELECT DISTINCT parent.id::bigint FROM ONLY %s AS r, LATERAL (%s) AS parent (id) WHERE %s",
		relation, j.ParentIDs, where)
}

// Except are rows that are retained because parents of another task are.
type Except struct {
	Task    string
	Parents *Parents
	// Condition is true for the retained rows. ParentIDs stands for the ids of the retained parents.
	Condition        sqlexpr.Expr
	ReadsDistributed bool
	Rights           []string
}

// Drop is a compiled kind of work tables.
type Drop struct {
	WorkTables
	Owner *campaign.Table
	// Rule describes the owners whose tables are in use; empty if the tables of all owners are.
	Rule string
	// InUse is a query for those ids among IDs whose tables are in use.
	InUse sqlexpr.Expr
	// HasOwners is a query for whether there is any owner: an empty table of owners proves nothing.
	HasOwners sqlexpr.Expr
	// Groups is the table of lists; nil if it cannot be read. KnownLists is a query for those ids among IDs that are
	// lists, and HasLists for whether there is any list.
	Groups               *campaign.Table
	KnownLists, HasLists sqlexpr.Expr
}

// DependsOn returns the names of the tasks whose outcome in a run changes what this task does.
func (p *Plan) DependsOn() []string {
	names := slices.Clone(p.Task.Requires)
	var args []any
	if p.Parents != nil {
		args = slices.Concat(p.Parents.From.Args(), p.Parents.Where.Args())
	}
	for _, j := range p.Jobs {
		args = append(args, j.Where.Args()...)
		for _, o := range j.Orphans {
			names = append(names, o.EmptyAfter)
		}
		if j.Except != nil {
			names = append(names, j.Except.Task)
		}
	}
	for _, a := range args {
		switch a.(type) {
		case SucceededTask, DryRunSet, RolledUpFrom:
			names = append(names, fmt.Sprint(a))
		}
	}
	return names
}

// Placeholders for arguments that are known only when a job runs.
type (
	// ParentIDs stands for the ids of the current parents.
	ParentIDs struct{}
	// IDs stands for the ids that a query is about, such as those in the names of work tables.
	IDs struct{}
	// RemoteIDs stands for those of these ids that are retained on their mid-sourcing servers. If there are none, the
	// companion statement is left out.
	RemoteIDs struct{}
	// SucceededTask stands for whether the task of that name has succeeded in this run.
	SucceededTask string
	// DryRunSet stands for the ids of the parents that the task of that name would delete or update.
	DryRunSet string
	// DryRunParents stands for the ids of the parents whose dependent rows the task of that name would delete. Unlike
	// DryRunSet it includes parents that are retained themselves.
	DryRunParents string
	// RolledUpFrom stands for the start of the period that the task of that name would roll up, or NULL.
	RolledUpFrom string
	// Lookup stands for the result of a query, which is run once in a task.
	Lookup string
)

// requireRights adds the missing ones of some rights to a table, which is nil if it does not exist.
func (p *Plan) requireRights(env Env, t *campaign.Table, rights ...string) {
	if t != nil {
		p.addRights(missing(env, t.Schema, t.Quoted(), t.Rights, rights))
	}
}

func (p *Plan) addRights(now, later []string) {
	add := func(list []string, grant string) []string {
		if slices.Contains(list, grant) {
			return list
		}
		return append(list, grant)
	}
	for _, g := range now {
		p.Rights = add(p.Rights, g)
	}
	for _, g := range later {
		p.RunRights = add(p.RunRights, g)
	}
}

// missing returns the GRANT statements for the missing ones of some rights to a relation. A dry run needs only SELECT:
// later are those for the run.
func missing(env Env, schema, relation string, r campaign.Rights, rights []string) (now, later []string) {
	role := pgx.Identifier{env.Catalog.Role}.Sanitize()
	if env.AllRights {
		r = campaign.Rights{}
	}
	if !r.CanUse {
		now = append(now, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", pgx.Identifier{schema}.Sanitize(), role))
	}
	has := map[string]bool{"SELECT": r.CanSelect, "INSERT": r.CanInsert, "DELETE": r.CanDelete, "UPDATE": r.CanUpdate}
	var needed, neededLater []string
	for _, right := range rights {
		switch {
		case has[right]:
		case env.DryRun && right != "SELECT":
			neededLater = append(neededLater, right)
		default:
			needed = append(needed, right)
		}
	}
	grant := func(rights []string) string {
		return fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(rights, ", "), relation, role)
	}
	if needed != nil {
		now = append(now, grant(needed))
	}
	if neededLater != nil {
		later = append(later, grant(neededLater))
	}
	return now, later
}

func (p *Plan) Skip(t *campaign.Table, why message.Message) {
	p.note(why)
	p.SkippedTables = append(p.SkippedTables, t)
}

// note adds a note unless there is one with the same text.
func (p *Plan) note(m message.Message) {
	if !slices.ContainsFunc(p.Notes, func(n message.Message) bool { return n.Text == m.Text }) {
		p.Notes = append(p.Notes, m)
	}
}

func (p *Plan) notef(format string, args ...any) { p.note(message.Infof(format, args...)) }

// Describe returns the rule of a job, with that of the parents on which its rows depend.
func (p *Plan) Describe(j Job) string {
	join := func(a, separator, b string) string {
		if a == "" || b == "" {
			return a + b
		}
		return a + separator + b
	}
	switch {
	case !j.Step.Dependent():
		return j.Rule
	case j.Step.OfParents:
		return join(p.Parents.Rule, "; and ", j.Rule)
	}
	return join(j.Rule, ", ", fmt.Sprintf("of a row of %s: %s", p.Parents.Table.Name, p.Parents.Rule))
}
