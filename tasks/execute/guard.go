package execute

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// guard fails with a RefusedError if the task would do something unusual to rows that nobody has accepted. It has
// changed nothing by then.
func (t *task) guard(ctx context.Context, jobs []plan.Job, ids []int64) error {
	if t.history == nil || t.DryRun {
		return nil
	}
	if p := t.planned(); p != nil {
		ids = without(ids, p.Stays)
	}
	trips := t.latched()
	if trips == nil {
		ids, err := t.butKept(ctx, ids)
		if err != nil {
			return err
		}
		g := t.guarded(jobs, ids)
		for _, table := range g.tables() {
			more, err := g.judge(ctx, table)
			if err != nil {
				return err
			}
			trips = append(trips, more...)
		}
		more, err := t.judgeListTables(ctx, jobs, ids)
		if err != nil {
			return err
		}
		trips = append(trips, more...)
	}
	return tripped(trips)
}

// stands reports whether a latch is of what the task would do now.
func (t *task) stands(l Latch) bool {
	return maps.Equal(l.Options, t.optionsOf(t.plan.Task))
}

// latched are the guards that trip without being judged.
func (t *task) latched() (trips []Trip) {
	for _, l := range t.history.Latched {
		if t.stands(l) && t.history.accepted(l.Guard, l.Table) < 0 {
			trips = append(trips, l.Trip)
		}
	}
	return trips
}

// isLatched reports whether a guard trips whatever it would find.
func (t *task) isLatched(of Guard, table string) bool {
	return slices.ContainsFunc(
		t.history.Latched,
		func(l Latch) bool { return l.Guard == of && l.Table == table && t.stands(l) },
	)
}

// guarded judges what the task at work would do with some rows of its set.
type guarded struct {
	*task
	jobs []plan.Job
	ids  []int64
	// earlier are the moments in place of cutoffs that have moved too fast; empty: none has.
	earlier map[string]time.Time
	// found are the exact numbers of rows that would go, by table; nil: they are counted as far as is necessary.
	found map[string]int64
}

func (t *task) guarded(jobs []plan.Job, ids []int64) *guarded {
	g := &guarded{task: t, jobs: jobs, ids: ids}
	g.earlier = g.moved()
	return g
}

// of are those rows of the set that a job takes, or takes rows of: what belongs to one that is held back goes without
// it.
func (g *guarded) of(j plan.Job) []int64 {
	if j.Step.OfParents {
		return without(g.ids, g.heldBack)
	}
	return g.ids
}

// tables are those that the jobs take rows of.
func (g *guarded) tables() (tables []*campaign.Table) {
	add := func(t *campaign.Table) {
		if t != nil && !slices.Contains(tables, t) {
			tables = append(tables, t)
		}
	}
	for _, j := range g.jobs {
		if j.Step.Dependent() && len(g.ids) == 0 {
			continue
		}
		add(j.Table)
		if j.Paired != nil {
			add(g.given.Catalog.Table(j.Step.Paired.Table))
		}
	}
	return tables
}

// moved are what those cutoffs of the task were that have moved by more than the time that passed, which neither clock
// may exaggerate.
func (g *guarded) moved() map[string]time.Time {
	earlier := map[string]time.Time{}
	for name, at := range g.plan.Task.Cutoffs(g.given) {
		if was, moved := g.movedFast(name, at); moved {
			earlier[name] = was
		}
	}
	return earlier
}

// movedFast reports whether a cutoff has moved by more than the time that passed, and what it was.
func (t *task) movedFast(name string, at time.Time) (was time.Time, moved bool) {
	before, known := t.history.Cutoffs[name]
	passed := t.Now.Sub(before.ReferenceTime) + min(0, t.clockOffset-before.ClockOffset)
	return before.At, known && at.Sub(before.At) > passed+cutoffSlack
}

// takes reports whether a job takes rows of a table.
func takes(j plan.Job, table string) bool {
	return j.Root == table || (j.Paired != nil && j.Paired.Relation == table)
}

// judge returns the guards that trip for a table.
func (g *guarded) judge(ctx context.Context, table *campaign.Table) (trips []Trip, err error) {
	jobs := slices.DeleteFunc(
		slices.Clone(g.jobs),
		func(j plan.Job) bool { return !takes(j, table.Quoted()) || (j.Step.Dependent() && len(g.ids) == 0) },
	)
	about, err := g.about(ctx, table.Quoted(), jobs)
	if err != nil {
		return nil, err
	}
	for _, judge := range []func(context.Context, *campaign.Table, []plan.Job, float64) (*Trip, error){
		g.share,
		g.growth,
		g.cutoff,
	} {
		trip, err := judge(ctx, table, jobs, about)
		if err != nil {
			return nil, fmt.Errorf("judge how many rows of %s go: %w", table.Name, err)
		}
		if trip != nil {
			trips = append(trips, *trip)
		}
	}
	return trips, nil
}

