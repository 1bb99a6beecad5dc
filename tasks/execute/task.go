package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// task is a task at work in a database.
type task struct {
	*database
	plan   *plan.Plan
	cursor purge.Cursor   // where to go on after another worker
	left   purge.Retained // the obsolete rows that it had to leave
	// refusal is the first error by which a row refused; nil: none did, here.
	refusal error
	// undone is what could not be done to the end; it fails the task when the rest is done.
	undone error
	// kept says that parents had to stay.
	kept     bool
	expected int64 // rows that will be deleted or updated; negative when unknown
	// heldBack are those of the set whose own rows stay, since rows of theirs are held.
	heldBack []int64
	// remote are the ids of deliveries that stay on their mid-sourcing servers.
	remote []int64
	// lookups are the parameters that were asked for.
	lookups map[plan.Lookup]any
	// history is what guards compare with; nil: nothing is judged.
	history *History
	// due is what a task on another database found; nil: it is none, or did not get so far.
	due *outside.Due
	// excepted are the parents for which rows stay; nil: not asked for yet.
	excepted map[string][]int64
	// byStored executes the task by the options as they are stored, once, where it supposes others; nil: it does not.
	byStored func() (Outcome, error)
}

// run executes the task.
func (t *task) run(ctx context.Context, what plan.Task) (State, error) {
	if err := t.look(ctx); err != nil {
		return Failed, err
	}
	ctx = t.inZone(ctx)
	var err error
	if t.plan, err = t.compile(what); err != nil {
		return Failed, err
	}
	if p := t.planned(); p != nil {
		if err := t.confirm(*p); err != nil {
			return Failed, err
		}
	}
	if t.bounds != nil {
		gone, err := t.journal.Gone(ctx)
		if err != nil {
			return Failed, err
		}
		t.bounds.begin(t.planned(), gone)
	}
	if t.history, err = t.journal.History(ctx); err != nil {
		return Failed, fmt.Errorf("read what guards compare with: %w", err)
	}
	t.tell(ctx)
	if err := rightsError(t.plan.Rights); err != nil {
		return Failed, err
	}
	if o, ok := t.Outside[what.Name]; ok {
		return t.outside(ctx, o)
	}
	t.lookups, t.excepted, t.remote = map[plan.Lookup]any{}, map[string][]int64{}, nil
	ids, err := t.loadParents(ctx, t.plan.Parents)
	if err != nil {
		return Failed, err
	}
	ids = t.only(ids)
	jobs, err := t.applicable(ctx)
	if err != nil {
		return Failed, err
	}
	if err := t.settle(ctx, jobs, ids); err != nil {
		return Failed, err
	}
	if what.ParentSet != nil { // a cursor does not include the set: the task starts over
		t.cursor = purge.Cursor{}
	}
	t.left, t.refusal, t.undone, t.kept = purge.Retained{}, nil, nil, false
	if slices.ContainsFunc(jobs, func(j plan.Job) bool { return j.Unit == t.cursor.Unit }) {
		t.left = t.cursor.Before
	} else {
		t.left.Tables = int64(len(t.plan.SkippedTables))
	}
	done, err := t.work(ctx, what, jobs, ids)
	if err != nil {
		return Failed, err
	}
	if err := errors.Join(t.undone, t.tooMany()); err != nil {
		return Failed, err
	}
	if !done {
		return Skipped, nil
	}
	if err := t.advance(ctx, what.Advances); err != nil {
		return Failed, err
	}
	return Succeeded, t.vacuumEmptied(ctx, what.Name)
}

// tell logs what is not done, and why, and traces what is.
func (t *task) tell(ctx context.Context) {
	for _, n := range t.plan.Notes {
		t.log(ctx, n.Level, n.Text)
	}
	var rules []string
	for _, j := range t.plan.Jobs {
		rules = append(rules, fmt.Sprintf("%s: %s", j.Name, cmp.Or(j.Rule, "all")))
	}
	trace.SpanFromContext(ctx).SetAttributes(attribute.StringSlice("cleanupd.rules", rules))
}

