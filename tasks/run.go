package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// ErrStopped says that the run was told to stop. The journal knows why.
var ErrStopped = errors.New("the run was stopped")

// ErrLost says that the run is no longer this worker's, or that the database is gone: it says nothing about the current task.
var ErrLost = errors.New("the run was lost")

// Config configures a run.
type Config struct {
	Pool *pgxpool.Pool
	// Now is the run's only clock.
	Now time.Time
	// DryRun counts without changing anything.
	DryRun bool
	// ContinueOnError continues after a failed task.
	ContinueOnError bool
	// Todo are the tasks still to be done, in order. Another worker may have started the first one.
	Todo []Task
	// Cursor is how far that worker came with it.
	Cursor purge.Cursor
	// Succeeded are the tasks of this run that have already succeeded.
	Succeeded map[string]bool
	// Failed are those that have failed, or were not run since one that they require did not succeed.
	Failed map[string]bool
	// Settings configure batches.
	purge.Settings
	// Lock is the advisory lock that the run's batches share; 0: none.
	Lock int64
	// MidSourcing says what is done about the deliveries of mid-sourcing servers.
	MidSourcing MidSourcing
	// RelatedListTables are further tables whose iGroupId is the id of a list.
	RelatedListTables []string
	// Include are further tables that tasks take in, by the tasks' names: stored names.
	Include map[string][]string
	// Log is told of panics, with their stacks; nil: slog.Default().
	Log *slog.Logger
}

// Run executes the tasks and reports to the journal. Its error is that of the failed tasks, ErrStopped, or
// one that wraps ErrLost; nil means that nothing failed.
func Run(ctx context.Context, c Config, j Journal) error {
	err := run(ctx, c, j)
	if Lost(err) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

func run(ctx context.Context, c Config, j Journal) error {
	c.Succeeded, c.Failed = maps.Collect(maps.All(c.Succeeded)), maps.Collect(maps.All(c.Failed)) // never nil
	e := &Env{Config: c, journal: j, warned: map[string]bool{}}
	e.engine = purge.New(purge.Engine{Pool: c.Pool, Commit: j.Commit, Settings: c.Settings, Lock: c.Lock,
		Way: j.Way, Throttled: j.Throttled, Retried: j.Retried, Proceed: j.Proceed, Warn: func(message string) { e.warnOnce(ctx, message) }})
	if err := e.engine.Retry(ctx, "the catalog", func() error { return e.check(ctx) }); err != nil {
		return err
	}
	_, chosen := c.Succeeded[deliveries.Name]
	e.keptDeliveries = chosen && !slices.ContainsFunc(c.Todo, func(t Task) bool { return t.Name == deliveries.Name })
	var failed error
	for _, t := range c.Todo {
		if err := j.TaskStarted(ctx, t.Name); err != nil {
			return unwritten(err)
		}
		if missed := slices.IndexFunc(t.Requires, func(name string) bool { return e.Failed[name] }); missed >= 0 {
			if err := j.TaskFinished(ctx, Outcome{State: NotRun, Detail: fmt.Sprintf("it needs the task %s, which did not succeed", t.Requires[missed])}); err != nil {
				return unwritten(err)
			}
			e.Failed[t.Name], e.Cursor = true, purge.Cursor{}
			continue
		}
		var o Outcome
		e.warned, e.left = map[string]bool{}, purge.Left{}
		err := e.retry(ctx, t.Name, func() (err error) { o.State, err = e.traced(ctx, t); return err })
		if endsRun(err) || Lost(err) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			rescue.Log(cmp.Or(c.Log, slog.Default()), "task "+t.Name, err)
			o.State, o.Problem = Failed, Explain(err)
			failed = errors.Join(failed, fmt.Errorf("task %s failed: %s", t.Name, o.Problem))
		}
		o.Left, o.Detail = e.left, inWords(e.left)
		if t.Name == deliveries.Name {
			e.keptDeliveries = e.kept
		}
		if err := j.TaskFinished(ctx, o); err != nil {
			return unwritten(err)
		}
		if failed != nil && !c.ContinueOnError {
			break
		}
		e.Cursor = purge.Cursor{}
		e.Succeeded[t.Name], e.Failed[t.Name] = o.State == Succeeded, o.State == Failed
	}
	return failed
}

// unwritten makes a run lost whose journal cannot be written, unless the run must stop.
func unwritten(err error) error {
	if endsRun(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// check fails, before anything is deleted, when this is not a Campaign database, or the role lacks rights that the tasks
// need; the error names every missing right on a table.
func (e *Env) check(ctx context.Context) error {
	if err := e.look(ctx); err != nil {
		return err
	}
	defer func() { e.looked = true }()
	if e.ContinueOnError {
		return nil
	}
	var missing []string
	for _, t := range e.Todo {
		p, err := e.begin(ctx, t, false)
		switch {
		case err == nil:
			missing = append(missing, p.rights...)
		case Lost(err):
			return err
		} // otherwise the task will encounter and report it
	}
	return rightsError(missing)
}

func rightsError(missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("the role lacks rights, nothing was changed; let an owner of the tables run: %s", strings.Join(slices.Compact(missing), "; "))
}
