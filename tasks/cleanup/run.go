package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Config struct {
	ID   string
	Pool *pgxpool.Pool
	// Now is the reference time, the only clock of the run.
	Now             time.Time
	ContinueOnError bool
	// Pipeline has all tasks. Todo are the tasks to do, in order. Chosen are all tasks of the run, including those
	// that are already done; nil if these are the same as Todo.
	Pipeline, Todo, Chosen []rules.Task
	// External are the tasks of Todo that work on other databases, by name.
	External map[string]external.Task
	// Cursor is how far a previous worker came with the first task.
	Cursor purge.Cursor
	// Succeeded and Failed are tasks that are already done. Failed includes tasks that were not run because a task
	// that they require did not succeed.
	Succeeded, Failed map[string]bool
	Settings          purge.Settings
	// Lock is the key of the advisory lock that all batches of the run share; 0 means none.
	Lock        int64
	MidSourcing MidSourcing
	// NoCampaign is set if the database is not the application's, so that Pipeline has no tasks for it.
	NoCampaign bool
	// Log receives panics with their stacks; nil for slog.Default().
	Log *slog.Logger

	// TrashMaxBytes is how large the trash of all runs may become, if a task has undo.
	TrashMaxBytes int64
	// VacuumTruncate lets VACUUM return free space at the end of a table to the file system, for which it locks the
	// table exclusively.
	VacuumTruncate bool
	// SavedPlan is what a dry run has found, by task; nothing else is deleted. If it is nil, all obsolete rows are
	// deleted.
	SavedPlan map[string]SavedTask

	// DryRun is set for a dry run, which counts rows and changes nothing. The fields below apply only to dry runs.
	DryRun bool
	// Standby is read instead of Pool.
	Standby Standby
	// WhatIf has options to use instead of the stored ones, by name; nil if there are none.
	WhatIf map[string]int
	// Done is what a previous worker of the dry run found for the tasks that are already done, by task.
	Done map[string]SavedTask
}

// Scope returns the tables that the tasks need in addition to the application's.
func (c Config) Scope() campaign.Scope {
	scope := campaign.Scope{NoCampaign: c.NoCampaign}
	for _, t := range c.Pipeline {
		scope.Named = append(scope.Named, t.Names...)
	}
	return scope
}

type Standby struct {
	// Pool connects to the same database on the standby; nil without a standby.
	Pool *pgxpool.Pool
	// MaxWait is how long a dry run waits for the standby to replay what was written before the dry run began; 0 means ten
	// minutes.
	MaxWait time.Duration
}

type Executor interface {
	// Try calls attempt, and repeats it after errors that another attempt may not meet.
	Try(ctx context.Context, task string, attempt func() error) error
	// Do does the task of an attempt. done is false if there was nothing to do.
	Do(ctx context.Context, a *Attempt) (done bool, err error)
	// DoExternal does an external task. Its items are in a.Matches.
	DoExternal(ctx context.Context, a *Attempt, t external.Task) (State, error)
	// Finish completes the outcome of a task. a is nil if the task was not run.
	Finish(ctx context.Context, t rules.Task, a *Attempt, o *Outcome) error
}

// doEach does several parts of a task. done is true if at least one of them had something to do.
func doEach(ctx context.Context, parts ...func(context.Context) (bool, error)) (done bool, err error) {
	for _, do := range parts {
		some, err := do(ctx)
		if err != nil {
			return false, err
		}
		done = done || some
	}
	return done, nil
}

type Run struct {
	Config   Config
	Journal  Journal
	Database *Database
	// State is the state of earlier tasks.
	State rules.State
	// ClockOffset is how far the clock of this process is ahead of the database's.
	ClockOffset time.Duration

	failed map[string]bool
	cursor purge.Cursor
}

