package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/figures"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type Statement struct {
	// Table is the quoted name with the schema, or the pattern of the names of work tables.
	Table string
	// Action is "" for a query, and for VACUUM and ANALYZE.
	Action preview.Action
	Rule   string
	// SQL does not have the part of the table that each batch is for. For a statement on many tables it names only the
	// first ones. It is "" if no work table would be dropped.
	SQL        string
	Parameters []string
	Scan       purge.Scan
	// Partitions is how many partitions the statement is for, one after another. SQL names the first one.
	Partitions int
}

type Task struct {
	Now time.Time
	// Parents is the query for the parents, and Rows is how many it finds; nil if the task has no parents.
	Parents    *Statement
	Rows       int64
	Statements []Statement
	Skips      []string
}

// DescribeTask returns the statements of a task. It says that something is on hold, but not what: a caller who may
// see statements may not be allowed to see the holds.
func DescribeTask(ctx context.Context, c pipeline.Config, holds plan.Holds, t plan.Task) (e Task, err error) {
	if err := c.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
		return e, err
	}
	e.Now = c.Now
	if o, ok := c.External[t.Name]; ok {
		err = explainOutside(ctx, o, &e)
		return e, err
	}
	a, skips, err := newAttempt(ctx, c, t)
	if err != nil {
		return e, err
	}
	if len(holds.Names) > 0 {
		e.Skips = append(e.Skips, "something is on hold and is retained, whatever the statements say")
	}
	defer func() { e.Skips = append(e.Skips, skips.messages...) }()
	if z := a.Binder.Env.Catalog.Zone; z.Unknown {
		skips.add(z.Reason.Text)
	}
	ctx = a.Database().InZone(ctx)
	for _, n := range a.Plan.Notes {
		skips.add(n.Text)
	}
	for _, grant := range a.Plan.Rights {
		skips.add("the task fails before it deletes anything; let an owner of the tables run: " + grant)
	}
	if a.Plan.Rights != nil {
		return e, nil
	}
	if err := addEmptyParents(ctx, a, skips); err != nil {
		return e, err
	}
	ids, err := a.Binder.Parents(ctx, a.Plan.Parents)
	if err != nil {
		return e, err
	}
	if p := a.Plan.Parents; p != nil {
		e.Rows = int64(len(ids))
		sql, args := p.Query("r." + p.Key).Build()
		e.Parents = &Statement{Table: p.Table.Quoted(), Rule: p.Rule, SQL: sql, Parameters: format(args)}
	}
	if e.Statements, err = sweeps(ctx, a, ids, skips); err != nil {
		return e, err
	}
	for _, more := range []func(context.Context, *pipeline.Attempt, *skipLog) ([]Statement, error){
		rollUp,
		drops,
		func(ctx context.Context, a *pipeline.Attempt, _ *skipLog) ([]Statement, error) {
			return vacuums(ctx, a, c.VacuumTruncate)
		},
	} {
		statements, err := more(ctx, a, skips)
		if err != nil {
			return e, err
		}
		e.Statements = append(e.Statements, statements...)
	}
	return e, nil
}

// newAttempt returns an attempt, and the log of the parts that it skips, with the reasons.
func newAttempt(ctx context.Context, c pipeline.Config, t plan.Task) (*pipeline.Attempt, *skipLog, error) {
	skips := &skipLog{}
	j := pipeline.DiscardJournal(plan.Holds{})
	j.Progress = skips
	r := pipeline.New(ctx, c, j, c.Pool)
	if err := r.Database.Refresh(ctx); err != nil {
		return nil, nil, err
	}
	skips.messages = nil // the messages about the catalog, which each run logs
	p, err := r.Database.Compile(t)
	if err != nil {
		return nil, nil, err
	}
	return r.NewAttempt(p), skips, nil
}

// skipLog is a pipeline.Progress that collects each message once.
type skipLog struct{ messages []string }

func (s *skipLog) add(message string) {
	if !slices.Contains(s.messages, message) {
		s.messages = append(s.messages, message)
	}
}

func (s *skipLog) At(string, int64) {}

func (s *skipLog) Log(_ context.Context, messages ...message.Message) error {
	for _, m := range messages {
		s.add(m.Text)
	}
	return nil
}

// addEmptyParents adds the parent tables that are empty now, of which no row counts as an orphan.
func addEmptyParents(ctx context.Context, a *pipeline.Attempt, skips *skipLog) error {
	var names []string
	for _, j := range a.Plan.Jobs {
		for _, o := range j.Orphans {
			if o.EmptyAfter == "" {
				names = append(names, o.Parent)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		empty, err := a.Binder.Env.Catalog.Table(name).Empty(ctx, a.Binder.Pool)
		if err != nil {
			return err
		}
		if empty {
			skips.add(message.ParentTableEmpty.With("table", name).Text)
		}
	}
	return nil
}

// sweeps returns one statement for all partitions of a table.
func sweeps(ctx context.Context, a *pipeline.Attempt, parents []int64, skips *skipLog) (all []Statement, err error) {
	for i, j := range a.Plan.Jobs {
		if i > 0 && a.Plan.Jobs[i-1].StepNumber == j.StepNumber && a.Plan.Jobs[i-1].Table == j.Table {
			all[len(all)-1].Partitions++
			continue
		}
		s := Statement{
			Table: j.Table.Quoted(), Action: preview.ActionOf(j.Set != nil, j.Partitions), Rule: a.Plan.Describe(j),
			Partitions: 1,
		}
		sweep, err := a.Binder.Sweep(ctx, &j, parents[:min(len(parents), figures.ParentsAtOnce)])
		if err != nil {
			return nil, err
		}
		sql, args := sweep.SQL().Build()
		s.SQL, s.Parameters = sql, format(args)
		if s.Scan, err = scan(ctx, a, sweep, skips); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// scan returns how a sweep finds its rows. If that is unknown, it adds the reason to the log.
func scan(ctx context.Context, a *pipeline.Attempt, s purge.Sweep, skips *skipLog) (purge.Scan, error) {
	scan, err := a.Binder.Engine.Scan(ctx, s)
	if failed := (*purge.OtherServerError)(nil); errors.As(err, &failed) {
		skips.add(s.Relation + ": its rows cannot be found: " + failed.Reason)
		return purge.Scan{}, nil
	}
	if sqlstate.Is(err, pgerrcode.LockNotAvailable, pgerrcode.QueryCanceled) ||
		campaign.Dropped(ctx, a.Binder.Pool, err, s.Relation) {
		skips.add(s.Relation + ": the table is locked or no longer exists")
		return purge.Scan{}, nil
	}
	return scan, err
}

func explainOutside(ctx context.Context, o external.Task, e *Task) error {
	if o.Disabled {
		e.Skips = append(e.Skips, fmt.Sprintf("the task %s is disabled", o.Name))
	}
	statements, err := o.Statements(ctx, e.Now)
	for _, s := range statements {
		action := preview.Action("")
		if s.Deletes {
			action = preview.Delete
		}
		e.Statements = append(e.Statements, Statement{Table: s.Table, Action: action, Rule: s.Rule, SQL: s.SQL})
	}
	return err
}
