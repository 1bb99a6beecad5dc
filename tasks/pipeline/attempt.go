package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

var tracer = otel.Tracer("github.com/cleanupd/cleanupd/tasks/pipeline")

// Attempt is one try of a task. A repeated task gets a new Attempt.
type Attempt struct {
	Task   plan.Task
	Plan   *plan.Plan
	Binder *binding.Binder
	Jobs   []plan.Job
	// Parents are the ids of the parents, as chosen at the beginning.
	Parents []int64
	// History is what guards compare with; nil if guards are not to judge.
	History *guard.History
	// Candidates are those of a task on another database; nil for other tasks, and before they are known.
	Candidates *external.Candidates
	Cursor     *purge.Cursor

	Retained        purge.Retained
	ParentsRetained bool
	// Stopped says which change, made since the run read the task, ended the attempt.
	Stopped []message.Message
	// RowError is the first error of a row. Unfinished is what could not be completed; it fails the task when the rest
	// is done.
	RowError, Unfinished error

	run *Run
}

// traceTask runs the task in a span. A panic becomes an error of the task.
func (a *Attempt) traceTask(ctx context.Context, x Executor) (state State, err error) {
	ctx, span := tracer.Start(ctx, "task "+a.Task.Name)
	defer span.End()
	err = rescue.Call(func() (err error) { state, err = a.runPlan(ctx, x); return err })
	if err != nil {
		span.SetStatus(codes.Error, sqlstate.Explain(err))
	}
	return state, err
}

func (a *Attempt) runPlan(ctx context.Context, x Executor) (State, error) {
	r := a.run
	change, err := r.Journal.Safety.PolicyChange(ctx, a.Task)
	if err != nil {
		return Failed, fmt.Errorf("read the policy: %w", err)
	}
	if change != nil {
		return a.stop(ctx, *change), nil
	}
	if err := r.Database.Refresh(ctx); err != nil {
		return Failed, err
	}
	ctx = r.Database.InZone(ctx)
	if a.Plan, err = r.Database.Compile(a.Task); err != nil {
		return Failed, err
	}
	saved := a.Saved()
	if saved != nil {
		if err := confirm(r.Config, r.Database.Env, *saved); err != nil {
			return Failed, err
		}
		if replaced := replacedSince(saved.Relations, a.Plan.Relations()); replaced != nil {
			return Failed, refused.StalePlan(replaced...)
		}
	}
	readHistory := func() (err error) {
		a.History, err = r.Journal.Safety.History(ctx)
		return err
	}
	if err := r.Database.Engine.Retry(ctx, "the guards", readHistory); err != nil {
		return Failed, fmt.Errorf("read what guards compare with: %w", err)
	}
	a.logPlan(ctx)
	if err := binding.RightsError(a.Plan.Rights); err != nil {
		return Failed, err
	}
	a.Binder = r.Database.Binder(a.Plan, r.State)
	if o, ok := r.Config.External[a.Task.Name]; ok {
		return a.doOutside(ctx, x, o)
	}
	if a.Task.Disabled && !r.Config.DryRun {
		return a.stop(ctx, message.TaskDisabled.With("task", a.Task.Name)), nil
	}
	if a.Parents, err = a.Binder.Parents(ctx, a.Plan.Parents); err != nil {
		return Failed, err
	}
	if saved != nil {
		a.Parents = binding.Intersection(a.Parents, saved.Parents)
	}
	if a.Jobs, err = a.applicableJobs(ctx); err != nil {
		return Failed, err
	}
	a.Retained = purge.Retained{Tables: int64(len(a.Plan.SkippedTables))}
	done, err := x.Do(ctx, a)
	switch err := errors.Join(err, a.Err()); {
	case err != nil:
		return Failed, err
	case !done:
		return Skipped, nil
	}
	return Succeeded, nil
}

// stop ends the task because something has changed since the run read it, perhaps after some of its batches.
func (a *Attempt) stop(ctx context.Context, why message.Message) State {
	a.Stopped = []message.Message{why}
	a.Log(ctx, why)
	if a.run.Journal.Counts.Done() > 0 {
		return Cancelled
	}
	return Skipped
}

// NewAttempt returns an attempt at a compiled task that is not one of the run's own: on a mid-sourcing server, or
// to explain a row.
func (r *Run) NewAttempt(p *plan.Plan) *Attempt {
	return &Attempt{
		Task:   p.Task,
		Plan:   p,
		Binder: r.Database.Binder(p, r.State),
		Jobs:   p.Jobs,
		Cursor: &purge.Cursor{},
		run:    r,
	}
}

func (a *Attempt) Database() *Database { return a.run.Database }

func (a *Attempt) Log(ctx context.Context, messages ...message.Message) {
	a.run.Database.Log(ctx, messages...)
}

func (a *Attempt) Options() map[string]string {
	return optionsOf(a.run.Config, a.run.Database.Env, a.Task)
}

// MovedFast returns the former values of those cutoffs that moved by more than the time that passed, by the names
// of their delays.
func (a *Attempt) MovedFast() map[string]time.Time {
	former := map[string]time.Time{}
	for name, now := range a.run.cutoffs(a) {
		if at, moved := a.History.MovedFast(name, now); moved {
			former[name] = at
		}
	}
	return former
}

// Saved returns the task's part of the saved plan; nil without a saved plan.
func (a *Attempt) Saved() *preview.Task {
	if a.run.Config.SavedPlan == nil {
		return nil
	}
	saved := a.run.Config.SavedPlan[a.Task.Name]
	return &saved
}

