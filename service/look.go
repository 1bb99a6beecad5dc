package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/insight"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

// Look is a dry run without a server. It needs only the right to read the tables, stores nothing, and works on a hot
// standby. It uses what the service has stored in the database as far as the role can read it: policies, holds, and
// what guards compare with.
type Look struct {
	// Pool should be read-only.
	Pool    *pgxpool.Pool
	Profile runs.Profile
	// Policies replace stored ones of the same name.
	Policies []*cleanupv1.Policy
	// Tasks are the names of the tasks to preview; nil means all that are not disabled.
	Tasks []string
	// Undo is how long a run would keep deleted rows in the trash, whose limit is the default; 0 means as set in the
	// policies.
	Undo time.Duration
	// Event receives the events of the dry run, which ends if Event fails.
	Event func(*cleanupv1.RunEvent) error
}

// Looked is the result of a Look.
type Looked struct {
	Run *cleanupv1.Run
	// Suggested are policies that are not set. The rows that they match are counted if a run would have no task.
	Suggested []*cleanupv1.Policy
	// Example is the suggestion to try first: the one with the most rows, of a table that no other refers to, because such
	// tables are more likely logs and sessions than orders.
	Example *cleanupv1.Policy
	// Grants are statements that grant the rights that the role lacks for a run.
	Grants []string
	// LeftOut are the tables for which a policy is suggested whose rows the role cannot count, because it may not read
	// them or tables that refer to them, and GrantsToRead statements that grant the rights that it lacks for that.
	LeftOut, GrantsToRead []string
	// StoredHidden is set if the service has stored something that the role may not read.
	StoredHidden bool
}

// lookedAt is what the service has stored, as far as it can be read.
type lookedAt struct {
	policies []store.Policy
	holds    rules.Holds
	readable bool // whether the service's schema exists and can be read
	hidden   bool // whether something is stored that the role cannot read
}

// replace adds a policy in place of a stored one of the same name.
func (s *lookedAt) replace(m *cleanupv1.Policy) {
	p := policyOf(m)
	s.policies = slices.DeleteFunc(s.policies, func(other store.Policy) bool { return other.Name == p.Name })
	s.policies = append(s.policies, store.Policy{Policy: p})
}

// prepared is the input of a look: what is stored, with the given policies in place of stored ones, and the resulting
// tasks.
type prepared struct {
	now    time.Time
	stored lookedAt
	source runs.TaskSource
	list   runs.TaskList
	config cleanup.Config
}

func (l Look) prepare(ctx context.Context) (p prepared, err error) {
	if p.now, err = store.Now(ctx, l.Pool); err != nil {
		return p, err
	}
	if p.stored, err = l.readStored(ctx, p.now); err != nil {
		return p, err
	}
	for _, m := range l.Policies {
		if policyOf(m).Validate() == nil { // eachPolicy reports the others, of which no task can be made
			p.stored.replace(m)
		}
	}
	p.source = runs.TaskSource{Profile: l.Profile}
	if p.list, err = p.source.With(ctx, l.Pool, p.stored.policies); err != nil {
		return p, err
	}
	p.config = cleanup.Config{
		Pool:            l.Pool,
		Pipeline:        p.list.Tasks,
		NoCampaign:      p.list.NoCampaign,
		Settings:        purge.Settings{Workers: runs.DefaultWorkers, Target: purge.DefaultTarget},
		Now:             p.now,
		DryRun:          true,
		ContinueOnError: true,
	}
	return p, nil
}

// Check fails with failure.Violations, whose fields begin with the name of a policy, if given policies are not valid
// for the database, and with rules.MissingRights if the role lacks rights to run them or to create the schema cleanupd.
func (l Look) Check(ctx context.Context) error {
	p, err := l.prepare(ctx)
	if err != nil {
		return err
	}
	p.config.DryRun = false
	missing, err := migrate.MissingGrant(ctx, l.Pool)
	if err != nil {
		return err
	}
	return l.check(ctx, p, missing...)
}

// Grants returns statements that grant the role the rights that the given policies need, and the right to create the
// schema cleanupd if it is missing. It fails like Check.
func (l Look) Grants(ctx context.Context) (statements []string, err error) {
	p, err := l.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if statements, err = migrate.MissingGrant(ctx, l.Pool); err != nil {
		return nil, err
	}
	p.config.DryRun = false
	err = l.eachPolicy(ctx, p, nil, func(tx pgx.Tx, one policy.Policy, env rules.Env) error {
		needed, err := one.Grants(ctx, tx, env)
		statements = rules.AddGrants(statements, needed...)
		return err
	})
	return statements, err
}

