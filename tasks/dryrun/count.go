package dryrun

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/candidates"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// countJobs counts the jobs that depend on parents, for all parents at once, and then the other jobs.
func (t *task) countJobs(ctx context.Context, parents binding.Parents) error {
	jobs := slices.Clone(t.Jobs)
	slices.SortStableFunc(jobs, func(a, b plan.Job) int { return rank(a) - rank(b) })
	for _, j := range jobs {
		ids := parents.Of(j)
		if j.Step.Dependent() && len(ids) == 0 {
			continue
		}
		if err := t.countJob(ctx, j, ids); err != nil {
			return err
		}
	}
	return nil
}

func rank(j plan.Job) int {
	if j.Step.Dependent() {
		return 0
	}
	return 1
}

func (t *task) countJob(ctx context.Context, j plan.Job, parents []int64) error {
	if j.Step.Tables != nil {
		err := t.countLists(ctx, j, parents)
		deleted := t.found.state.Deleted[t.Task.Name]
		if err != nil || t.setsOnly || len(j.Affected) == 0 || len(deleted) == 0 {
			return err
		}
		s, err := t.Binder.Sweep(ctx, &j, deleted)
		if err != nil {
			return err
		}
		return t.countSets(ctx, candidates.Of(t.Task.Name, j, s)[1:])
	}
	t.run.Journal.Progress.At(j.Name, t.expected)
	s, err := t.Binder.Sweep(ctx, &j, parents)
	if err != nil || t.setsOnly {
		return err
	}
	for _, why := range j.Estimates {
		t.found.tables.at(j.Table.Quoted(), actionOf(j), t.Plan.Describe(j)).remark(why)
	}
	if j.Unlogged && readsStandby(t.run) {
		t.skipUnlogged(ctx, j)
		return nil
	}
	if err := s.OtherServerError(); err != nil {
		t.OtherServerFailed(ctx, j, s, err)
		return nil
	}
	if s.Partitions == purge.DetachPartitions {
		return t.countDetached(ctx, j, s)
	}
	if err := t.countSets(ctx, candidates.Of(t.Task.Name, j, s)); err != nil {
		return err
	}
	if err := t.remarkReferences(ctx, j); err != nil {
		return err
	}
	if err := t.countRefused(ctx, j, s); err != nil {
		return err
	}
	if err := t.countDrop(ctx, j, s); err != nil {
		return err
	}
	return t.countDependent(ctx, j, s)
}

// countRefused counts the rows that match, and that foreign keys of other tables would keep, with the rows that keys
// would delete with them.
func (t *task) countRefused(ctx context.Context, j plan.Job, s purge.Sweep) error {
	if s.Refused.IsZero() {
		return nil
	}
	var rows int64
	err := t.Binder.Engine.Count(ctx, s.And(s.Refused), func(ctx context.Context, n int64) error {
		rows += n
		return t.run.Journal.Counts.Count(ctx, purge.Delta{}) // this fails if the run must stop
	})
	if rows > 0 {
		var by []string
		for _, k := range j.Table.Keeping() {
			if name := k.Table.NameIn(j.Table.Schema); !slices.Contains(by, name) {
				by = append(by, name)
			}
		}
		t.Retained.Dependent += rows
		t.Log(ctx, message.RowsReferenced.With("table", j.Name, "rows", rows, "children", strings.Join(by, ", ")))
	}
	return t.Uncounted(ctx, j, s, err)
}

// countDetached counts the partition of a sweep, with its rows, if it would be detached.
func (t *task) countDetached(ctx context.Context, j plan.Job, s purge.Sweep) error {
	removed, problem, err := t.Binder.Engine.Removes(ctx, s)
	switch {
	case err != nil:
		return t.Uncounted(ctx, j, s, err)
	case problem != "":
		t.Log(ctx, message.PartitionNotDetached.With("table", j.Name, "problem", problem))
		t.Retained.Tables++
		return nil
	case !removed:
		return nil
	}
	if err := t.countSets(ctx, candidates.Of(t.Task.Name, j, s)); err != nil {
		return err
	}
	return t.countPartition(ctx, j)
}

