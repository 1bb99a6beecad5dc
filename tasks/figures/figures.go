package figures

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/candidates"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Task struct {
	Attempt *pipeline.Attempt
	Jobs    []plan.Job
	Parents binding.Parents
	// Found has the rows that a dry run has counted, by the quoted names of tables, so that they need not be counted
	// again; nil in a run that deletes.
	Found map[string]int64
	// Before returns how many rows of a table earlier tasks of a dry run would delete; nil in a run that deletes.
	Before func(table string) int64
}

// Judge returns the guards that trip. It calls bound with each share that the run must not exceed.
func (t *Task) Judge(ctx context.Context, bound func(guard.Trip)) (trips []guard.Trip, err error) {
	former, options := t.Attempt.MovedFast(), t.Attempt.Options()
	for _, table := range t.tables() {
		name := table.Quoted()
		f := &figures{Task: t, table: table, former: former}
		f.jobs = slices.DeleteFunc(slices.Clone(t.Jobs), func(j plan.Job) bool {
			return !candidates.Deletes(j, table) || (j.Step.Dependent() && len(t.Parents.IDs) == 0)
		})
		rows := guard.Rows{
			Table: name,
			Empties: slices.ContainsFunc(f.jobs, func(j plan.Job) bool {
				return j.Step.Empties && candidates.Touches(j, name)
			}),
			Orphans: t.Attempt.Task.Basis != "" && slices.ContainsFunc(f.jobs, func(j plan.Job) bool {
				return len(j.Orphans) > 0 && candidates.Touches(j, name)
			}),
			CutoffMoved: len(former) > 0,
			Options:     options,
			ShowRefused: t.Found != nil,
			Unproven:    t.Attempt.Unproven(),
		}
		if t.Before != nil {
			rows.Before = t.Before(name)
		}
		judgement, err := t.Attempt.History.JudgeRows(ctx, rows, f)
		if err != nil {
			return nil, err
		}
		if judgement.Bound != nil {
			bound(*judgement.Bound)
		}
		trips = append(trips, judgement.Trips...)
	}
	return trips, nil
}

// tables returns the tables whose rows the jobs, or foreign keys with them, delete or change.
func (t *Task) tables() (tables []*campaign.Table) {
	add := func(table *campaign.Table) {
		if table != nil && !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
	}
	for _, j := range t.Jobs {
		if j.Step.Dependent() && len(t.Parents.IDs) == 0 {
			continue
		}
		add(j.Table)
		for _, affected := range j.Affected {
			if affected.CanSelect && affected.Location == "" && !j.NoTIDs {
				add(affected)
			}
		}
		if j.Paired != nil {
			add(t.Attempt.Database().Env.Catalog.Table(j.Step.Paired.Table))
		}
	}
	return tables
}

type figures struct {
	*Task
	table *campaign.Table
	jobs  []plan.Job
	// former are the former values of cutoffs that have moved too fast.
	former map[string]time.Time
}

var _ guard.Figures = (*figures)(nil)

// Estimate returns the greater one of an estimate by the planner's statistics and one by a sample of the table,
// since the statistics may be older than the last change.
func (f *figures) Estimate(ctx context.Context) (float64, error) {
	if f.Found != nil {
		return float64(f.Found[f.table.Quoted()]), nil
	}
	b := f.Attempt.Binder
	if slices.ContainsFunc(f.jobs, func(j plan.Job) bool { // nothing is known about rows that foreign keys delete
		return j.NoTIDs || !candidates.Touches(j, f.table.Quoted())
	}) {
		return math.Inf(1), nil
	}
	planned := Estimate(ctx, b, f.jobs, f.Parents)
	if planned < 0 {
		return math.Inf(1), nil
	}
	var sampled int64
	for _, j := range f.jobs {
		s, err := b.Sweep(ctx, &j, f.Parents.IDs)
		if err != nil {
			return 0, err
		}
		rows, err := b.Engine.Sample(ctx, s)
		if err := ignoreUnreadable(ctx, b, err, s.Relation); err != nil {
			return 0, err
		}
		sampled += rows
	}
	return float64(max(planned, sampled)), nil
}

