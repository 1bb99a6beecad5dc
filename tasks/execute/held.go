package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// ErrHeld says that a hold was created since the task began: nothing of the batch was committed.
var ErrHeld = errors.New("a hold was created meanwhile")

// holdBack finds the rows of a task's set that stay since they are held, or rows of theirs: their own rows do, and
// everything of theirs where that alone tells whose a held row is. It returns the others, and those whose own rows
// stay.
func (t *task) holdBack(ctx context.Context, jobs []plan.Job, ids []int64) (rest []int64, err error) {
	t.heldBack = nil
	var themselves []int64
	if p := t.plan.Parents; p != nil && p.OnHold.Where != "" {
		set := *p
		set.Where += " AND (" + p.OnHold.NumberedAfter(len(p.Args)) + ") IS TRUE"
		set.Args = slices.Concat(p.Args, p.OnHold.Args)
		if themselves, err = t.loadParents(ctx, &set); err != nil {
			return nil, err
		}
	}
	back := slices.Clone(themselves)
	for _, j := range jobs {
		if !j.Step.Dependent() || j.Step.OfParents || len(ids) == 0 {
			continue
		}
		s, any, err := t.bindHeld(ctx, &j, ids)
		if err != nil {
			return nil, err
		}
		if !any {
			continue
		}
		var stay []int64
		err = t.engine.Retry(ctx, j.Name, func() (err error) { stay, err = t.parentsOf(ctx, j, s); return err })
		switch {
		case t.vanished(ctx, err, s.Relation):
		case err != nil:
			return nil, fmt.Errorf("look for held rows of %s: %w", j.Name, err)
		case j.Step.Message != "":
			t.left.OnHold += int64(len(without(intersection(ids, stay), themselves)))
			ids = t.exclude(ids, stay)
		default:
			back = append(back, stay...)
		}
	}
	t.heldBack = intersection(ids, back)
	t.kept = t.kept || len(t.heldBack) > 0
	t.left.OnHold += int64(len(without(t.heldBack, themselves)))
	return ids, nil
}

// intersection are those of some ids that are among others.
func intersection(ids, others []int64) (both []int64) {
	among := idSet(others)
	for _, id := range ids {
		if among[id] {
			both = append(both, id)
		}
	}
	return both
}

// countHeld counts the rows of jobs that stay since they are held.
func (t *task) countHeld(ctx context.Context, jobs []plan.Job, ids []int64) error {
	for i, j := range jobs {
		deletedLater := j.Step.OfParents &&
			slices.ContainsFunc(jobs[i+1:], func(later plan.Job) bool { return later.Step.OfParents })
		if deletedLater || (j.Step.Dependent() && len(ids) == 0) {
			continue
		}
		if err := t.countHeldBy(ctx, j, ids); err != nil {
			return fmt.Errorf("count held rows of %s: %w", j.Name, err)
		}
	}
	return nil
}

// countHeldBy counts the obsolete rows of a job that are held: those of parents by a single statement, which finds them
// by their link.
func (t *task) countHeldBy(ctx context.Context, j plan.Job, ids []int64) error {
	j.Except = nil
	s, any, err := t.bindHeld(ctx, &j, ids)
	if err != nil || !any {
		return err
	}
	if j.Step.Dependent() {
		err = t.engine.Retry(ctx, j.Name, func() error {
			tx, err := t.engine.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(ctx) }()
			var rows int64
			err = tx.QueryRow(ctx, "SELECT count(*) FROM ONLY "+s.Relation+" AS r WHERE "+s.Where, s.Args...).
				Scan(&rows)
			t.left.OnHold += rows
			return err
		})
	} else {
		if s.Paired != nil {
			alone := *s.Paired
			alone.Before = nil // they take none of these
			s.Paired = &alone
		}
		err = t.engine.Count(ctx, s, func(_ context.Context, rows int64) error { t.left.OnHold += rows; return nil })
	}
	return t.uncounted(ctx, j, s, err)
}

// butHeld are the work tables of a kind that are not held. Those in use are not asked for held recipients: they stay if
// they can have any.
func (t *task) butHeld(
	ctx context.Context,
	d plan.Drop,
	tables []campaign.WorkTable,
	ask question,
) (rest []campaign.WorkTable, err error) {
	rest = slices.DeleteFunc(
		slices.Clone(tables),
		func(w campaign.WorkTable) bool { return t.Holds.WorkTable(w, d.WorkTables.Owner) },
	)
	n := len(tables) - len(rest)
	if slices.ContainsFunc(rest, t.mayHaveHeld) {
		unused, err := ask(ctx, t.Pool, rest)
		if err != nil {
			return nil, err
		}
		held, err := t.haveHeld(ctx, unused)
		if err != nil {
			return nil, err
		}
		rest = slices.DeleteFunc(rest, func(w campaign.WorkTable) bool {
			has, asked := held[w.Name]
			if has {
				n++
			}
			return t.mayHaveHeld(w) && (has || !asked)
		})
	}
	if n > 0 {
		t.log(
			ctx,
			severity.Info,
			fmt.Sprintf("%d tables %s stay: they, or what they belong to, are held", n, maskOf(d.Prefix)),
		)
	}
	return rest, nil
}

// NotOfRecipients returns the tables whose rows tasks delete, or foreign keys with them, and that reach a recipient
// otherwise than by iRecipientId: a hold of recipients does not cover that.
func NotOfRecipients(ctx context.Context, c Config) (names []string, err error) {
	c.DryRun = true // the tables are asked for, not what the role may do to them
	given, err := survey(ctx, c)
	if err != nil {
		return nil, err
	}
	names = []string{}
	for _, t := range c.Pipeline {
		p, err := plan.Compile(t, given)
		if err != nil {
			return nil, err
		}
		for _, j := range p.Jobs {
			for _, table := range append(j.Table.Dependents(), j.Table) {
				if notOfRecipients(table) {
					names = append(names, table.NameIn(given.Catalog.Schema))
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// notOfRecipients reports whether a table reaches a recipient otherwise than by iRecipientId.
func notOfRecipients(t *campaign.Table) bool {
	return t.OfRecipients ||
		(!t.Has("iRecipientId") &&
			slices.ContainsFunc(
				[]string{"iBroadLogId", "iMessageId", "iTrackingLogId", "iWebTrackingLogId", "iVisitorId"},
				func(column string) bool { return t.Has(column) },
			))
}

// restart begins a task anew after a hold was created.
func (d *database) restart(ctx context.Context, task string, attempt func() error) error {
	for {
		err := d.engine.Retry(ctx, task, attempt)
		if !errors.Is(err, ErrHeld) {
			return err
		}
		d.log(ctx, severity.Info, task+": a hold was created: the rest is done by it")
	}
}