// work does all that the task is to do, and returns whether there was anything to do it to.
func (t *task) work(ctx context.Context, what plan.Task, jobs []plan.Job, ids []int64) (done bool, err error) {
	all := ids
	if t.preview != nil {
		t.preview.begun[what.Name] = all
	}
	if ids, err = t.retain(ctx, ids); err != nil {
		return false, err
	}
	if ids, err = t.holdBack(ctx, jobs, ids); err != nil {
		return false, err
	}
	if err := t.guard(ctx, jobs, ids); err != nil {
		return false, err
	}
	if t.plan.Parents != nil && what.ParentSet.MidSourced {
		if ids, err = t.purgeMidSourced(ctx, ids); err != nil {
			return false, err
		}
	}
	t.remember(ids)
	if t.byStored != nil {
		t.now.supposing = t
		if _, err := t.byStored(); err != nil {
			return false, err
		}
	}
	if t.preview == nil || !t.preview.blind {
		t.expected = t.estimate(ctx, jobs, ids)
	}
	if _, err := t.carryOut(ctx, jobs, ids); err != nil {
		return false, err
	}
	done = len(jobs) > 0
	if t.preview != nil && t.preview.blind {
		coalesced, err := t.coalesce(ctx)
		return done || coalesced, err
	}
	if err := t.countHeld(ctx, jobs, all); err != nil {
		return false, err
	}
	for _, more := range []func(context.Context) (bool, error){t.coalesce, t.dropWorkTables, t.optimizeStorage} {
		some, err := more(ctx)
		if err != nil {
			return false, err
		}
		done = done || some
	}
	if t.preview != nil {
		return done, t.foreseeGuards(ctx)
	}
	return done, nil
}

// advance sets a moment to the run's clock, unless something was left.
func (t *task) advance(ctx context.Context, moment campaign.Option) error {
	switch {
	case moment == (campaign.Option{}) || t.DryRun || t.left != (purge.Retained{}):
		return nil
	case !t.given.Catalog.KeepsMoments():
		t.log(
			ctx,
			severity.Info,
			"table XtkOption, or a column of it, is missing, which keeps when the last cleanup was: the next run "+
				"asks for all addresses again",
		)
		return nil
	case t.Holds.WholeTable(t.given.Catalog.Table("XtkOption")):
		t.log(
			ctx,
			severity.Info,
			"table XtkOption is held, which keeps when the last cleanup was: the next run asks for the same "+
				"addresses again",
		)
		return nil
	}
	return t.inBatch(ctx, t.plan.Task.Name, func(tx Tx) (purge.Delta, error) {
		return purge.Delta{}, campaign.StoreMoment(ctx, tx, t.given.Catalog, moment, t.Now)
	})
}

// inBatch is that of the database, again after transient errors. what names the batch for people.
func (t *task) inBatch(ctx context.Context, what string, fn func(tx Tx) (purge.Delta, error)) error {
	return t.engine.Retry(ctx, what, func() error { return t.once(ctx, fn) })
}

// once is inBatch without another try.
func (t *task) once(ctx context.Context, fn func(tx Tx) (purge.Delta, error)) error {
	return t.database.inBatch(ctx, t.left, fn)
}

// applicable are the jobs without those that have nothing to go by: a parent without any row proves nothing, unless a
// task that may rightly empty it has succeeded in this run.
func (t *task) applicable(ctx context.Context) (jobs []plan.Job, err error) {
	credible := map[string]bool{}
	for _, j := range t.plan.Jobs {
		idle := j.OnlyOrphans
		for _, o := range j.Orphans {
			ok, known := credible[o.Parent]
			if !known {
				if ok, err = t.credible(ctx, o); err != nil {
					return nil, err
				}
				credible[o.Parent] = ok
			}
			idle = idle && !ok
		}
		if !idle {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// credible reports whether what a parent does not have is gone, with a note if that is not known.
func (t *task) credible(ctx context.Context, o plan.Orphan) (bool, error) {
	if t.Succeeded[o.EmptyAfter] {
		return true, nil
	}
	var empty bool
	err := t.engine.Retry(
		ctx,
		o.Parent,
		func() (err error) { empty, err = t.given.Catalog.Table(o.Parent).Empty(ctx, t.Pool); return err },
	)
	if err != nil {
		return false, fmt.Errorf("ask %s: %w", o.Parent, err)
	}
	if empty {
		t.log(ctx, severity.Warning, emptyParent(o.Parent))
	}
	return !empty, nil
}

// emptyParent is the note about a parent that proves nothing.
func emptyParent(name string) string {
	return "table " + name + " is empty, so nothing is without one: skipped"
}
