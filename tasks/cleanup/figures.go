package cleanup

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type JudgedTask struct {
	Attempt *Attempt
	Jobs    []rules.Job
	Parents rules.ChosenParents
	// Found has the rows that a dry run has counted, by the quoted names of tables, so that they need not be counted
	// again; nil in a run that deletes.
	Found map[string]int64
	// Before returns how many rows of a table earlier tasks of a dry run would delete; nil in a run that deletes.
	Before func(table string) int64

	lists []string   // the quoted names of tables that are dropped with lists; only in a run that deletes
	read  []*figures // nil at first
}

// Judge returns the guards that trip. It calls bound with each share that the run must not exceed.
func (t *JudgedTask) Judge(ctx context.Context, bound func(guard.Trip)) (trips []guard.Trip, err error) {
	former, options := t.Attempt.MovedFast(), t.Attempt.Options()
	for _, f := range t.figures() {
		name := f.table.Quoted()
		f.former = former
		rows := guard.Rows{
			Table: name,
			Empties: slices.ContainsFunc(f.jobs, func(j rules.Job) bool {
				return j.Step.Empties && rules.Touches(j, name)
			}),
			Orphans: t.Attempt.Task.Basis != "" && slices.ContainsFunc(f.jobs, func(j rules.Job) bool {
				return len(j.Orphans) > 0 && rules.Touches(j, name)
			}),
			CutoffMoved: len(former) > 0,
			Options:     options,
			DryRun:      t.Found != nil,
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

// figures returns the figures of the tables whose rows the jobs, or foreign keys with them, delete or change. What they
// have read is not read again.
func (t *JudgedTask) figures() []*figures {
	if t.read != nil {
		return t.read
	}
	for _, table := range t.tables() {
		f := &figures{JudgedTask: t, table: table}
		f.jobs = slices.DeleteFunc(slices.Clone(t.Jobs), func(j rules.Job) bool {
			return !rules.Deletes(j, table) || (j.Step.Dependent() && len(t.Parents.IDs) == 0)
		})
		t.read = append(t.read, f)
	}
	return t.read
}

// tables returns the tables whose rows the jobs, or foreign keys with them, delete or change.
func (t *JudgedTask) tables() (tables []*campaign.Table) {
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
	*JudgedTask
	table *campaign.Table
	jobs  []rules.Job
	// former are the former values of cutoffs that have moved too fast.
	former map[string]time.Time
	// estimate and counted are what Estimate, and a Count of all rows, have returned; nil at first.
	estimate *float64
	counted  *int64
}

var _ guard.Figures = (*figures)(nil)

// Estimate returns the greater one of an estimate by the planner's statistics and one by a sample of the table,
// since the statistics may be older than the last change.
func (f *figures) Estimate(ctx context.Context) (float64, error) {
	if f.Found != nil {
		return float64(f.Found[f.table.Quoted()]), nil
	}
	if f.estimate == nil {
		rows, err := f.readEstimate(ctx)
		if err != nil {
			return 0, err
		}
		f.estimate = &rows
	}
	return *f.estimate, nil
}

func (f *figures) readEstimate(ctx context.Context) (float64, error) {
	b := f.Attempt.Binder
	if slices.ContainsFunc(f.jobs, func(j rules.Job) bool { // nothing is known about rows that foreign keys delete
		return j.NoTIDs || !rules.Touches(j, f.table.Quoted())
	}) {
		return math.Inf(1), nil
	}
	planned := estimateRows(ctx, b, f.jobs, f.Parents)
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
		err := b.Engine.Count(ctx, all, func(ctx context.Context, n purge.Tally) error {
			rows += float64(n.Rows)
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
	if f.counted != nil {
		return *f.counted, nil
	}
	rows, err := f.count(ctx, f.Attempt.Binder, f.jobs, f.Parents, enough, nil)
	if err == nil && rows <= enough {
		f.counted = &rows
	}
	return rows, err
}

func (f *figures) CountWithoutDelays(ctx context.Context, enough int64) (int64, error) {
	b, parents, err := f.assume(ctx, f.Attempt.Task.WithoutDelays(), nil)
	if err != nil {
		return 0, err
	}
	parents.IDs = rules.Intersection(f.Parents.IDs, parents.IDs)
	return f.count(ctx, b, b.Plan.Jobs, parents, f.exactly(enough), nil)
}

func (f *figures) CountSinceCutoff(ctx context.Context, enough int64) (int64, error) {
	b, parents, err := f.assume(ctx, f.Attempt.Task, f.former)
	if err != nil {
		return 0, err
	}
	parents.IDs = rules.Without(f.Parents.IDs, parents.IDs)
	byUnit := map[string]rules.Job{}
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

// exactly returns how far to count. A dry run counts to the end, since it shows the exact number.
func (f *figures) exactly(enough int64) int64 {
	if f.Found != nil {
		return math.MaxInt64
	}
	return enough
}

func (f *figures) assume(
	ctx context.Context, t rules.Task, cutoffs map[string]time.Time,
) (*rules.Binder, rules.ChosenParents, error) {
	d := f.Attempt.Database()
	env := d.EnvFor(f.Attempt.Task.Name)
	env.Earlier = cutoffs
	compiled, err := rules.Compile(t, env)
	if err != nil {
		return nil, rules.ChosenParents{}, err
	}
	b := d.Binder(compiled, f.Attempt.Binder.State)
	ids, err := b.Parents(ctx, compiled.Parents)
	return b, rules.ChosenParents{IDs: ids, RowsOnHold: f.Parents.RowsOnHold}, err
}

// errEnough ends counting when more rows were found than needed.
var errEnough = errors.New("enough")

// ignoreUnreadable ignores errEnough, and the error of a relation that is locked or dropped, which the batches will
// report.
func ignoreUnreadable(ctx context.Context, b *rules.Binder, err error, relation string) error {
	if errors.Is(err, errEnough) || sqlstate.Is(err, pgerrcode.LockNotAvailable) ||
		campaign.Dropped(ctx, b.Pool, err, relation) {
		return nil
	}
	return err
}

// count returns how many rows of the table jobs would delete, each row counted at the first job that deletes it.
// except has conditions on rows to leave out, by the units of the jobs. It stops at one more than enough.
func (f *figures) count(
	ctx context.Context, b *rules.Binder, jobs []rules.Job, parents rules.ChosenParents, enough int64,
	except map[string]sqlexpr.Expr,
) (n int64, err error) {
	all, err := f.rows(ctx, b, jobs, parents, except)
	if err != nil {
		return 0, err
	}
	var counted []string
	for _, r := range all {
		if slices.Contains(counted, r.Job.Relation) {
			continue
		}
		counted = append(counted, r.Job.Relation)
		f.Attempt.Journal().At(r.Job.Name+": counted first", -1)
		add := func(ctx context.Context, rows int64) error {
			if n += rows; n > enough {
				n = enough + 1
				return errEnough
			}
			return f.Attempt.Journal().Proceed(ctx)
		}
		err := ignoreUnreadable(ctx, b, f.read(ctx, b, r, all, add), r.Job.Relation)
		if err != nil || n > enough {
			return n, err
		}
	}
	return n, nil
}

func (f *figures) rows(
	ctx context.Context, b *rules.Binder, jobs []rules.Job, parents rules.ChosenParents, except map[string]sqlexpr.Expr,
) (all []rules.JobRows, err error) {
	for _, j := range jobs {
		ids := parents.Of(j)
		if !rules.Deletes(j, f.table) || (j.Step.Dependent() && len(ids) == 0) {
			continue
		}
		s, err := b.Sweep(ctx, &j, ids)
		if err != nil {
			return nil, err
		}
		if c, ok := except[j.Unit]; ok {
			s = s.Without(c)
		}
		for _, r := range rules.RowsOf(b.Plan.Task.Name, j, s) {
			if rules.Touches(r.Job, f.table.Quoted()) {
				r.Rows.Date, r.Rows.Key = "", "" // only counted
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// read counts the rows of one relation.
func (f *figures) read(
	ctx context.Context, b *rules.Binder, r rules.JobRows, all []rules.JobRows,
	add func(ctx context.Context, rows int64) error,
) error {
	table := f.table.Quoted()
	if r.Job.NoTIDs {
		sweep := r.Job.Sweep
		sweep.Where = r.Rows.Where
		if sweep.OtherServerError() != nil { // the job deletes nothing
			return nil
		}
		return b.Engine.Count(ctx, sweep, func(ctx context.Context, found purge.Tally) error {
			if r.Job.Root == table {
				return add(ctx, found.Rows)
			}
			return add(ctx, found.Paired)
		})
	}
	rows, candidates := rules.RowsOfRelation(all, r.Job.Relation)
	found := func(ctx context.Context, window []purge.Tally) error {
		var n int64
		for i, tally := range window {
			if rows[i].Job.Root == table {
				n += tally.Rows
			} else {
				n += tally.Paired
			}
		}
		return add(ctx, n)
	}
	return b.Engine.CountCandidates(ctx, r.Job.Name, r.Job.Relation, candidates, found)
}

// ParentsAtOnce is the most parents for which one statement deletes rows: their ids are sent with every statement.
const ParentsAtOnce = 20_000

// estimateRows returns roughly how many rows the jobs would delete; a negative number means unknown. Only progress and
// the guards depend on it.
func estimateRows(ctx context.Context, b *rules.Binder, jobs []rules.Job, parents rules.ChosenParents) int64 {
	if len(jobs) == 0 {
		return -1
	}
	var sweeps []purge.Sweep
	var factors []float64
	for _, j := range jobs {
		s, factor, err := sample(ctx, b, j, parents.IDs)
		if err != nil {
			return -1
		}
		sweeps, factors = append(sweeps, s), append(factors, factor)
	}
	rows, ok, err := b.Engine.Estimate(ctx, sweeps...)
	if err != nil || !ok {
		return -1
	}
	expected := 0.0
	for i, n := range rows {
		expected += float64(n) * factors[i]
	}
	return int64(expected)
}

// sample returns a sweep to estimate instead of a job's. If rows depend on parents, its condition has only the parents'
// ids: the planner does not know that the conditions that found these parents are redundant. If there are many ids, it
// has some of them, and factor scales the result.
func sample(
	ctx context.Context, b *rules.Binder, j rules.Job, parents []int64,
) (s purge.Sweep, factor float64, err error) {
	ids := parents[:min(len(parents), ParentsAtOnce)]
	if s, err = b.Sweep(ctx, &j, ids); err != nil {
		return s, 0, err
	}
	link := j.Step.Link
	if j.Step.OfParents {
		link = b.Plan.Parents.Key
	}
	switch {
	case !j.Step.Dependent() || link == "" || len(j.Step.Rules) > 0:
		return s, 1, nil
	case len(ids) == 0:
		return s, 0, nil
	}
	s.Keys, s.ReadsOthers = nil, false
	s.Where = sqlexpr.Format("r.%s = ANY (%s)", link, sqlexpr.Arg(ids, "bigint[]"))
	return s, float64(len(parents)) / float64(len(ids)), nil
}