// countPartition counts a partition that would be removed, unless an earlier task would remove it.
func (t *task) countPartition(ctx context.Context, j plan.Job) error {
	if t.found.removed[j.Relation] {
		return nil
	}
	t.found.removed[j.Relation] = true
	t.found.tables.at(j.Table.Quoted(), actionOf(j), t.Plan.Describe(j)).addPartition(j)
	return t.run.Journal.Counts.Count(ctx, purge.Delta{Partitions: 1})
}

func (t *task) remarkReferences(ctx context.Context, j plan.Job) error {
	if j.Set != nil || !t.found.tables.has(j.Table.Quoted(), preview.Delete) || t.referenced[j.Table] {
		return nil
	}
	if t.referenced == nil {
		t.referenced = map[*campaign.Table]bool{}
	}
	t.referenced[j.Table] = true
	references, err := j.Table.References(ctx, t.Binder.Pool)
	table := t.found.tables.at(j.Table.Quoted(), preview.Delete, "")
	for _, refusing := range references.Refusing {
		text := "rows of " + refusing + " that refer to these by a foreign key keep them"
		for _, k := range j.Table.Keeping() {
			if k.Table.FullName() == refusing && !k.Table.CanSelect {
				text += fmt.Sprintf("; how many is not known: GRANT SELECT ON %s TO %s", refusing, t.Binder.Env.Catalog.Role)
			}
		}
		table.remark(text)
	}
	for _, statement := range references.Unindexed {
		table.remark("each deleted row costs a scan of a table whose foreign key has no index: " + statement)
	}
	return err
}

// countDrop counts the partition of a sweep if it would be dropped.
func (t *task) countDrop(ctx context.Context, j plan.Job, s purge.Sweep) error {
	dropped, problem, err := t.Binder.Engine.Removes(ctx, s)
	if problem != "" {
		t.found.tables.at(j.Table.Quoted(), preview.Delete, "").
			remark("partitions that end before the cutoff are emptied rather than dropped: " + problem)
	}
	if err != nil || !dropped {
		return t.Uncounted(ctx, j, s, err)
	}
	return t.countPartition(ctx, j)
}

func (t *task) countSets(ctx context.Context, sets []candidates.Set) error {
	for _, set := range sets {
		if err := t.Uncounted(ctx, set.Job, set.Job.Sweep, t.countSet(ctx, set)); err != nil {
			return err
		}
	}
	return nil
}

// countDependent counts the rows that would be retained because other rows refer to them.
func (t *task) countDependent(ctx context.Context, j plan.Job, s purge.Sweep) error {
	if !s.Cascade.Circular() || s.NoTIDs {
		return nil
	}
	if !s.Refused.IsZero() { // others may depend on these
		s = s.Without(s.Refused)
	}
	s = s.And(s.Dependent())
	var retained int64
	err := t.Binder.Engine.Count(ctx, s, func(ctx context.Context, rows int64) error {
		retained += rows
		return t.run.Journal.Counts.Count(ctx, purge.Delta{}) // this fails if the run must stop
	})
	if retained > 0 {
		t.Retained.Dependent += retained
		t.Log(ctx, message.RowsDependent.With("table", j.Name, "rows", retained))
	}
	return t.Uncounted(ctx, j, s, err)
}

// countSet counts a set, unless it was counted together with an earlier one.
func (t *task) countSet(ctx context.Context, set candidates.Set) error {
	j, key := set.Job, set.Key()
	if found, known := t.found.tallies[key]; known {
		return t.record(ctx, set, found)
	}
	related, err := t.related(j.Relation)
	if err != nil {
		return err
	}
	ahead := lookahead{t.run, t.found, t.Attempt}
	all, err := ahead.candidates(ctx, related)
	if err != nil {
		return err
	}
	if j.NoTIDs {
		s := j.Without(candidates.Exclusions(all, candidates.On(j.Relation), set)...)
		found, err := t.Binder.Engine.CountElsewhere(ctx, s)
		if err != nil {
			return err
		}
		return t.record(ctx, set, found)
	}
	return t.read(ctx, set, all)
}

