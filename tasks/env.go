package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Env is the environment of a running task.
type Env struct {
	Config
	Catalog *campaign.Catalog
	Options *campaign.Options

	set     *fixedSet  // of the current task; nil when it has none
	looked  bool       // the next task need not look again
	left    purge.Left // the obsolete rows that the current task had to leave
	refusal error      // the first by which a row refused in it; nil: none did, here
	refused error      // what it could not do to the end
	kept    bool       // parents in the set of the current task had to stay
	// keptDeliveries says that deliveries which were to be deleted had to stay in this run, or may have, under a previous worker.
	keptDeliveries bool
	expected       int64 // rows that the current task will delete or update; negative when unknown
	engine         *purge.Engine
	journal        Journal

	warning sync.Mutex
	warned  map[string]bool // the engine's warnings during the current task
}

// log writes to the journal. If that fails, the next batch fails, too, which must write to it.
func (e *Env) log(ctx context.Context, level Level, messages ...string) {
	_ = e.journal.Log(ctx, level, messages...)
}

// warnOnce logs a warning of the engine, such as about a lock, once per task.
func (e *Env) warnOnce(ctx context.Context, message string) {
	e.warning.Lock()
	told := e.warned[message]
	e.warned[message] = true
	e.warning.Unlock()
	if !told {
		e.log(ctx, Warning, message)
	}
}

// look reads the catalog and the options as they are now, for the next task.
func (e *Env) look(ctx context.Context) (err error) {
	if e.looked {
		e.looked = false
		return nil
	}
	if e.Catalog, err = campaign.LoadCatalog(ctx, e.Pool); err != nil {
		return err
	}
	e.engine.CountAtOnce = e.Catalog.Version >= 150_000
	e.Options, err = campaign.ReadOptions(ctx, e.Pool, e.Catalog)
	return err
}

// run executes one task.
func (e *Env) run(ctx context.Context, t Task) (State, error) {
	if err := e.look(ctx); err != nil {
		return Failed, err
	}
	p, err := e.begin(ctx, t, true)
	if err != nil {
		return Failed, err
	}
	e.tell(ctx, p)
	if err := rightsError(p.rights); err != nil {
		return Failed, err
	}
	if err := e.settle(ctx, p); err != nil {
		return Failed, err
	}
	if t.Set != nil { // a cursor does not include the set: the task starts over
		e.Cursor = purge.Cursor{}
	}
	e.left, e.refusal, e.refused, e.kept = purge.Left{}, nil, nil, false
	if slices.ContainsFunc(p.units, func(u unit) bool { return u.Unit == e.Cursor.Unit }) {
		e.left = e.Cursor.Before
	}
	var later error
	if t.Prepare != nil && e.set != nil {
		if later, err = t.Prepare(ctx, e); err != nil {
			return Failed, err
		}
	}
	done := len(p.units) > 0
	e.expected = e.estimate(ctx, p.units)
	if err := e.carryOut(ctx, t.Steps); err != nil {
		return Failed, err
	}
	if t.Do != nil {
		more, err := t.Do(ctx, e)
		if err != nil {
			return Failed, err
		}
		done = done || more
	}
	later = errors.Join(later, e.refused, e.tooMany())
	switch {
	case later != nil:
		return Failed, later
	case !done:
		return Skipped, nil
	}
	if t.After != nil && !e.DryRun && e.left == (purge.Left{}) {
		if err := e.inBatch(ctx, t.Name, func(tx Tx) (purge.Delta, error) { return purge.Delta{}, t.After(ctx, tx, e) }); err != nil {
			return Failed, err
		}
	}
	return Succeeded, e.vacuumEmptied(ctx, t.Name)
}

// begin fixes the task's set and plans its steps. Without the ids of the set, which take a scan of its table, the plan says
// only which rights are missing.
func (e *Env) begin(ctx context.Context, t Task, ids bool) (*plan, error) {
	noted := &plan{}
	e.set = nil
	if t.Set != nil {
		var err error
		if e.set, err = e.fix(ctx, noted, *t.Set); err == nil && e.set != nil && ids {
			err = e.set.read(ctx, e.Pool)
		}
		if err != nil {
			return nil, err
		}
	}
	p, err := e.plan(ctx, numbered(t.Steps))
	if err != nil {
		return nil, err
	}
	for _, n := range p.notes {
		noted.note(n.level, "%s", n.text)
	}
	noted.units, noted.rights = p.units, append(noted.rights, p.rights...)
	for _, n := range t.Needs {
		if table := e.Catalog.Table(n.Table); table != nil {
			e.needs(noted, table, n.Rights...)
		}
	}
	return noted, nil
}

func (e *Env) tell(ctx context.Context, p *plan) {
	for _, n := range p.notes {
		e.log(ctx, n.level, n.text)
	}
}