// Uncovered is like ListTables with suggest_all: it lists the tables that no task covers, each with a suggested policy
// or the reason why there is none.
func (l Look) Uncovered(ctx context.Context) (*cleanupv1.ListTablesResponse, error) {
	p, err := l.prepare(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := l.uncovered(ctx, p)
	out := &cleanupv1.ListTablesResponse{}
	for _, t := range tables {
		out.Tables = append(out.Tables, tableMessage(t))
	}
	return out, err
}

func (l Look) uncovered(ctx context.Context, p prepared) ([]*capacity.Table, error) {
	of, err := insight.Cover(ctx, p.config, p.stored.holds)
	if err != nil {
		return nil, err
	}
	return capacity.Uncovered(ctx, l.Pool, of, p.now)
}

func (l Look) Do(ctx context.Context) (found Looked, err error) {
	p, err := l.prepare(ctx)
	if err == nil {
		err = l.check(ctx, p)
	}
	if err != nil {
		return found, err
	}
	stored, list, config := p.stored, p.list, p.config
	if config.TrashMaxBytes, err = trash.DefaultMaxBytes(ctx, l.Pool); err != nil {
		return found, err
	}
	j := &lookJournal{Discard: cleanup.Discard{Held: stored.holds}, look: l, judged: stored.readable, run: &store.Run{
		State: store.Running, DryRun: true, CreateTime: time.Now(), ReferenceTime: &p.now, StartTime: &p.now,
	}}
	for _, name := range l.Tasks {
		if _, ok := list.Find(name); !ok {
			return found, failure.Field("tasks", list.Unknown(name))
		}
	}
	leaves := map[string]*cleanupv1.Policy{} // by task, the suggested policies of tables to which no other refers
	names := list.Choose(l.Tasks, nil)
	if len(names) == 0 {
		tables, err := l.uncovered(ctx, p)
		if err != nil {
			return found, err
		}
		for _, t := range tables {
			if m := suggestionMessage(t).GetPolicy(); m != nil {
				stored.replace(m)
			}
		}
		if list, err = p.source.With(ctx, l.Pool, stored.policies); err != nil { // in the order in which a run executes them
			return found, err
		}
		config.Pipeline = list.Tasks
		env, err := cleanup.LoadEnv(ctx, config, l.Pool, stored.holds)
		if err != nil {
			return found, err
		}
		for _, t := range tables {
			m := suggestionMessage(t).GetPolicy()
			if m == nil {
				continue
			}
			task, _ := list.Find(policy.Prefix + m.GetName())
			if c, err := rules.Compile(task, env); err == nil && c.Rights != nil { // the task reports other errors itself
				found.LeftOut = append(found.LeftOut, t.Quoted())
				found.GrantsToRead = rules.AddGrants(found.GrantsToRead, c.Rights...)
				continue
			}
			found.Suggested, names = append(found.Suggested, m), append(names, task.Name)
			if len(t.ReferencedBy) == 0 {
				leaves[task.Name] = m
			}
		}
	}
	for _, t := range config.Pipeline {
		if slices.Contains(names, t.Name) {
			if l.Undo > 0 {
				t.Undo = &l.Undo
			}
			if t.Undo != nil {
				j.run.Undo = max(j.run.Undo, *t.Undo)
			}
			config.Todo = append(config.Todo, t)
		}
	}
	j.tasks = len(config.Todo)
	if err := j.append(store.Event{Kind: store.RunStarted, Run: j.run}); err != nil {
		return found, err
	}
	if found.StoredHidden = stored.hidden; stored.hidden {
		_ = j.Log(ctx, message.StoredHidden.With())
	}
	err = cleanup.DryRun(ctx, config, j)
	j.end(err)
	found.Example = exampleOf(found.Suggested, leaves, j.run.Results)
	if found.Grants, err = missingRights(ctx, config, stored.holds); err != nil {
		return found, err
	}
	found.Run = runMessage(j.run)
	return found, ctx.Err()
}

func (l Look) readStored(ctx context.Context, now time.Time) (s lookedAt, err error) {
	const exists = "SELECT to_regclass('cleanupd.policy') IS NOT NULL"
	err = l.Pool.QueryRow(ctx, exists).Scan(&s.readable)
	if sqlstate.Is(err, pgerrcode.InsufficientPrivilege) {
		return lookedAt{hidden: true}, nil
	}
	if err != nil || !s.readable {
		return s, err
	}
	if s.policies, err = store.ListPolicies(ctx, l.Pool); err == nil {
		if s.holds, _, err = store.EffectiveHolds(ctx, l.Pool, now); err == nil {
			_, err = store.GuardHistory(ctx, l.Pool, uuid.Nil, "")
		}
	}
	if sqlstate.Is(err, pgerrcode.InsufficientPrivilege) {
		return lookedAt{hidden: true}, nil
	}
	return s, err
}

func (l Look) check(ctx context.Context, p prepared, missing ...string) error {
	check := func(tx pgx.Tx, one policy.Policy, env rules.Env) error { return one.Check(ctx, tx, env) }
	return l.eachPolicy(ctx, p, missing, check)
}

// eachPolicy calls do for the given policies. It fails with all their violations and missing rights, and those given.
func (l Look) eachPolicy(
	ctx context.Context, p prepared, missing rules.MissingRights,
	do func(tx pgx.Tx, one policy.Policy, env rules.Env) error,
) error {
	if len(l.Policies) == 0 {
		return nil
	}
	env, err := cleanup.LoadEnv(ctx, p.config, l.Pool, p.stored.holds)
	if err != nil {
		return err
	}
	var wrong failure.Violations
	for _, m := range l.Policies {
		one := policyOf(m)
		err := one.Validate()
		if err == nil {
			err = pgx.BeginFunc(ctx, l.Pool, func(tx pgx.Tx) error { return do(tx, one, env) })
		}
		var (
			of    failure.Violations
			lacks rules.MissingRights
		)
		switch kinded := failure.Kinded(nil); {
		case errors.As(err, &of):
			for _, v := range of {
				wrong.Add(one.Name+strings.TrimPrefix(v.Field, "policy"), v.Problem)
			}
		case errors.As(err, &lacks):
			missing = rules.AddGrants(missing, lacks...)
		case errors.As(err, &kinded) && kinded.Kind() == failure.Precondition:
			return fmt.Errorf("policy %s: %w", one.Name, err)
		case err != nil:
			return err
		}
	}
	if len(missing) > 0 {
		return errors.Join(wrong.Err(), missing)
	}
	return wrong.Err()
}

func exampleOf(
	suggested []*cleanupv1.Policy, leaves map[string]*cleanupv1.Policy, results []store.Result,
) (example *cleanupv1.Policy) {
	var most int64
	for _, r := range results {
		if leaf := leaves[r.Task]; leaf != nil && r.RowsDeleted > most {
			most, example = r.RowsDeleted, leaf
		}
	}
	if example == nil && len(suggested) > 0 {
		return suggested[0]
	}
	return example
}

func missingRights(ctx context.Context, c cleanup.Config, holds rules.Holds) (grants []string, err error) {
	c.DryRun = false
	env, err := cleanup.LoadEnv(ctx, c, c.Pool, holds)
	if err != nil {
		return nil, err
	}
	if grants, err = migrate.MissingGrant(ctx, c.Pool); err != nil {
		return nil, err
	}
	for _, t := range c.Todo {
		p, err := rules.Compile(t, env)
		if err != nil {
			continue // the task has reported its error
		}
		grants = rules.AddGrants(grants, p.Rights...)
	}
	return grants, nil
}

// lookJournal turns the reports of the dry run into events. Only one goroutine uses it: tasks run one at a time, only
// batches run concurrently, and dry runs have no batches.
type lookJournal struct {
	cleanup.Discard
	look   Look
	run    *store.Run
	judged bool // whether guards compare with what is stored
	tasks  int  // how many tasks there are
	task   store.Result
}

func (j *lookJournal) append(e store.Event) error {
	j.run.LastSequence++
	e.Time, e.Sequence = time.Now(), j.run.LastSequence
	return j.look.Event(eventMessage(e))
}

func (j *lookJournal) TaskStarted(_ context.Context, name string) error {
	j.task = store.Result{Task: name, StartTime: new(time.Now())}
	return j.append(store.Event{Kind: store.TaskStarted, Task: name, Position: len(j.run.Results) + 1, Count: j.tasks})
}

func (j *lookJournal) TaskFinished(_ context.Context, o cleanup.Outcome) error {
	r := &j.task
	r.State, r.Error, r.EndTime = o.State, o.Problem, new(time.Now())
	r.Details, r.Detail = o.Details, message.Join(o.Details)
	r.Reason, r.Metadata = o.Reason, o.Metadata
	r.RowsFailed, r.RowsLocked, r.RowsSuppressed = o.Retained.Failed, o.Retained.Locked, o.Retained.Suppressed
	r.RowsDependent, r.RowsOnHold, r.TablesRetained = o.Retained.Dependent, o.Retained.OnHold, o.Retained.Tables
	r.RowsRetained = r.RowsFailed + r.RowsLocked + r.RowsSuppressed + r.RowsDependent
	if o.Preview != nil {
		r.Preview = o.Preview.Tables
	}
	j.run.Results = append(j.run.Results, *r)
	return j.append(store.Event{Kind: store.TaskFinished, Result: r})
}

func (j *lookJournal) end(err error) {
	j.run.EndTime, j.run.State = new(time.Now()), store.Succeeded
	if err != nil {
		j.run.State, j.run.Error = store.Failed, sqlstate.Explain(err)
	}
}

func (j *lookJournal) Log(_ context.Context, messages ...message.Message) error {
	for _, m := range messages {
		if err := j.append(store.LogEvent(j.task.Task, m)); err != nil {
			return err
		}
	}
	return nil
}

func (j *lookJournal) Count(ctx context.Context, d purge.Delta) error {
	r := &j.task
	r.RowsDeleted += d.Deleted
	r.RowsUpdated += d.Updated
	r.RowsCascaded += d.Cascaded
	r.TablesDropped += d.Dropped
	r.PartitionsRemoved += d.Partitions
	return ctx.Err()
}

func (j *lookJournal) Done() int64 { return j.task.RowsDeleted + j.task.RowsUpdated }

func (*lookJournal) Proceed(ctx context.Context) error { return ctx.Err() }

// History uses the default limits where nothing is stored.
func (j *lookJournal) History(ctx context.Context) (*guard.History, error) {
	if !j.judged {
		return &guard.History{Limits: guard.DefaultLimits}, nil
	}
	return store.GuardHistory(ctx, j.look.Pool, uuid.Nil, j.task.Task)
}
