package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// parentsAtOnce is how many parents are worked on at once: their ids are sent with every statement.
const parentsAtOnce = 20_000

// carryOut does jobs: those that depend on parents for one chunk of these after another, step by step, then the others.
// It returns the parents without those that had to be kept.
func (t *task) carryOut(ctx context.Context, jobs []plan.Job, parents []int64) (done []int64, err error) {
	independent := func(j plan.Job) bool { return !j.Step.Dependent() }
	dependents := slices.DeleteFunc(slices.Clone(jobs), independent)
	atOnce := parentsAtOnce
	if t.preview != nil { // a row may depend on two
		atOnce = max(len(parents), 1)
	}
	for ids := range slices.Chunk(parents, atOnce) {
		of := ids
		for i, j := range dependents {
			// a step is for the parents that the steps before it have not kept
			if i > 0 && j.StepNumber != dependents[i-1].StepNumber {
				of = ids
			}
			stay, err := t.do(ctx, j, of)
			if err != nil {
				return nil, err
			}
			ids = t.leaveParents(ids, stay)
		}
		done = append(done, ids...)
	}
	others := slices.DeleteFunc(slices.Clone(jobs), func(j plan.Job) bool { return !independent(j) })
	begun := slices.IndexFunc(others, func(j plan.Job) bool { return j.Unit == t.cursor.Unit })
	for _, j := range others[max(begun, 0):] { // another worker may have reached one of them
		if _, err := t.do(ctx, j, nil); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// do does a job for some parents, and returns those that have to stay since rows of theirs do.
func (t *task) do(ctx context.Context, j plan.Job, parents []int64) (stay []int64, err error) {
	if j.Step.OfParents {
		if parents = without(parents, t.heldBack); len(parents) == 0 {
			return nil, nil
		}
	}
	if j.Step.Tables != nil {
		return nil, t.deleteLists(ctx, j, parents)
	}
	t.journal.At(j.Name, t.expected)
	s, err := t.bind(ctx, &j, parents)
	if err != nil {
		return nil, err
	}
	switch {
	case t.preview != nil:
		return nil, t.foresee(ctx, j, s)
	case t.DryRun:
		return nil, t.count(ctx, j, s)
	}
	from := t.cursor
	from.Before = t.left
	result, err := t.engine.Run(ctx, s, from)
	if j.CompanionWrites != "" && s.Companion != nil && sqlstate.Of(err) != "" && !sqlstate.Lost(err) {
		return t.doAlone(ctx, j, parents, err)
	}
	if t.vanished(ctx, err, s.Relation) {
		t.log(ctx, severity.Warning, j.Name+": the table was dropped meanwhile: skipped")
		return nil, nil
	}
	var undone purge.Retained
	var refusal *purge.RemoteError
	if errors.As(err, &refusal) {
		undone = t.refuse(ctx, j, s, refusal)
	} else if err != nil {
		return nil, err
	}
	return t.parentsLeft(ctx, j, s, undone.Plus(t.report(ctx, j.Name, result)), parents), nil
}

// vanished reports whether a statement failed because its own relation, with its quoted name, is gone: the application
// may drop one at any time. Only the catalog knows, since the relation that an error is about may be another one.
func (d *database) vanished(ctx context.Context, err error, relation string) (gone bool) {
	if !sqlstate.Is(err, pgerrcode.UndefinedTable) {
		return false
	}
	return d.Pool.QueryRow(ctx, "SELECT to_regclass($1) IS NULL", relation).Scan(&gone) == nil && gone
}

// doAlone does the rest of a job without the statement that accompanies its own, after an error that may be that one's.
func (t *task) doAlone(ctx context.Context, j plan.Job, parents []int64, refusal error) (stay []int64, err error) {
	j.Companion = nil
	if stay, err = t.do(ctx, j, parents); err == nil {
		t.log(
			ctx,
			severity.Warning,
			fmt.Sprintf("%s: %s could not be written: %s", j.Name, j.CompanionWrites, sqlstate.Explain(refusal)),
		)
	}
	return stay, err
}

// count counts the rows of a job for a dry run, on another server than the run's own.
func (t *task) count(ctx context.Context, j plan.Job, s purge.Sweep) error {
	if err := s.RemoteError(); err != nil {
		t.refuse(ctx, j, s, err)
		return nil
	}
	return t.uncounted(ctx, j, s, t.engine.Count(ctx, s, func(ctx context.Context, rows int64) error {
		if s.Set != nil {
			return t.journal.Count(ctx, purge.Delta{Updated: rows})
		}
		return t.journal.Count(ctx, purge.Delta{Deleted: rows})
	}))
}

// uncounted reports why rows were not counted, unless that fails the task.
func (t *task) uncounted(ctx context.Context, j plan.Job, s purge.Sweep, err error) error {
	switch {
	case sqlstate.Is(err, pgerrcode.LockNotAvailable):
		t.log(ctx, severity.Warning, j.Name+": someone keeps the whole table locked: the rest of it is not counted")
	case t.vanished(ctx, err, s.Relation):
		t.log(ctx, severity.Warning, j.Name+": the table was dropped meanwhile: skipped")
	case s.Elsewhere && err != nil && !sqlstate.Lost(err) && ctx.Err() == nil:
		t.refuse(ctx, j, s, err)
	default:
		return err
	}
	return nil
}

// bind returns a job's sweep for some parents, with all that is known only now, without the rows on hold.
func (t *task) bind(ctx context.Context, j *plan.Job, parents []int64) (s purge.Sweep, err error) {
	if s, err = t.bindRules(ctx, j, parents); err != nil {
		return s, err
	}
	return t.exceptHeld(ctx, j, s)
}

// bindRules returns a job's sweep for some parents, whether or not rows are on hold.
func (t *task) bindRules(ctx context.Context, j *plan.Job, parents []int64) (s purge.Sweep, err error) {
	s = j.Sweep
	if s.Args, err = t.values(ctx, s.Args, parents); err != nil {
		return s, err
	}
	if s.SetArgs, err = t.values(ctx, s.SetArgs, parents); err != nil {
		return s, err
	}
	if s.Companion != nil {
		also := *s.Companion
		if also.Args, err = t.values(ctx, also.Args, parents); err != nil {
			return s, err
		}
		s.Companion = &also
		if j.Step.Records && len(t.remoteOf(parents)) == 0 {
			s.Companion = nil
		}
	}
	if j.Step.OfParents {
		s.Keys = parents
	}
	if j.Except == nil || !t.keepers[j.Except.Task] {
		return s, nil
	}
	return t.except(ctx, j, s)
}

// except is a sweep without the rows that stay for the parents that another task had to keep.
func (t *task) except(ctx context.Context, j *plan.Job, s purge.Sweep) (purge.Sweep, error) {
	e := j.Except
	if err := rightsError(e.Rights); err != nil {
		return s, err
	}
	ids, known := t.excepted[e.Task]
	if !known {
		var err error
		if ids, err = t.loadParents(ctx, e.Parents); err != nil {
			return s, err
		}
		if t.preview != nil { // what would be known by the logs of these would be gone
			ids = without(ids, t.preview.worked[e.Task])
		}
		t.excepted[e.Task] = ids
	}
	if len(ids) == 0 {
		return s, nil
	}
	stays := purge.Condition{Where: fmt.Sprintf(e.Where, 1), Args: []any{ids}}
	if t.DryRun && strings.Contains(e.Where, "%[2]d") {
		stays = purge.Condition{Where: fmt.Sprintf(e.Where, 1, 2), Args: []any{ids, t.preview.worked[e.Task]}}
	}
	return judgedBy(j, s.Without(stays), true, e.Elsewhere), nil
}

// values are a job's parameters with the values of those that are known only now.
func (t *task) values(ctx context.Context, args []any, parents []int64) ([]any, error) {
	values := slices.Clone(args)
	for i, a := range args {
		switch a := a.(type) {
		case plan.ParentIDs:
			values[i] = parents
		case plan.RemoteIDs:
			values[i] = t.remoteOf(parents)
		case plan.SucceededTask:
			values[i] = t.Succeeded[string(a)]
		case plan.DryRunSet:
			values[i] = t.preview.sets[string(a)]
		case plan.RolledUpFrom:
			values[i] = nil
			if from, ok := t.preview.coalesced[string(a)]; ok {
				values[i] = from
			}
		case plan.Lookup:
			if _, known := t.lookups[a]; !known {
				var value any
				if err := t.Pool.QueryRow(ctx, string(a)).Scan(&value); err != nil {
					return nil, fmt.Errorf("look up a value for %s: %w", t.plan.Task.Name, err)
				}
				t.lookups[a] = value
			}
			values[i] = t.lookups[a]
		}
	}
	return values, nil
}

// remoteOf are those of some deliveries that stay on their mid-sourcing servers.
func (t *task) remoteOf(ids []int64) []int64 {
	stays := idSet(t.remote)
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return !stays[id] })
}
