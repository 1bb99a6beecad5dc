package figures

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/candidates"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// errEnough ends counting when more rows were found than needed.
var errEnough = errors.New("enough")

// ignoreUnreadable ignores that a relation is locked or dropped: the batches will find that, too.
func ignoreUnreadable(ctx context.Context, b *binding.Binder, err error, relation string) error {
	if errors.Is(err, errEnough) || sqlstate.Is(err, pgerrcode.LockNotAvailable) ||
		campaign.Dropped(ctx, b.Pool, err, relation) {
		return nil
	}
	return err
}

// count returns how many rows of the table jobs would delete, each row counted at the first job that deletes it.
// except has conditions on rows to leave out, by the units of the jobs. It stops at one more than enough.
func (f *figures) count(
	ctx context.Context, b *binding.Binder, jobs []plan.Job, parents binding.Parents, enough int64,
	except map[string]sqlexpr.Expr,
) (n int64, err error) {
	sets, err := f.candidates(ctx, b, jobs, parents, except)
	if err != nil {
		return 0, err
	}
	var counted []string
	for _, s := range sets {
		if slices.Contains(counted, s.Job.Relation) {
			continue
		}
		counted = append(counted, s.Job.Relation)
		f.Attempt.Journal().Progress.At(s.Job.Name+": counted first", -1)
		add := func(ctx context.Context, rows int64) error {
			if n += rows; n > enough {
				n = enough + 1
				return errEnough
			}
			return f.Attempt.Journal().Proceed(ctx)
		}
		err := ignoreUnreadable(ctx, b, f.read(ctx, b, s, sets, add), s.Job.Relation)
		if err != nil || n > enough {
			return n, err
		}
	}
	return n, nil
}

func (f *figures) candidates(
	ctx context.Context, b *binding.Binder, jobs []plan.Job, parents binding.Parents, except map[string]sqlexpr.Expr,
) (sets []candidates.Set, err error) {
	for _, j := range jobs {
		ids := parents.Of(j)
		if !candidates.Deletes(j, f.table) || (j.Step.Dependent() && len(ids) == 0) {
			continue
		}
		s, err := b.Sweep(ctx, &j, ids)
		if err != nil {
			return nil, err
		}
		if c, ok := except[j.Unit]; ok {
			s = s.Without(c)
		}
		for _, set := range candidates.Of(b.Plan.Task.Name, j, s) {
			if candidates.Touches(set.Job, f.table.Quoted()) {
				set.Rows.Date, set.Rows.Key = "", "" // only counted
				sets = append(sets, set)
			}
		}
	}
	return sets, nil
}

// read counts the rows of the sets on one relation.
func (f *figures) read(
	ctx context.Context, b *binding.Binder, s candidates.Set, all []candidates.Set,
	add func(ctx context.Context, rows int64) error,
) error {
	table := f.table.Quoted()
	if s.Job.NoTIDs {
		sweep := s.Job.Sweep
		sweep.Where = s.Rows.Where
		if sweep.OtherServerError() != nil { // the job deletes nothing
			return nil
		}
		found, err := b.Engine.CountElsewhere(ctx, sweep)
		switch {
		case err != nil:
			return err
		case s.Job.Root == table:
			return add(ctx, found.Rows)
		}
		return add(ctx, found.Paired)
	}
	sets, rows := candidates.OfRelation(all, s.Job.Relation)
	found := func(ctx context.Context, window []purge.Tally) error {
		var n int64
		for i, tally := range window {
			if sets[i].Job.Root == table {
				n += tally.Rows
			} else {
				n += tally.Paired
			}
		}
		return add(ctx, n)
	}
	return b.Engine.CountCandidates(ctx, s.Job.Name, s.Job.Relation, rows, found)
}
