package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// Execute does the tasks of a run. Its error is that of the failed tasks, ErrStopped, or one that wraps
// ErrLost; nil if no task failed.
func Execute(ctx context.Context, c Config, j Journal) error {
	x := &executing{run: NewRun(ctx, c, j, c.Pool), bounds: &bounds{}}
	x.run.Database.Engine.Bounds = x.bounds
	x.run.Database.trash = &trashGate{trashLimit: x.run.trashLimit()}
	if err := x.run.Begin(ctx); err != nil {
		return lostAs(err)
	}
	return lostAs(x.run.Tasks(ctx, x))
}

type executing struct {
	run    *Run
	bounds *bounds
}

// maxChanges is how often a task begins again because relations have changed.
const maxChanges = 10

// Try repeats a task after transient errors of queries outside of its batches, after a hold was created or the
// task's policy was changed, and after relations that its statements change or read were changed.
func (x *executing) Try(ctx context.Context, task string, attempt func() error) error {
	for changes := 0; ; {
		err := x.run.Database.Engine.Retry(ctx, task, attempt)
		changed := (*purge.ChangedError)(nil)
		switch {
		case errors.Is(err, ErrHoldCreated):
			x.run.Database.Log(ctx, message.Infof("%s: a hold was created and applies to the rest of the task", task))
		case errors.Is(err, ErrPolicyChanged): // the next attempt stops, and says why
		case errors.As(err, &changed) && changes < maxChanges:
			changes++
			x.run.Database.Forget()
			x.run.Database.Log(ctx, message.TablesChanged.With("tables", changed.Relations, "task", task))
		default:
			return err
		}
	}
}

func (x *executing) Finish(context.Context, rules.Task, *Attempt, *Outcome) error {
	return nil
}

func (x *executing) Do(ctx context.Context, a *Attempt) (done bool, err error) {
	t := &executedTask{Attempt: a, run: x.run, journal: x.run.Journal, bounds: x.bounds, expected: -1}
	if err := t.resume(ctx); err != nil {
		return false, err
	}
	if done, err = t.do(ctx); err != nil || !done || a.Err() != nil {
		return done, err
	}
	if err := t.advance(ctx); err != nil {
		return true, err
	}
	if a.ProvesRule() && t.journal.Done() == 0 && !t.detached {
		t.Log(ctx, message.PolicyNothingProven.With("guard", guard.Policy))
	}
	return true, t.vacuumEmptied(ctx)
}

// do does the parts of a task. done is false if there was nothing to do.
func (t *executedTask) do(ctx context.Context) (done bool, err error) {
	parents, err := chooseParents(ctx, t.Attempt)
	if err != nil {
		return false, err
	}
	judged, err := t.judged(ctx, parents)
	if err == nil {
		err = t.guard(ctx, judged)
	}
	if err == nil {
		err = t.checkUndo(ctx, judged)
	}
	if err != nil {
		return false, err
	}
	if parents.IDs, err = t.PurgeMidSourced(ctx, parents, executedRemote{t}); err != nil {
		return false, err
	}
	t.expected = estimateRows(ctx, t.Binder, t.Jobs, parents)
	if _, err := t.sweepAll(ctx, t.Jobs, parents); err != nil {
		return false, err
	}
	if err := countOnHold(ctx, t.Attempt); err != nil {
		return false, err
	}
	done, err = doEach(ctx, t.rollUp, drops{t}.dropAll, t.vacuumAll)
	return done || len(t.Jobs) > 0, err
}

// judged is the task as guards check it: without parents whose rows it retains.
func (t *executedTask) judged(ctx context.Context, parents rules.ChosenParents) (*JudgedTask, error) {
	if saved := t.Saved(); saved != nil {
		parents.IDs = rules.Without(parents.IDs, saved.Retained)
	}
	var err error
	if parents.IDs, err = t.WithoutKept(ctx, parents.IDs); err != nil {
		return nil, err
	}
	lists, err := drops{t}.ofLists(ctx, parents)
	return &JudgedTask{Attempt: t.Attempt, Jobs: t.Jobs, Parents: parents, lists: lists}, err
}

