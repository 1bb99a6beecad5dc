package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// ErrStopped says that the run was told to stop. The journal knows why.
var ErrStopped = errors.New("the run was stopped")

// ErrLost says that the run is no longer this worker's, or that the database is gone: it says nothing about the current
// task.
var ErrLost = errors.New("the run was lost")

// Config configures a run.
type Config struct {
	// ID is the run's.
	ID   string
	Pool *pgxpool.Pool
	// Standby is what a dry run reads in place of Pool.
	Standby Standby
	// Now is the run's only clock.
	Now time.Time
	// DryRun counts without changing anything.
	DryRun bool
	// WhatIf are values that a dry run supposes to be stored, by the options' names; nil: none.
	WhatIf map[string]int
	// ContinueOnError continues after a failed task.
	ContinueOnError bool
	// Todo are the tasks still to be done, in order. Another worker may have started the first one.
	Todo []plan.Task
	// Pipeline are all tasks that there are, by whose rules rows belong to others.
	Pipeline []plan.Task
	// Outside are those of them on other databases, by their names.
	Outside map[string]outside.Task
	// Holds is what stays, for Confirm; a run asks its journal.
	Holds plan.Holds
	// Chosen are all tasks of the run, those that are done too; nil: Todo.
	Chosen []plan.Task
	// Cursor is how far that worker came with it.
	Cursor purge.Cursor
	// Succeeded are the tasks of this run that have already succeeded.
	Succeeded map[string]bool
	// Failed are those that have failed, or were not run since one that they require did not succeed.
	Failed map[string]bool
	// Plan is what a dry run has found of each task: nothing else is done; nil: whatever is due is.
	Plan map[string]Planned
	// Done is what a previous worker of a dry run has found of the tasks that are done.
	Done map[string]Planned
	// Settings configure batches.
	purge.Settings
	// Lock is the advisory lock that the run's batches share; 0: none.
	Lock int64
	// MidSourcing says what is done about the deliveries of mid-sourcing servers.
	MidSourcing MidSourcing
	// RelatedListTables are further tables whose iGroupId is the id of a list.
	RelatedListTables []string
	// VacuumTruncate has VACUUM give free space at the end of tables back, for which it locks them exclusively.
	VacuumTruncate bool
	// Include are further tables that tasks take in, by the tasks' names: stored names.
	Include map[string][]string
	// Log is told of panics, with their stacks; nil: slog.Default().
	Log *slog.Logger
}