// NewRun returns a run whose tasks read from the pool, which is the database's or a standby's.
func NewRun(ctx context.Context, c Config, j Journal, pool *pgxpool.Pool) *Run {
	if c.Chosen == nil {
		c.Chosen = c.Todo
	}
	r := &Run{Config: c, Journal: j, cursor: c.Cursor, failed: map[string]bool{}}
	maps.Copy(r.failed, c.Failed)
	r.State = rules.State{Succeeded: map[string]bool{}, RetainedParents: map[string]bool{}}
	maps.Copy(r.State.Succeeded, c.Succeeded)
	for done := range c.Succeeded { // a previous worker may have retained parents
		r.State.RetainedParents[done] = !slices.ContainsFunc(c.Todo, func(t rules.Task) bool { return t.Name == done })
	}
	engine := purge.Engine{Pool: pool, Ledger: j, Settings: c.Settings, Lock: c.Lock}
	r.Database = newDatabase(ctx, c, j, c.Pool, engine)
	return r
}

// Tasks does the tasks of the run. Its error is that of the failed tasks, ErrStopped, or one that wraps ErrLost;
// nil if no task failed.
func (r *Run) Tasks(ctx context.Context, x Executor) (failed error) {
	for _, t := range r.Config.Todo {
		if err := r.Journal.TaskStarted(ctx, t.Name); err != nil {
			return unwritten(err)
		}
		o, err := r.Task(ctx, x, t)
		if err != nil {
			return err
		}
		if err := r.Journal.TaskFinished(ctx, o); err != nil {
			return unwritten(err)
		}
		if o.State == Failed {
			failed = errors.Join(failed, o.err(t.Name))
			if !r.Config.ContinueOnError && t.Kind != rules.Policy { // policies do not depend on each other
				break
			}
		}
		r.cursor = purge.Cursor{}
	}
	return failed
}

// Task does one task. Its error is about the run; an error of the task is in the outcome.
func (r *Run) Task(ctx context.Context, x Executor, t rules.Task) (o Outcome, err error) {
	if i := slices.IndexFunc(t.Requires, func(name string) bool { return r.failed[name] }); i >= 0 {
		o = Outcome{State: NotRun, Details: []message.Message{message.DependencyFailed.With("task", t.Requires[i])}}
		r.failed[t.Name] = true
		return o, x.Finish(ctx, t, nil, &o)
	}
	r.Database.recorder.startTask()
	var a *Attempt
	err = x.Try(ctx, t.Name, func() (err error) {
		a = &Attempt{Task: t, run: r, Cursor: &r.cursor}
		if o.State, err = a.traceTask(ctx, x); err != nil {
			r.Database.Forget()
		}
		return err
	})
	if endsAttempt(err) || sqlstate.Lost(err) || ctx.Err() != nil {
		return o, cmp.Or(err, ctx.Err())
	}
	if err != nil {
		failure.LogPanic(cmp.Or(r.Config.Log, slog.Default()), "task "+t.Name, err)
		o.fail(sqlstate.Explain(err), err)
	}
	o.Options, o.Cutoffs = optionsOf(r.Config, r.Database.Env, t), r.cutoffs(a)
	o.Retained, o.Details = a.Retained, retainedDetails(a.Retained)
	if t.Kind == rules.Policy && a.Plan != nil {
		o.Details = append(o.Details, a.Plan.WhySkipped...)
	}
	o.Details = append(o.Details, a.Stopped...)
	if failed := a.Retained.Tables; t.Vacuums && failed > 0 {
		o.Details = []message.Message{message.ResultVacuum.With("tables", failed)}
	}
	r.State.RetainedParents[t.Name] = a.ParentsRetained
	if err := x.Finish(ctx, t, a, &o); err != nil {
		return o, err
	}
	r.State.Succeeded[t.Name], r.failed[t.Name] = o.State == Succeeded, o.State == Failed
	return o, nil
}

// cutoffs returns the cutoffs of an attempt by the names of their delays.
func (r *Run) cutoffs(a *Attempt) map[string]guard.CutoffRecord {
	times := a.Task.Cutoffs(r.Database.Env)
	if a.Matches != nil {
		times[a.Task.Name] = a.Matches.Cutoff
	}
	cutoffs := map[string]guard.CutoffRecord{}
	for name, at := range times {
		cutoffs[name] = guard.CutoffRecord{At: at, ReferenceTime: r.Config.Now, ClockOffset: r.ClockOffset}
	}
	return cutoffs
}