// guard fails with a guard.TrippedError, before anything is changed, if a guard trips.
func (t *executedTask) guard(ctx context.Context, f *JudgedTask) error {
	if t.History == nil {
		return nil
	}
	if trips := t.History.RefusedTrips(t.Options()); trips != nil {
		return guard.Refuse(trips)
	}
	trips, err := f.Judge(ctx, t.bounds.setGuard)
	if err != nil {
		return err
	}
	if f.lists != nil {
		more, err := drops{t}.judge(ctx, f.lists)
		if err != nil {
			return err
		}
		trips = append(trips, more...)
	}
	return guard.Refuse(trips)
}

type executedTask struct {
	*Attempt
	run     *Run // the main run, even if the task is on a mid-sourcing server
	journal Journal
	bounds  *bounds // nil on a mid-sourcing server
	// expected is how many rows will be deleted or updated; negative if unknown.
	expected int64
	// detached is set once a partition was detached. Its rows do not count as deleted.
	detached bool
}

// resume takes over the retained rows of a previous worker, and counts the rows that it left pending on another
// server.
func (t *executedTask) resume(ctx context.Context) error {
	done, err := t.journal.DoneByTable(ctx)
	if err != nil {
		return fmt.Errorf("read the task's progress: %w", err)
	}
	t.bounds.startTask(t.Saved(), done)
	if err := t.settlePending(ctx); err != nil {
		return err
	}
	if t.Task.ParentRule != nil { // a cursor does not include the parents: the task starts over
		*t.Cursor = purge.Cursor{}
	}
	if slices.ContainsFunc(t.Jobs, func(j rules.Job) bool { return j.Unit == t.Cursor.Unit }) {
		t.Retained = t.Cursor.Before
	}
	return nil
}

func (t *executedTask) settlePending(ctx context.Context) error {
	if t.Cursor.Pending == nil {
		return nil
	}
	defer func() { t.Cursor.Pending = nil }()
	rows := len(t.Cursor.Pending.Keys)
	uncounted := func(why string) error {
		t.Log(ctx, message.OtherServerRowsUncounted.With("rows", rows, "problem", why))
		return nil
	}
	i := slices.IndexFunc(t.Jobs, func(j rules.Job) bool { return j.Unit == t.Cursor.Unit })
	if i < 0 {
		return uncounted("their table is no longer among those of the task")
	}
	s, err := t.Binder.Sweep(ctx, &t.Jobs[i], t.Parents)
	if err != nil {
		return err
	}
	err = t.Binder.Engine.SettlePending(ctx, s, *t.Cursor)
	if failed := (*purge.OtherServerError)(nil); errors.As(err, &failed) {
		return uncounted(failed.Reason)
	}
	return err
}

// advance stores the reference time in the task's option, unless rows were retained.
func (t *executedTask) advance(ctx context.Context) error {
	option := t.Task.Advances
	catalog := t.Binder.Env.Catalog
	switch {
	case option == (campaign.Option{}) || t.Retained != (purge.Retained{}):
		return nil
	case !catalog.KeepsMoments():
		t.Log(ctx, message.Infof(
			"table XtkOption, or a column of it, is missing, so the time of this cleanup is not stored: the next run "+
				"checks all addresses again",
		))
		return nil
	case t.Binder.Env.Holds.WholeTable(catalog.Table("XtkOption")):
		t.Log(ctx, message.Infof(
			"table XtkOption is on hold, so the time of this cleanup is not stored: the next run checks the same "+
				"addresses again",
		))
		return nil
	}
	return t.inBatch(ctx, t.Task.Name, func(tx pgx.Tx) (purge.Delta, error) {
		return purge.Delta{}, campaign.StoreTime(ctx, tx, catalog, option, t.Binder.Env.Now)
	})
}

// inBatch runs fn in a batch, and retries it after transient errors. name identifies the batch in logs.
func (t *executedTask) inBatch(ctx context.Context, name string, fn func(tx pgx.Tx) (purge.Delta, error)) error {
	return t.Binder.Engine.Retry(ctx, name, func() error { return t.tryBatch(ctx, fn) })
}