// carryOut executes steps: those that depend on the task's set for one chunk of the set after another, then
// the others. It removes parents that had to be held back from the set.
func (e *Env) carryOut(ctx context.Context, steps []Step) error {
	var dependent, others []numberedStep
	for _, s := range numbered(steps) {
		if s.dependent() {
			dependent = append(dependent, s)
		} else {
			others = append(others, s)
		}
	}
	if e.set != nil && len(e.set.ids) > 0 {
		var done []int64
		whole := *e.set
		for ids := range slices.Chunk(whole.ids, setSize) {
			e.set.ids = ids
			for i := range dependent { // planned one by one: a step may narrow the set for the next ones
				if err := e.sweep(ctx, dependent[i:i+1]); err != nil {
					return err
				}
			}
			done = append(done, e.set.ids...)
		}
		e.set.ids = done
	}
	return e.sweep(ctx, others)
}

// sweep executes the sweeps of steps from the cursor on, or counts for a dry run.
func (e *Env) sweep(ctx context.Context, steps []numberedStep) error {
	p, err := e.plan(ctx, steps)
	if err != nil {
		return err
	}
	begun := slices.IndexFunc(p.units, func(u unit) bool { return u.Unit == e.Cursor.Unit })
	for _, u := range p.units[max(begun, 0):] { // another worker may have reached one of them
		e.journal.At(u.Name, e.expected)
		if e.DryRun {
			if err := u.Refusal(); err != nil {
				e.refuse(ctx, u, err)
			} else if err := e.engine.Count(ctx, u.Sweep, func(ctx context.Context, rows int64) error {
				if u.Set != nil {
					return e.journal.Count(ctx, purge.Delta{Updated: rows})
				}
				return e.journal.Count(ctx, purge.Delta{Deleted: rows})
			}); sqlstate.Is(err, pgerrcode.LockNotAvailable) {
				e.log(ctx, Warning, u.Name+": someone keeps the whole table locked: the rest of it is not counted")
			} else if u.Elsewhere && err != nil && !Lost(err) && ctx.Err() == nil {
				e.refuse(ctx, u, err)
			} else if err != nil {
				return err
			}
			continue
		}
		from := e.Cursor
		from.Before = e.left
		result, err := e.engine.Run(ctx, u.Sweep, from)
		if u.also != "" && sqlstate.Of(err) != "" && !Lost(err) {
			if err := e.sweepAlone(ctx, u, err); err != nil {
				return err
			}
			continue
		}
		if vanished(err) {
			e.log(ctx, Warning, u.Name+": the table was dropped meanwhile: skipped")
			continue
		}
		var refusal *purge.RefusedError
		if errors.As(err, &refusal) {
			e.refuse(ctx, u, refusal)
		} else if err != nil {
			return err
		}
		e.report(ctx, u, result)
	}
	return nil
}

// sweepAlone does the rest of a step without the statement that accompanies its own, after an error that may be that one's.
func (e *Env) sweepAlone(ctx context.Context, u unit, refusal error) error {
	step := u.step
	step.Also = nil
	err := e.sweep(ctx, []numberedStep{step})
	if err == nil {
		e.log(ctx, Warning, fmt.Sprintf("%s: %s could not be written: %s", u.Name, u.also, Explain(refusal)))
	}
	return err
}

// inBatch runs fn in a batch's transaction, with the account of what it did, and again after transient errors. what names it
// for people.
func (e *Env) inBatch(ctx context.Context, what string, fn func(tx Tx) (purge.Delta, error)) error {
	return e.engine.Retry(ctx, what, func() error { return e.once(ctx, fn) })
}

// once runs fn in a batch's transaction, with the account of what it did, as soon as the server's load allows it.
func (e *Env) once(ctx context.Context, fn func(tx Tx) (purge.Delta, error)) error {
	if err := e.engine.Polite(ctx); err != nil {
		return err
	}
	begun := time.Now()
	tx, err := e.engine.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	d, err := fn(tx)
	if err != nil {
		return err
	}
	d.Begun, d.Cursor.Before = begun, e.left
	if err := e.engine.Commit(ctx, tx, d); err != nil {
		return err
	}
	e.engine.Spend(d.Deleted + d.Updated)
	return nil
}

// retry runs a task, and again after transient errors of queries outside of its batches. A dry run is not retried: it would
// count twice.
func (e *Env) retry(ctx context.Context, task string, run func() error) error {
	if e.DryRun {
		return run()
	}
	return e.engine.Retry(ctx, task, run)
}

// endsRun reports whether an error is about the run rather than the current task.
func endsRun(err error) bool {
	return errors.Is(err, ErrStopped) || errors.Is(err, ErrLost) || errors.Is(err, context.Canceled)
}