// unwritten returns the error of writing to the journal. It is an ErrLost, since another worker may have the run,
// unless it already ends the attempt.
func unwritten(err error) error {
	if endsAttempt(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

func lostAs(err error) error {
	if sqlstate.Lost(err) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// endsAttempt reports whether an error concerns the run rather than the current task, or requires another attempt.
func endsAttempt(err error) bool {
	return errors.Is(err, ErrStopped) || errors.Is(err, ErrLost) || errors.Is(err, ErrHoldCreated) ||
		errors.Is(err, ErrPolicyChanged) || errors.Is(err, context.Canceled)
}

// Begin checks, before anything is deleted, whether the run may begin or continue, and fails if it may not.
func (r *Run) Begin(ctx context.Context) error {
	engine := r.Database.Engine
	if err := engine.Retry(ctx, "the catalog", func() error { return r.checkRights(ctx) }); err != nil {
		return err
	}
	if err := engine.Retry(ctx, "the clock", func() error { return r.readClock(ctx) }); err != nil {
		return err
	}
	if len(r.Config.Todo) < len(r.Config.Chosen) || r.cursor != (purge.Cursor{}) { // the run is continued
		return nil
	}
	if err := r.warnOfOtherCleaner(ctx); sqlstate.Lost(err) {
		return err
	}
	if err := r.warnOfPublishedSchema(ctx); sqlstate.Lost(err) {
		return err
	}
	return engine.Retry(ctx, "the guards", func() error {
		if err := r.guardStart(r.Database.InZone(ctx)); err != nil {
			return err
		}
		return r.checkUndo(ctx)
	})
}

// checkRights fails if rights are missing, or if this is not a Campaign database. The error names every missing right
// to a table. Missing rights of a policy, or of any task with ContinueOnError, fail only that task, when the run comes
// to it.
func (r *Run) checkRights(ctx context.Context) error {
	if err := r.Database.Refresh(ctx); err != nil {
		return err
	}
	if r.Config.ContinueOnError {
		return nil
	}
	var missing []string
	for _, t := range r.Config.Todo {
		if t.Kind == rules.Policy {
			continue
		}
		_ = failure.Catch(func() error { // the task will meet and report its error
			p, err := r.Database.Compile(t)
			if err == nil {
				missing = append(missing, p.Rights...)
			}
			return err
		})
	}
	return rules.RightsError(missing)
}

func (r *Run) readClock(ctx context.Context) error {
	asked := time.Now()
	var database time.Time
	if err := r.Database.Primary.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&database); err != nil {
		return err
	}
	r.ClockOffset = asked.Add(time.Since(asked) / 2).Sub(database)
	return nil
}

// warnOfOtherCleaner warns if the application also cleans the database. It fails if it cannot determine that.
func (r *Run) warnOfOtherCleaner(ctx context.Context) error {
	var started bool
	err := r.Database.Engine.InTx(ctx, func(tx pgx.Tx) (err error) {
		started, err = r.Database.Env.Catalog.OtherCleaner(ctx, tx)
		return err
	})
	if started {
		r.Database.Log(ctx, message.ApplicationCleanupStarted.With())
	}
	return err
}

// PublishingSchema returns the names of the publications that have tables of the service; it is empty if there are
// none.
const PublishingSchema = `SELECT COALESCE(string_agg(DISTINCT quote_ident(pubname), ', '), '')
FROM pg_publication_tables WHERE schemaname IN ('cleanupd', 'cleanupd_trash')`

func (r *Run) warnOfPublishedSchema(ctx context.Context) error {
	if !r.Database.Env.Catalog.Publishes {
		return nil
	}
	var publications string
	err := r.Database.Primary.QueryRow(ctx, PublishingSchema).Scan(&publications)
	if publications != "" {
		r.Database.Log(ctx, message.SchemaPublished.With("publications", publications))
	}
	return err
}

// guardStart checks the clock, whether the run is the first one, and whether the application is idle. A dry run only
// warns.
func (r *Run) guardStart(ctx context.Context) error {
	h, err := r.Journal.History(ctx)
	if err != nil {
		return fmt.Errorf("read guard history: %w", err)
	}
	if h == nil {
		return nil
	}
	newest, err := r.newestActivity(ctx, h.MaxIdle)
	if err != nil {
		return err
	}
	name, why := guard.Clock, h.JudgeClock(time.Now(), r.ClockOffset)
	if why == "" {
		name, why = guard.First, h.JudgeFirst()
	}
	if why == "" {
		name, why = guard.Idle, h.JudgeIdle(newest, r.Config.Now)
	}
	if why == "" {
		return nil
	}
	if r.Config.DryRun {
		r.Database.Log(ctx, message.GuardWouldRefuse.With("guard", name, "problem", why))
		return nil
	}
	return &failure.Refusal{
		Reason:   failure.ReasonGuard,
		Metadata: map[string]string{"guard": string(name)},
		Message: fmt.Sprintf(
			"the guard %s refuses the run, which has changed nothing: %s; if that is right, set the guard: "+
				"cleanupd guards set",
			name, why,
		),
	}
}

// activity is a date that shows when the application last wrote something.
type activity struct {
	table *campaign.Table
	date  string
}

// newestActivity returns when the application last wrote something. That is the reference time if it was within
// maxIdle, and zero if it is unknown or maxIdle is 0.
func (r *Run) newestActivity(ctx context.Context, maxIdle time.Duration) (newest time.Time, err error) {
	if maxIdle == 0 {
		return newest, nil
	}
	for _, a := range r.activities() {
		recent, at, err := r.newest(ctx, a, maxIdle)
		switch {
		case sqlstate.Lost(err) || ctx.Err() != nil:
			return newest, cmp.Or(err, ctx.Err())
		case err != nil:
			r.Database.Log(ctx, message.IdlenessUnknown.With("table", a.table.Name, "error", sqlstate.Explain(err)))
		case recent:
			return r.Config.Now, nil
		case at != nil && at.After(newest):
			newest = *at
		}
	}
	return newest, nil
}

// activities returns the dates that show when the application last wrote something. Those that are read fastest
// come first.
func (r *Run) activities() (all []activity) {
	add := func(t *campaign.Table, date string) {
		a := activity{t, date}
		if t != nil && t.Has(date) && t.CanSelect && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	catalog := r.Database.Env.Catalog
	add(catalog.Table("XtkWorkflowLog"), "tsLog")
	for _, name := range []string{"NmsRtEvent", "NmsBatchEvent", "NmsEventHisto"} {
		add(catalog.Table(name), "tsCreated")
	}
	logs, err := catalog.TrackingLogs()
	if err != nil { // the tasks report that the logs are not known
		return all
	}
	for _, t := range logs.Tables {
		add(t, "tsLog")
	}
	return all
}

// newest returns whether a date is within maxIdle (recent) or, if none is, the newest date; it is nil without
// dates.
func (r *Run) newest(ctx context.Context, a activity, maxIdle time.Duration) (recent bool, at *time.Time, err error) {
	now := r.Config.Now
	err = pgx.BeginFunc(ctx, r.Database.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
			return err
		}
		from := sqlexpr.Format("FROM %s AS r WHERE r.%s <= %s AND r.%[2]s > '-infinity'", a.table.Quoted(), a.date,
			sqlexpr.Arg(now, "timestamptz"))
		least := sqlexpr.Arg(now.Add(-maxIdle), "timestamptz")
		exists := sqlexpr.Format("SELECT EXISTS (SELECT %s AND r.%s >= %s)", from, a.date, least)
		if err := exists.QueryRow(ctx, tx).Scan(&recent); err != nil || recent {
			return err
		}
		return sqlexpr.Format("SELECT max(r.%s)::timestamptz %s", a.date, from).QueryRow(ctx, tx).Scan(&at)
	})
	return recent, at, err
}

var tracer = otel.Tracer("github.com/cleanupd/cleanupd/tasks/cleanup")

// Attempt is one try of a task. A repeated task gets a new Attempt.
type Attempt struct {
	Task   rules.Task
	Plan   *rules.Plan
	Binder *rules.Binder
	Jobs   []rules.Job
	// Parents are the ids of the parents, as chosen at the beginning.
	Parents []int64
	// History is the guards' history; nil turns them off.
	History *guard.History
	// Matches are the items of an external task; nil for other tasks, and before they are known.
	Matches *external.Matches
	Cursor  *purge.Cursor

	Retained        purge.Retained
	ParentsRetained bool
	// dropped has the names of the partitions that the attempt has dropped.
	dropped []string
	// Stopped is why the attempt was stopped, for example by a change made since the run read the task; empty if it was
	// not.
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
	err = failure.Catch(func() (err error) { state, err = a.runPlan(ctx, x); return err })
	if err != nil {
		span.SetStatus(codes.Error, sqlstate.Explain(err))
	}
	return state, err
}

func (a *Attempt) runPlan(ctx context.Context, x Executor) (State, error) {
	r := a.run
	change, err := r.Journal.PolicyChange(ctx, a.Task)
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
			return Failed, failure.StalePlan(replaced...)
		}
	}
	readHistory := func() (err error) {
		a.History, err = r.Journal.History(ctx)
		return err
	}
	if err := r.Database.Engine.Retry(ctx, "the guards", readHistory); err != nil {
		return Failed, fmt.Errorf("read guard history: %w", err)
	}
	a.logPlan(ctx)
	if grants := a.Plan.Rights; grants != nil {
		return Failed, rules.RightsError(slices.Concat(grants, a.runRights()))
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
		a.Parents = rules.Intersection(a.Parents, saved.Parents)
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
	if a.run.Journal.Done() > 0 {
		return Cancelled
	}
	return Skipped
}

