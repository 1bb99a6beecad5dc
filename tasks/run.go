package tasks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/purge"
)

// ErrStopped says that the run was told to stop. What stopped it is the journal's to know.
var ErrStopped = errors.New("the run was stopped")

// ErrLost says that the run is no longer this worker's, or that the database is gone: nothing may be concluded
// about the task at work.
var ErrLost = errors.New("the run was lost")

// Config is what a run is given.
type Config struct {
	Pool *pgxpool.Pool
	// Now is the run's only clock.
	Now time.Time
	// DryRun counts and changes nothing.
	DryRun bool
	// ContinueOnError goes on after a failed task.
	ContinueOnError bool
	// Todo are the tasks still to be done, in order. The first may have been begun by another worker.
	Todo []Task
	// Cursor is where that one had come to.
	Cursor purge.Cursor
	// Succeeded are the tasks of this run that have succeeded before.
	Succeeded map[string]bool
	// MaxRows caps every batch; 0: no cap.
	MaxRows int
	// Lock is the advisory lock that the run's batches share; 0: none.
	Lock int64
	// MidSourcing are the databases of mid-sourcing servers, by the names of their accounts.
	MidSourcing map[string]*pgxpool.Pool
	// RelatedListTables are further tables whose iGroupId is the id of a list.
	RelatedListTables []string
}

// Run works through the tasks and reports to the journal. Its error is the first failed task's, ErrStopped, or
// one that wraps ErrLost; nil means that nothing failed.
func Run(ctx context.Context, c Config, j Journal) error {
	err := run(ctx, c, j)
	if Lost(err) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

func run(ctx context.Context, c Config, j Journal) error {
	c.Succeeded = maps.Collect(maps.All(c.Succeeded)) // never nil
	e := &Env{Config: c, journal: j}
	e.engine = &purge.Engine{Pool: c.Pool, Commit: j.Commit, MaxRows: c.MaxRows, Lock: c.Lock, Warn: func(message string) { e.log(ctx, Warning, message) }}
	if err := e.look(ctx); err != nil {
		return err
	}
	if !c.ContinueOnError {
		if err := e.checkRights(ctx, c.Todo); err != nil {
			return err
		}
	}
	var failed error
	for _, t := range c.Todo {
		if err := j.TaskStarted(ctx, t.Name); err != nil {
			return err
		}
		state, err := e.run(ctx, t)
		if endsRun(err) || Lost(err) || ctx.Err() != nil {
			return err
		}
		problem := ""
		if err != nil {
			state, problem = Failed, err.Error()
			failed = errors.Join(failed, fmt.Errorf("task %s failed: %w", t.Name, err))
		}
		if err := j.TaskFinished(ctx, state, problem); err != nil {
			return err
		}
		if failed != nil && !c.ContinueOnError {
			break
		}
		e.Cursor = purge.Cursor{}
		if state == Succeeded {
			e.Succeeded[t.Name] = true
		}
	}
	return failed
}

// checkRights fails, before anything is deleted, when the role may not do what the tasks need; the error names
// every missing right.
func (e *Env) checkRights(ctx context.Context, todo []Task) error {
	var missing []string
	for _, t := range todo {
		p, err := e.begin(ctx, t)
		if err != nil {
			return err
		}
		missing = append(missing, p.rights...)
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