func (t *task) skipUnlogged(ctx context.Context, j plan.Job) {
	t.Log(ctx, message.UnloggedNotCounted.With("table", j.Name))
	t.found.tables.at(j.Table.Quoted(), preview.Delete, t.Plan.Describe(j)).
		remark(j.Name + " is unlogged: the standby has none of its rows, which are not counted")
	t.Retained.Tables++
}

// read reads the job's table once for the rows of all jobs, including those of tasks that follow.
func (t *task) read(ctx context.Context, set candidates.Set, all []candidates.Set) error {
	j, key := set.Job, set.Key()
	sets, rows := candidates.OfRelation(all, j.Relation)
	at := slices.IndexFunc(sets, func(s candidates.Set) bool { return s.Key() == key })
	sums := make([]purge.Tally, len(sets))
	err := t.Binder.Engine.CountCandidates(ctx, j.Name, j.Relation, rows,
		func(ctx context.Context, window []purge.Tally) error {
			for i := range window {
				sums[i].Add(window[i])
			}
			if window[at].Rows == 0 {
				return t.run.Journal.Counts.Count(ctx, purge.Delta{}) // this fails if the run must stop
			}
			return t.record(ctx, set, window[at])
		},
	)
	if err != nil {
		return err
	}
	for i, s := range sets {
		t.found.tallies[s.Key()] = sums[i]
	}
	return nil
}

func actionOf(j plan.Job) preview.Action { return preview.ActionOf(j.Set != nil, j.Partitions) }

// record records the rows found for a set, which foreign keys may delete or update with the job's own rows.
func (t *task) record(ctx context.Context, set candidates.Set, found purge.Tally) error {
	j := set.Job
	d := purge.Delta{Deleted: found.Rows + found.Paired, Statements: found.Windows}
	switch {
	case j.Set != nil:
		d = purge.Delta{Updated: found.Rows, Statements: found.Windows}
	case set.ByKey:
		d = purge.Delta{Cascaded: found.Rows}
	case j.Partitions == purge.DetachPartitions:
		d = purge.Delta{}
	}
	table := t.found.tables.at(j.Table.Quoted(), actionOf(j), t.Plan.Describe(j))
	table.add(j.Table, j.Relation, found)
	if set.ByKey {
		table.Cascaded += found.Rows
	}
	if found.Rows > 0 {
		table.addCaveats(j)
	}
	if found.Paired > 0 {
		rule := fmt.Sprintf("with the row of %s of the same id: %s", j.Table.Name, j.Rule)
		t.found.tables.at(j.Paired.Relation, preview.Delete, rule).add(t.Binder.Env.Catalog.Table(j.Step.Paired.Table),
			j.Paired.Relation, purge.Tally{Rows: found.Paired, Keys: found.PairedKeys})
	}
	return t.run.Journal.Counts.Count(ctx, d)
}

// addDates adds the oldest and the newest date of some rows, given as a FROM and a WHERE.
func addDates(ctx context.Context, db campaign.Querier, date string, from sqlexpr.Expr, found *purge.Tally) error {
	finite := fmt.Sprintf("FILTER (WHERE isfinite((%s)::timestamptz))", date)
	query := sqlexpr.Format("SELECT %s, %s FROM %s", campaign.Shown(fmt.Sprintf("(min(%s) %s)", date, finite)),
		campaign.Shown(fmt.Sprintf("(max(%s) %s)", date, finite)), from)
	var oldest, newest pgtype.Timestamptz
	err := query.QueryRow(ctx, db).Scan(&oldest, &newest)
	found.Oldest, found.Newest = purge.FiniteTime(oldest), purge.FiniteTime(newest)
	return err
}