// NewAttempt returns an attempt at a compiled task that is not one of the run's own: on a mid-sourcing server, or
// to explain a row.
func (r *Run) NewAttempt(p *rules.Plan) *Attempt {
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
func (a *Attempt) Saved() *SavedTask {
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

// runRights returns the GRANT statements for what a run needs beyond a dry run. It returns none if another role reads
// the standby, or if the task could not be compiled.
func (a *Attempt) runRights() []string {
	d := a.run.Database
	if a.Plan == nil || d.Pool != d.Primary && d.Primary.Config().ConnConfig.User != d.Env.Catalog.Role {
		return nil
	}
	return a.Plan.RunRights
}

// logPlan logs the plan's notes, and adds the rules to the trace.
func (a *Attempt) logPlan(ctx context.Context) {
	a.Log(ctx, a.Plan.Notes...)
	var rules []string
	for _, j := range a.Plan.Jobs {
		rules = append(rules, fmt.Sprintf("%s: %s", j.Name, cmp.Or(j.Rule, "all")))
	}
	trace.SpanFromContext(ctx).SetAttributes(attribute.StringSlice("cleanupd.rules", rules))
}

// applicableJobs leaves out jobs that delete only orphans of empty parent tables. An empty table proves nothing,
// unless a task that may rightly empty it has succeeded in this run.
func (a *Attempt) applicableJobs(ctx context.Context) (jobs []rules.Job, err error) {
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

// isCredible reports whether a row that is missing in the parent table certainly does not exist. If not, it logs why.
func (a *Attempt) isCredible(ctx context.Context, o rules.Orphan) (bool, error) {
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
		return false, fmt.Errorf("find transactions that write to %s: %w", o.Parent, err)
	}
	if written {
		a.Log(ctx, message.ParentTableWritten.With("table", o.Parent))
	}
	return !written, nil
}

// maxWriting is how long a policy waits for transactions that may have inserted parents.
const maxWriting = 10 * time.Second

// writers returns the transactions that may have written to the relations $1. If $2 is not NULL, it returns only
// transactions in $2.
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
	if a.Matches, err = t.Matches(ctx, a.run.Config.Now); err != nil {
		return Failed, err
	}
	if !a.run.Database.Env.Holds.Everything {
		a.Log(ctx, a.Matches.Notes...)
		if saved := a.Saved(); saved != nil {
			a.Matches.Items = slices.DeleteFunc(a.Matches.Items, func(i external.Item) bool {
				return !slices.Contains(saved.Parents, i.ID)
			})
		}
		a.run.Journal.At(a.Matches.Table, -1)
	}
	return x.DoExternal(ctx, a, t)
}