// share judges how much of a table would go, all tasks and runs within a day together.
func (g *guarded) share(ctx context.Context, table *campaign.Table, jobs []plan.Job, about float64) (*Trip, error) {
	percent, name := g.history.MaxSharePercent, table.Quoted()
	if percent == 0 || slices.ContainsFunc(jobs, func(j plan.Job) bool { return j.Step.Empties }) {
		return nil, nil
	}
	before := g.history.Taken[name]
	before.Lately += g.preview.takenOf(name)
	least := max(g.history.MinRows-1, 0)
	var leaves []string
	for _, leaf := range table.Leaves {
		leaves = append(leaves, leaf.Quoted())
	}
	rows, fresh, err := g.rowsOf(ctx, leaves)
	if err != nil {
		return nil, err
	}
	limit := func(deleted int64) int64 {
		return g.history.most(GuardShare, name, (rows+float64(deleted))*percent/100, least)
	}
	t := &Trip{GuardShare, name, before.Lately, limit(0)} // an estimate may include rows that are gone
	if !g.isLatched(GuardShare, name) {
		near := (float64(before.Lately)+about)*farFrom >= float64(t.Most)
		if (!near && fresh) || (float64(before.Lately)+about)*farFrom < float64(least) {
			g.bound(*t)
			return nil, nil
		}
	}
	if !fresh || before.Deleted > 0 {
		if rows, err = g.count(ctx, table); err != nil {
			return nil, err
		}
		t.Most = limit(before.Deleted)
	}
	n, err := g.rows(ctx, name, jobs, max(t.Most-t.Number, 0))
	if t.Number += n; err != nil || ((n == 0 || t.Number <= t.Most) && !g.isShown(GuardShare, name)) {
		g.bound(Trip{GuardShare, name, before.Lately, t.Most})
		return nil, err
	}
	return t, nil
}

// isShown reports whether a dry run shows a guard even if its number is no longer too great: it trips at every run.
func (t *task) isShown(of Guard, table string) bool { return t.DryRun && t.isLatched(of, table) }

// bound has the account see to it that the estimate was right.
func (g *guarded) bound(t Trip) {
	if g.bounds != nil {
		g.bounds.share(t)
	}
}

// growth judges how many rows go by rules without a delay.
func (g *guarded) growth(ctx context.Context, table *campaign.Table, _ []plan.Job, about float64) (*Trip, error) {
	times, name := g.history.MaxGrowth, table.Quoted()
	usual := g.history.Taken[name].Usual
	if times == 0 || (usual == 0 && !g.isLatched(GuardGrowth, name)) {
		return nil, nil
	}
	t := &Trip{
		Guard: GuardGrowth,
		Table: name,
		Most:  g.history.most(GuardGrowth, name, times*float64(usual), max(g.history.MinRows-1, 0)),
	}
	if about*farFrom < float64(t.Most) && !g.isLatched(GuardGrowth, name) {
		return nil, nil
	}
	timeless, err := plan.Compile(g.plan.Task.WithoutDelays(), g.assumed(nil))
	if err != nil {
		return nil, err
	}
	return g.narrower(ctx, t, timeless, true)
}

// cutoff judges how many rows are between a cutoff and what it was, if that has moved too fast.
func (g *guarded) cutoff(ctx context.Context, table *campaign.Table, _ []plan.Job, about float64) (*Trip, error) {
	name := table.Quoted()
	t := &Trip{Guard: GuardCutoff, Table: name, Most: g.history.most(GuardCutoff, name, 0, max(g.history.MinRows-1, 0))}
	if !g.history.Cutoff || (len(g.earlier) == 0 && !g.isLatched(GuardCutoff, name)) ||
		(about*farFrom < float64(t.Most) && !g.isLatched(GuardCutoff, name)) {
		return nil, nil
	}
	before, err := plan.Compile(g.plan.Task, g.assumed(g.earlier))
	if err != nil {
		return nil, err
	}
	return g.narrower(ctx, t, before, false)
}

// assumed is what the task is compiled for, by some moments in place of cutoffs.
func (g *guarded) assumed(earlier map[string]time.Time) plan.Env {
	given := g.givenFor(g.plan.Task.Name)
	given.Earlier = earlier
	return given
}

// narrower counts the rows of a table that go by another plan of the task, or by none of it, and returns the guard if
// these are too many.
func (g *guarded) narrower(ctx context.Context, t *Trip, by *plan.Plan, in bool) (*Trip, error) {
	w := g.other(by)
	w.heldBack = g.heldBack
	set, err := w.loadParents(ctx, by.Parents)
	if err != nil {
		return nil, err
	}
	n := guarded{task: w, ids: intersection(g.ids, set)}
	others := map[string]plan.Job{}
	for _, j := range by.Jobs {
		others[j.Unit] = j
	}
	n.jobs = by.Jobs
	but := map[string]purge.Condition{}
	if !in {
		n.ids, n.jobs = without(g.ids, set), g.jobs
		for _, j := range g.jobs {
			other, applies := others[j.Unit]
			if j.Step.Dependent() || !applies {
				continue
			}
			s, err := w.bind(ctx, &other, nil)
			if err != nil {
				return nil, err
			}
			but[j.Unit] = purge.Condition{Where: s.Where, Args: s.Args}
		}
	}
	enough := t.Most
	if g.found != nil {
		enough = math.MaxInt64
	}
	if t.Number, err = n.rowsBut(
		ctx,
		t.Table,
		n.jobs,
		enough,
		but,
	); err != nil ||
		(t.Number <= t.Most && !g.isShown(t.Guard, t.Table)) {
		return nil, err
	}
	return t, nil
}