// Unproven reports whether a policy's rule has not run yet and this run deletes without a saved plan.
func (a *Attempt) Unproven() bool {
	return a.Task.Basis != "" && a.History.Proven != a.Task.Basis && a.Saved() == nil && !a.run.Config.DryRun
}

// ProvesRule reports whether a policy's rule has not run yet and this run follows a saved plan.
func (a *Attempt) ProvesRule() bool {
	return a.Task.Basis != "" && a.Saved() != nil && a.History != nil && a.History.Proven != a.Task.Basis
}

func (a *Attempt) Journal() Journal { return a.run.Journal }

// logPlan logs the plan's notes, and adds the rules to the trace.
func (a *Attempt) logPlan(ctx context.Context) {
	a.Log(ctx, a.Plan.Notes...)
	d := a.run.Database
	// a role of its own may read the standby
	runs := d.Pool == d.Primary || d.Primary.Config().ConnConfig.User == d.Env.Catalog.Role
	if grants := a.Plan.RunRights; grants != nil && runs {
		a.Log(ctx, message.RunLacksRights.With("grants", strings.Join(grants, "; ")))
	}
	var rules []string
	for _, j := range a.Plan.Jobs {
		rules = append(rules, fmt.Sprintf("%s: %s", j.Name, cmp.Or(j.Rule, "all")))
	}
	trace.SpanFromContext(ctx).SetAttributes(attribute.StringSlice("cleanupd.rules", rules))
}

// applicableJobs leaves out jobs that delete only orphans of empty parent tables. An empty table proves nothing,
// unless a task that may rightly empty it has succeeded in this run.
func (a *Attempt) applicableJobs(ctx context.Context) (jobs []plan.Job, err error) {
	credible := map[string]bool{}
	for _, j := range a.Plan.Jobs {
		applies := !j.OnlyOrphans
		for _, o := range j.Orphans {
			ok, known := credible[o.Parent]
			if !known {
				if ok, err = a.isCredible(ctx, o); err != nil {
					return nil, err
				}
				credible[o.Parent] = ok
			}
			applies = applies || ok
		}
		if applies {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// isCredible reports whether a row that the parent table does not have is really deleted. It warns if that is
// unknown.
func (a *Attempt) isCredible(ctx context.Context, o plan.Orphan) (bool, error) {
	if a.run.State.Succeeded[o.EmptyAfter] {
		return true, nil
	}
	var empty bool
	d := a.run.Database
	err := d.Engine.Retry(ctx, o.Parent, func() (err error) {
		empty, err = d.Env.Catalog.Table(o.Parent).Empty(ctx, d.Pool)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("query %s: %w", o.Parent, err)
	}
	if empty {
		a.Log(ctx, message.ParentTableEmpty.With("table", o.Parent))
		return false, nil
	}
	if a.Task.Basis == "" {
		return true, nil
	}
	written, err := a.isWritten(ctx, d.Env.Catalog.Table(o.Parent))
	if err != nil {
		return false, fmt.Errorf("look for transactions that write to %s: %w", o.Parent, err)
	}
	if written {
		a.Log(ctx, message.ParentTableWritten.With("table", o.Parent))
	}
	return !written, nil
}

// maxWriting is how long a policy waits for transactions that may have inserted parents.
const maxWriting = 10 * time.Second

// writers returns the transactions that may have written to the relations $1. If $2 is not NULL, it returns only
// those of them that are in $2.
const writers = `SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = ANY ($1::oid[]) AND pid IS DISTINCT FROM pg_backend_pid() AND granted
  AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND ($2::text[] IS NULL OR virtualtransaction = ANY ($2))`

// isWritten reports whether transactions that had written to the table when they were first looked for have not
// ended within maxWriting. Rows that only these transactions see would seem to be missing.
func (a *Attempt) isWritten(ctx context.Context, t *campaign.Table) (bool, error) {
	oids := []uint32{t.OID}
	for _, leaf := range t.Leaves {
		oids = append(oids, leaf.OID)
	}
	var running []string
	for begun := time.Now(); ; {
		rows, _ := a.run.Database.Primary.Query(ctx, writers, oids, running)
		var err error
		if running, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(running) == 0 {
			return false, err
		}
		if time.Since(begun) > maxWriting {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(maxWriting / 50):
		}
	}
}

func (a *Attempt) doOutside(ctx context.Context, x Executor, t external.Task) (State, error) {
	switch {
	case t.Work == nil:
		return a.stop(ctx, message.TaskRemoved.With("task", a.Task.Name)), nil
	case t.Disabled && !a.run.Config.DryRun:
		return a.stop(ctx, message.TaskDisabled.With("task", a.Task.Name)), nil
	}
	var err error
	if a.Candidates, err = t.Candidates(ctx, a.run.Config.Now); err != nil {
		return Failed, err
	}
	if !a.run.Database.Env.Holds.Everything {
		a.Log(ctx, a.Candidates.Notes...)
		if saved := a.Saved(); saved != nil {
			a.Candidates.Items = slices.DeleteFunc(a.Candidates.Items, func(i external.Item) bool {
				return !slices.Contains(saved.Parents, i.ID)
			})
		}
		a.run.Journal.Progress.At(a.Candidates.Table, -1)
	}
	return x.DoExternal(ctx, a, t)
}