// Run executes the tasks and reports to the journal. Its error is that of the failed tasks, ErrStopped, or
// one that wraps ErrLost; nil means that nothing failed.
func Run(ctx context.Context, c Config, j Journal) error {
	err := run(ctx, c, j)
	if sqlstate.Lost(err) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

func run(ctx context.Context, c Config, j Journal) error {
	if c.Chosen == nil {
		c.Chosen = c.Todo
	}
	c.Succeeded, c.Failed = maps.Collect(maps.All(c.Succeeded)), maps.Collect(maps.All(c.Failed)) // never nil
	d := open(ctx, c, j)
	if err := d.begin(ctx); err != nil {
		return d.ofStandby(ctx, err)
	}
	return d.runAll(ctx)
}

// begin judges whether the run may begin, or go on.
func (d *database) begin(ctx context.Context) error {
	for _, first := range []struct {
		what string
		do   func(context.Context) error
	}{{"the standby", d.awaitStandby}, {"the catalog", d.check}, {"the clock", d.readClock}} {
		if err := d.engine.Retry(ctx, first.what, func() error { return first.do(ctx) }); err != nil {
			return err
		}
	}
	if len(d.Todo) < len(d.Chosen) || d.Cursor != (purge.Cursor{}) { // it goes on
		return nil
	}
	if err := d.warnOfOther(ctx); sqlstate.Lost(err) {
		return err
	}
	return d.engine.Retry(ctx, "the guards", func() error { return d.guardStart(d.inZone(ctx)) })
}

// runAll executes the tasks that are to be done. Its error is that of Run.
func (d *database) runAll(ctx context.Context) error {
	c, j := d.Config, d.journal
	for done := range c.Succeeded { // a previous worker may have kept parents
		d.keepers[done] = !slices.ContainsFunc(c.Todo, func(t plan.Task) bool { return t.Name == done })
	}
	if d.preview != nil {
		d.preview.goOn(c.Done)
		for _, t := range c.Chosen {
			if c.Failed[t.Name] {
				d.void(t)
			}
		}
	}
	var failed error
	for _, t := range c.Todo {
		if err := j.TaskStarted(ctx, t.Name); err != nil {
			return unwritten(err)
		}
		o := missed(t, c.Failed)
		if o.State == "" {
			var err error
			if o, err = d.run(ctx, t); err != nil {
				return err
			}
		}
		if err := j.TaskFinished(ctx, o); err != nil {
			return unwritten(err)
		}
		if o.State == Failed {
			failed = errors.Join(failed, o.failure(t.Name))
			if !c.ContinueOnError {
				break
			}
		}
		d.Cursor = purge.Cursor{}
		if o.State != NotRun {
			c.Succeeded[t.Name] = o.State == Succeeded
		}
		c.Failed[t.Name] = o.State == Failed || o.State == NotRun
		if d.preview != nil && c.Failed[t.Name] {
			d.void(t)
			if d.now != nil {
				d.now.void(t)
			}
		}
	}
	return failed
}

// warnOfOther warns if the application cleans the database, too. It fails if that is not known.
func (d *database) warnOfOther(ctx context.Context) error {
	tx, err := d.engine.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	started, err := d.given.Catalog.OtherCleaner(ctx, tx)
	if started {
		d.log(
			ctx,
			severity.Warning,
			"the application's own workflow cleanup is started, too: stop it, or two clean one database",
		)
	}
	return err
}

// missed is the outcome of a task that requires one which did not succeed; it has no state if the task is to be run.
func missed(t plan.Task, failed map[string]bool) Outcome {
	i := slices.IndexFunc(t.Requires, func(name string) bool { return failed[name] })
	if i < 0 {
		return Outcome{}
	}
	return Outcome{State: NotRun, Detail: fmt.Sprintf("it needs the task %s, which did not succeed", t.Requires[i])}
}

// run executes one task, and again after transient errors of queries outside of its batches, except for a dry run,
// which would count twice. Its error is about the run, not the task.
func (d *database) run(ctx context.Context, t plan.Task) (o Outcome, err error) {
	d.recorder.begin()
	w := &task{database: d, cursor: d.Cursor}
	if d.now != nil {
		w.byStored = sync.OnceValues(func() (Outcome, error) { return d.now.run(ctx, t) })
		defer func() {
			d.now.supposing = nil
			if err == nil {
				var now Outcome
				now, err = w.byStored()
				o.compare(now)
			}
		}()
	}
	attempt := func() (err error) {
		o.State, err = w.traced(ctx, t)
		if err != nil {
			d.looked = time.Time{} // what is known of the database may be why
		}
		return err
	}
	if d.DryRun {
		err = d.ofStandby(ctx, attempt())
	} else {
		err = d.restart(ctx, t.Name, attempt)
	}
	if endsRun(err) || sqlstate.Lost(err) || ctx.Err() != nil {
		return o, cmp.Or(err, ctx.Err())
	}
	if err != nil {
		rescue.Log(cmp.Or(d.Log, slog.Default()), "task "+t.Name, err)
		o.State, o.Problem = Failed, sqlstate.Explain(err)
		if refused := (*RefusedError)(nil); errors.As(err, &refused) {
			o.Reason, o.Metadata, o.Trips = refused.Reason, refused.Metadata, refused.Trips
		}
	}
	o.Options, o.Cutoffs = d.optionsOf(t), map[string]Cutoff{}
	for name, at := range t.Cutoffs(d.given) {
		o.Cutoffs[name] = Cutoff{at, d.Now, d.clockOffset}
	}
	if w.due != nil {
		o.Cutoffs[t.Name] = Cutoff{w.due.Cutoff, d.Now, d.clockOffset}
	}
	d.keepers[t.Name] = w.kept
	o.Left, o.Detail = w.left, inWords(w.left)
	if t.Vacuums {
		o.Detail = notVacuumed(w.left.Tables)
	}
	if d.preview != nil {
		o.Planned = w.plans(d.inZone(ctx), t.Name)
	}
	return o, nil
}

// unwritten makes a run lost whose journal cannot be written, unless the run must stop.
func unwritten(err error) error {
	if endsRun(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// endsRun reports whether an error is about the run rather than the current task, or ends its attempt.
func endsRun(err error) bool {
	return errors.Is(err, ErrStopped) || errors.Is(err, ErrLost) || errors.Is(err, ErrHeld) ||
		errors.Is(err, context.Canceled)
}

// check fails, before anything is deleted, when this is not a Campaign database, or the role lacks rights that the
// tasks need; the error names every missing right on a table.
func (d *database) check(ctx context.Context) error {
	if err := d.look(ctx); err != nil {
		return err
	}
	if d.ContinueOnError {
		return nil
	}
	var missing []string
	for _, t := range d.Todo {
		_ = rescue.Call(func() error { // what fails here, the task will encounter and report
			p, err := d.compile(t)
			if err == nil {
				missing = append(missing, p.Rights...)
			}
			return err
		})
	}
	return rightsError(missing)
}

func rightsError(missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf(
		"the role lacks rights, nothing was changed; let an owner of the tables run: %s",
		strings.Join(slices.Compact(missing), "; "),
	)
}