// tryBatch waits until the server's load allows a batch, and runs fn in it.
func (t *executedTask) tryBatch(ctx context.Context, fn func(tx pgx.Tx) (purge.Delta, error)) error {
	if err := t.Binder.Engine.Wait(ctx); err != nil {
		return err
	}
	begun := time.Now()
	return t.Binder.Engine.InTx(ctx, func(tx pgx.Tx) error {
		delta, err := fn(tx)
		if err != nil {
			return err
		}
		delta.Begun, delta.Cursor.Before = begun, t.Retained
		if err := t.Binder.Engine.Commit(ctx, tx, delta); err != nil {
			return err
		}
		t.Binder.Engine.Spend(delta.Deleted+delta.Updated, begun)
		return nil
	})
}

// sweepAll sweeps the jobs that depend on parents, for some parents at a time and step by step, and then the other
// jobs. done are the parents that were not retained.
func (t *executedTask) sweepAll(
	ctx context.Context, jobs []rules.Job, parents rules.ChosenParents,
) (done []int64, err error) {
	independent := func(j rules.Job) bool { return !j.Step.Dependent() }
	dependents := slices.DeleteFunc(slices.Clone(jobs), independent)
	for ids := range slices.Chunk(parents.IDs, ParentsAtOnce) {
		ofStep := ids
		for i, j := range dependents {
			// A step gets the parents that the steps before it have not retained.
			if i == 0 || j.StepNumber != dependents[i-1].StepNumber {
				if j.Step.OfParents {
					if ids, err = t.retainForAttached(ctx, dependents[:i], ids); err != nil {
						return nil, err
					}
				}
				ofStep = ids
			}
			retained, err := t.sweep(ctx, j, rules.ChosenParents{IDs: ofStep, RowsOnHold: parents.RowsOnHold})
			if err != nil {
				return nil, err
			}
			ids = t.RetainParents(ids, retained)
		}
		done = append(done, ids...)
	}
	others := slices.DeleteFunc(slices.Clone(jobs), func(j rules.Job) bool { return !independent(j) })
	first := slices.IndexFunc(others, func(j rules.Job) bool { return j.Unit == t.Cursor.Unit })
	for _, j := range others[max(first, 0):] { // a previous worker may have come as far as one of them
		if _, err := t.sweep(ctx, j, rules.ChosenParents{}); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// sweep sweeps one job, and returns the parents that must be retained because dependent rows are.
func (t *executedTask) sweep(
	ctx context.Context, j rules.Job, parents rules.ChosenParents,
) (retained []int64, err error) {
	ids := parents.Of(j)
	if j.Step.OfParents && len(ids) == 0 {
		return nil, nil
	}
	if j.Step.Tables != nil {
		return nil, t.deleteLists(ctx, j, ids)
	}
	t.journal.At(j.Name, t.expected)
	s, err := t.Binder.Sweep(ctx, &j, ids)
	if err != nil {
		return nil, err
	}
	if rows, err := t.oldInDefault(ctx, j, s); err != nil || rows > 0 {
		return nil, err
	}
	if saved := t.Saved(); saved != nil && j.Partitions == purge.DetachPartitions &&
		!slices.Contains(saved.Dropped, j.Relation) {
		return nil, t.retainUnplanned(ctx, j, s)
	}
	if err := t.keep(ctx, &s); err != nil {
		return nil, err
	}
	from := *t.Cursor
	from.Before = t.Retained
	result, err := t.Binder.Engine.Sweep(ctx, s, from)
	if j.CompanionWrites != "" && s.Companion != nil && sqlstate.Of(err) != "" && !sqlstate.Lost(err) {
		return t.sweepWithoutCompanion(ctx, j, parents, err)
	}
	if campaign.Dropped(ctx, t.Binder.Pool, err, s.Relation) {
		t.Log(ctx, message.TableDropped.With("table", j.Name))
		return nil, nil
	}
	if result.Dependent > 0 {
		t.Log(ctx, whyDependent(j, result.Dependent))
	}
	var failed purge.Retained
	var remote *purge.OtherServerError
	switch {
	case errors.Is(err, purge.ErrDetached):
		t.Log(ctx, message.TableDetached.With("table", j.Name, "parent", j.Table.Name))
		failed.Tables = 1
		t.Retained = t.Retained.Plus(failed)
	case errors.As(err, &remote):
		failed = t.OtherServerFailed(ctx, j, s, remote)
	case err != nil:
		return nil, err
	}
	return t.parentsOfRetained(ctx, j, s, failed.Plus(t.report(ctx, j.Name, result)), ids), nil
}

// retainUnplanned retains a partition that would be detached, but is not in the saved plan.
func (t *executedTask) retainUnplanned(ctx context.Context, j rules.Job, s purge.Sweep) error {
	removes, problem, err := t.Binder.Engine.Removes(ctx, s)
	if removes {
		problem = "it is not in the saved plan"
	}
	t.report(ctx, j.Name, purge.Result{NotDetached: problem})
	return err
}

// sweepWithoutCompanion sweeps a job again after an error that may be that of the companion statement.
func (t *executedTask) sweepWithoutCompanion(
	ctx context.Context, j rules.Job, parents rules.ChosenParents, failed error,
) (retained []int64, err error) {
	j.Companion = nil
	if retained, err = t.sweep(ctx, j, parents); err == nil {
		t.Log(ctx, message.JobLogNotWritten.With("table", j.Name, "error", sqlstate.Explain(failed)))
	}
	return retained, err
}

// parentsOfRetained returns the parents of retained rows, or all parents if it cannot determine them. They are also
// retained, so that the next run finds both.
func (t *executedTask) parentsOfRetained(
	ctx context.Context, j rules.Job, s purge.Sweep, rows purge.Retained, parents []int64,
) []int64 {
	if rows == (purge.Retained{}) || !j.Step.Dependent() {
		return nil
	}
	ids, err := t.Binder.ParentsOf(ctx, j, s)
	if err != nil {
		ids = parents
	}
	if len(ids) > 0 { // a locked table may have had no such rows
		t.Log(ctx,
			message.DependentsRetained.With("rows", len(ids), "table", t.Plan.Parents.Table.Name, "dependents", j.Name))
	}
	return ids
}

// retainForAttached retains the parents of rows in partitions that were added to tables since the task was
// compiled: no job deletes these rows. It returns the other parents.
func (t *executedTask) retainForAttached(ctx context.Context, jobs []rules.Job, parents []int64) ([]int64, error) {
	jobs = slices.DeleteFunc(slices.Concat(jobs, t.Plan.Partitionless), func(j rules.Job) bool {
		return !j.Step.Dependent() || j.Step.OfParents
	})
	if len(jobs) == 0 {
		return parents, nil
	}
	var tables []*campaign.Table
	for _, j := range jobs {
		tables = append(tables, j.Table)
	}
	attached, err := campaign.AddedLeaves(ctx, t.Binder.Pool, tables)
	if err != nil {
		return nil, err
	}
	for i, j := range jobs {
		if i > 0 && j.StepNumber == jobs[i-1].StepNumber && j.Table == jobs[i-1].Table { // another leaf of it
			continue
		}
		for _, leaf := range attached[j.Table] {
			if parents, err = t.retainForLeaf(ctx, j, leaf, parents); err != nil {
				return nil, err
			}
		}
	}
	return parents, nil
}

// retainForLeaf retains the parents of rows in a leaf, whether or not these are on hold, or all parents if the rows
// cannot be read. It returns the other parents.
func (t *executedTask) retainForLeaf(
	ctx context.Context, j rules.Job, leaf campaign.Leaf, parents []int64,
) ([]int64, error) {
	s, err := t.Binder.Obsolete(ctx, &j, parents)
	if err != nil {
		return nil, err
	}
	s.Relation = leaf.Quoted()
	retained, err := t.Binder.ParentsOf(ctx, j, s)
	problem := "dependent rows are in " + leaf.Name
	if err != nil {
		retained, problem = parents, fmt.Sprintf("%s may have dependent rows: %s", leaf.Name, purge.Message(err))
	}
	if len(retained) == 0 {
		return parents, nil
	}
	t.Log(ctx, message.TableAttached.With("table", leaf.Name, "parent", j.Table.Name),
		message.ParentsRetained.With("rows", len(retained), "table", t.Plan.Parents.Table.Name, "problem", problem))
	return t.RetainParents(parents, retained), nil
}