// total returns the rows of the relations $1 by their sizes and the planner's statistics, and whether these are
// fresh: less than a tenth of the rows has changed since.
const total = `SELECT COALESCE(sum(greatest(c.reltuples, 0) / greatest(c.relpages,
		1) * pg_relation_size(c.oid) / current_setting('block_size')::float8), 0),
	COALESCE(bool_and(c.relkind IN ('r', 'm') AND (c.reltuples > 0 OR c.relpages = 0
		AND pg_relation_size(c.oid) = 0)
		AND pg_stat_get_mod_since_analyze(c.oid) <= greatest(c.reltuples, 0) / 10), false)
FROM pg_class c WHERE c.oid = ANY ($1::oid[])`

// Total reads from the primary, since a standby has no statistics about changes.
func (f *figures) Total(ctx context.Context) (rows float64, fresh bool, err error) {
	return f.totalOf(ctx, f.table.Leaves...)
}

func (f *figures) totalOf(ctx context.Context, leaves ...campaign.Leaf) (rows float64, fresh bool, err error) {
	var oids []uint32
	for _, leaf := range leaves {
		oids = append(oids, leaf.OID)
	}
	err = f.Attempt.Database().Primary.QueryRow(ctx, total, oids).Scan(&rows, &fresh)
	return rows, fresh, err
}

func (f *figures) CountTotal(ctx context.Context) (rows float64, err error) {
	b := f.Attempt.Binder
	if f.table.Location != "" {
		err := b.Pool.QueryRow(ctx, "SELECT count(*)::float8 FROM "+f.table.Quoted()).Scan(&rows)
		return rows, err
	}
	for _, leaf := range f.table.Leaves {
		if !leaf.CanSelect { // no row there is obsolete: other leaves without rights fail the task
			n, _, err := f.totalOf(ctx, leaf)
			if err != nil {
				return rows, err
			}
			rows += n
			continue
		}
		all := purge.Sweep{Name: leaf.Name, Relation: leaf.Quoted(), Where: sqlexpr.SQL("true")}
		err := b.Engine.Count(ctx, all, func(ctx context.Context, n int64) error {
			rows += float64(n)
			return f.Attempt.Journal().Proceed(ctx)
		})
		if err := ignoreUnreadable(ctx, b, err, all.Relation); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func (f *figures) Count(ctx context.Context, enough int64) (int64, error) {
	if f.Found != nil {
		return f.Found[f.table.Quoted()], nil
	}
	return f.count(ctx, f.Attempt.Binder, f.jobs, f.Parents, enough, nil)
}

func (f *figures) CountWithoutDelays(ctx context.Context, enough int64) (int64, error) {
	b, parents, err := f.assume(ctx, f.Attempt.Task.WithoutDelays(), nil)
	if err != nil {
		return 0, err
	}
	parents.IDs = binding.Intersection(f.Parents.IDs, parents.IDs)
	return f.count(ctx, b, b.Plan.Jobs, parents, f.exactly(enough), nil)
}

func (f *figures) CountSinceCutoff(ctx context.Context, enough int64) (int64, error) {
	b, parents, err := f.assume(ctx, f.Attempt.Task, f.former)
	if err != nil {
		return 0, err
	}
	parents.IDs = binding.Without(f.Parents.IDs, parents.IDs)
	byUnit := map[string]plan.Job{}
	for _, j := range b.Plan.Jobs {
		byUnit[j.Unit] = j
	}
	except := map[string]sqlexpr.Expr{}
	for _, j := range f.jobs {
		former, applies := byUnit[j.Unit]
		if j.Step.Dependent() || !applies {
			continue
		}
		s, err := b.Sweep(ctx, &former, nil)
		if err != nil {
			return 0, err
		}
		except[j.Unit] = s.Where
	}
	return f.count(ctx, b, f.jobs, parents, f.exactly(enough), except)
}

// exactly returns up to which number to count. A dry run shows the exact number, so it counts to the end.
func (f *figures) exactly(enough int64) int64 {
	if f.Found != nil {
		return math.MaxInt64
	}
	return enough
}

func (f *figures) assume(
	ctx context.Context, t plan.Task, cutoffs map[string]time.Time,
) (*binding.Binder, binding.Parents, error) {
	d := f.Attempt.Database()
	env := d.EnvFor(f.Attempt.Task.Name)
	env.Earlier = cutoffs
	compiled, err := plan.Compile(t, env)
	if err != nil {
		return nil, binding.Parents{}, err
	}
	b := d.Binder(compiled, f.Attempt.Binder.State)
	ids, err := b.Parents(ctx, compiled.Parents)
	return b, binding.Parents{IDs: ids, RowsOnHold: f.Parents.RowsOnHold}, err
}
