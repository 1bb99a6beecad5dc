package cleanup

import (
	"context"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// countJobs counts the jobs that depend on parents, for all parents at once, and then the other jobs.
func (t *countedTask) countJobs(ctx context.Context, parents rules.ChosenParents) error {
	jobs := slices.Clone(t.Jobs)
	slices.SortStableFunc(jobs, func(a, b rules.Job) int { return rank(a) - rank(b) })
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

func rank(j rules.Job) int {
	if j.Step.Dependent() {
		return 0
	}
	return 1
}

func (t *countedTask) countJob(ctx context.Context, j rules.Job, parents []int64) error {
	if j.Step.Tables != nil {
		err := t.countLists(ctx, j, parents)
		deleted := t.found.state.Deleted[t.Task.Name]
		if err != nil || t.parentsOnly || len(j.Affected) == 0 || len(deleted) == 0 {
			return err
		}
		s, err := t.Binder.Sweep(ctx, &j, deleted)
		if err != nil {
			return err
		}
		return t.countAll(ctx, rules.RowsOf(t.Task.Name, j, s)[1:])
	}
	t.run.Journal.At(j.Name, t.expected)
	s, err := t.Binder.Sweep(ctx, &j, parents)
	if err != nil || t.parentsOnly {
		return err
	}
	for _, why := range j.Estimates {
		t.table(j).remark(why)
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
	if err := t.countAll(ctx, rules.RowsOf(t.Task.Name, j, s)); err != nil {
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

// countRefused counts the rows that match but cannot be deleted, because rows of other tables refer to them, or to rows
// that foreign keys would delete with them.
func (t *countedTask) countRefused(ctx context.Context, j rules.Job, s purge.Sweep) error {
	if s.Refused.IsZero() {
		return nil
	}
	var rows int64
	err := t.Binder.Engine.Count(ctx, s.And(s.Refused), func(ctx context.Context, n purge.Tally) error {
		rows += n.Rows
		return t.run.Journal.Count(ctx, purge.Delta{}) // this fails if the run must stop
	})
	if rows > 0 {
		for _, k := range j.Table.Keeping() {
			if slices.Contains(j.Table.Going(), k.Table) {
				t.table(j).remark("an estimate: rows of " + k.Table.NameIn(j.Table.Schema) +
					" that keep some of these may be deleted with others, and no longer keep them")
			}
		}
		t.Retained.Dependent += rows
		t.Log(ctx, referenced(j, rows))
	}
	return t.Uncounted(ctx, j, s, err)
}

// oldInDefault counts and logs the rows of a default partition that are older than the cutoff of a sweep that detaches
// partitions, which leaves them there.
func (a *Attempt) oldInDefault(ctx context.Context, j rules.Job, s purge.Sweep) (rows int64, err error) {
	if s.Partitions != purge.DetachPartitions || s.Older == nil {
		return 0, nil
	}
	var is bool
	const isDefault = "SELECT EXISTS (SELECT FROM pg_partitioned_table WHERE partdefid = to_regclass($1))"
	if err := a.Binder.Pool.QueryRow(ctx, isDefault, j.Relation).Scan(&is); err != nil || !is {
		return 0, err
	}
	s.Where = sqlexpr.Format("r.%s < %s", pgx.Identifier{s.Older.Column}.Sanitize(),
		sqlexpr.Arg(s.Older.Than, "timestamptz"))
	err = a.Binder.Engine.Count(ctx, s, func(ctx context.Context, n purge.Tally) error {
		rows += n.Rows
		return a.run.Journal.Count(ctx, purge.Delta{}) // this fails if the run must stop
	})
	if rows > 0 {
		a.Log(ctx, message.DefaultPartitionStays.With("table", j.Name, "rows", rows))
	}
	return rows, err
}

// countDetached counts the partition of a sweep, with its rows, if it would be detached.
func (t *countedTask) countDetached(ctx context.Context, j rules.Job, s purge.Sweep) error {
	if rows, err := t.oldInDefault(ctx, j, s); err != nil {
		return t.Uncounted(ctx, j, s, err)
	} else if rows > 0 {
		t.table(j).remark(message.DefaultPartitionStays.With("table", j.Name, "rows", rows).Text)
		return nil
	}
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
	if err := t.countAll(ctx, rules.RowsOf(t.Task.Name, j, s)); err != nil {
		return err
	}
	return t.countPartition(ctx, j)
}

// countPartition counts a partition that would be removed, unless an earlier task would remove it.
func (t *countedTask) countPartition(ctx context.Context, j rules.Job) error {
	if t.found.removed[j.Relation] {
		return nil
	}
	t.found.removed[j.Relation] = true
	t.table(j).addPartition(j)
	return t.run.Journal.Count(ctx, purge.Delta{Partitions: 1})
}

func (t *countedTask) remarkReferences(ctx context.Context, j rules.Job) error {
	if j.Set != nil || !t.found.tables.has(j.Table.Quoted(), ActionDelete) || t.referenced[j.Table] {
		return nil
	}
	if t.referenced == nil {
		t.referenced = map[*campaign.Table]bool{}
	}
	t.referenced[j.Table] = true
	references, err := j.Table.References(ctx, t.Binder.Pool)
	table := t.table(j)
	if j.Childless {
		references.Refusing = nil
	}
	for _, refusing := range references.Refusing {
		table.remark("rows of " + refusing + " that refer to these by a foreign key keep them")
	}
	for _, statement := range references.Unindexed {
		table.remark("each deleted row costs a scan of a table whose foreign key has no index: " + statement)
	}
	return err
}

// countDrop counts the partition of a sweep if it would be dropped.
func (t *countedTask) countDrop(ctx context.Context, j rules.Job, s purge.Sweep) error {
	dropped, problem, err := t.Binder.Engine.Removes(ctx, s)
	if problem != "" && !s.PartitionOnHold { // if it is, its rows are counted as on hold
		t.table(j).remark("partitions that end before the cutoff are emptied rather than dropped: " + problem)
	}
	if err != nil || !dropped {
		return t.Uncounted(ctx, j, s, err)
	}
	return t.countPartition(ctx, j)
}

func (t *countedTask) countAll(ctx context.Context, all []rules.JobRows) error {
	for _, r := range all {
		if err := t.Uncounted(ctx, r.Job, r.Job.Sweep, t.countRows(ctx, r)); err != nil {
			return err
		}
	}
	return nil
}

// countDependent counts the rows that would be retained because other rows refer to them.
func (t *countedTask) countDependent(ctx context.Context, j rules.Job, s purge.Sweep) error {
	if !s.Cascade.Circular() || s.NoTIDs {
		return nil
	}
	if !s.Refused.IsZero() { // other rows may be retained because these are
		s = s.Without(s.Refused)
	}
	s = s.And(s.Dependent())
	var retained int64
	err := t.Binder.Engine.Count(ctx, s, func(ctx context.Context, n purge.Tally) error {
		retained += n.Rows
		return t.run.Journal.Count(ctx, purge.Delta{}) // this fails if the run must stop
	})
	if retained > 0 {
		t.Retained.Dependent += retained
		t.Log(ctx, message.RowsDependent.With("table", j.Name, "rows", retained))
	}
	return t.Uncounted(ctx, j, s, err)
}

// countRows counts the rows of a job, unless they were counted together with those of an earlier one.
func (t *countedTask) countRows(ctx context.Context, rows rules.JobRows) error {
	j, key := rows.Job, rows.Key()
	if found, known := t.found.tallies[key]; known {
		return t.record(ctx, rows, found)
	}
	related, err := t.related(j.Relation)
	if err != nil {
		return err
	}
	ahead := lookahead{t.run, t.found, t.Attempt}
	all, err := ahead.rows(ctx, related)
	if err != nil {
		return err
	}
	if j.NoTIDs {
		s := j.Without(rules.Exclusions(all, rules.OnRelation(j.Relation), rows)...)
		return t.Binder.Engine.Count(ctx, s, func(ctx context.Context, found purge.Tally) error {
			return t.record(ctx, rows, found)
		})
	}
	return t.read(ctx, rows, all)
}

func (t *countedTask) skipUnlogged(ctx context.Context, j rules.Job) {
	t.Log(ctx, message.UnloggedNotCounted.With("table", j.Name))
	t.table(j).remark(j.Name + " is unlogged: the standby has none of its rows, which are not counted")
	t.Retained.Tables++
}

// read reads the job's table once for the rows of all jobs, including those of tasks that follow.
func (t *countedTask) read(ctx context.Context, rows rules.JobRows, all []rules.JobRows) error {
	j, key := rows.Job, rows.Key()
	ofRelation, candidates := rules.RowsOfRelation(all, j.Relation)
	at := slices.IndexFunc(ofRelation, func(r rules.JobRows) bool { return r.Key() == key })
	sums := make([]purge.Tally, len(ofRelation))
	err := t.Binder.Engine.CountCandidates(ctx, j.Name, j.Relation, candidates,
		func(ctx context.Context, window []purge.Tally) error {
			for i := range window {
				sums[i].Add(window[i])
			}
			if window[at].Rows == 0 {
				return t.run.Journal.Count(ctx, purge.Delta{}) // this fails if the run must stop
			}
			return t.record(ctx, rows, window[at])
		},
	)
	if err != nil {
		return err
	}
	for i, r := range ofRelation {
		t.found.tallies[r.Key()] = sums[i]
	}
	return nil
}

func (t *countedTask) table(j rules.Job) *table { return t.found.tables.of(t.Plan, j) }

func actionOf(j rules.Job) PreviewAction { return ActionOf(j.Set != nil, j.Partitions) }

// record records the rows found for a job, which foreign keys may delete or update with the job's own rows.
func (t *countedTask) record(ctx context.Context, rows rules.JobRows, found purge.Tally) error {
	j := rows.Job
	d := purge.Delta{Deleted: found.Rows + found.Paired, Statements: found.Windows}
	switch {
	case j.Set != nil:
		d = purge.Delta{Updated: found.Rows, Statements: found.Windows}
	case rows.ByKey:
		d = purge.Delta{Cascaded: found.Rows}
	case j.Partitions == purge.DetachPartitions:
		d = purge.Delta{}
	}
	table := t.table(j)
	table.add(j.Table, j.Relation, found)
	if j.NoTIDs {
		table.found[j.Relation] = 0
	}
	if rows.ByKey {
		for _, why := range rows.Job.Estimates {
			table.remark(why)
		}
		table.Cascaded += found.Rows
		changed := t.found.deleted[table.Table] > 0 || t.found.tables.has(table.Table, ActionDelete)
		if j.Set != nil && found.Rows > 0 && changed {
			table.remark("an estimate: other deletes of the run change or delete some of these rows first")
		}
	}
	if found.Rows > 0 {
		table.addCaveats(j)
	}
	if found.Paired > 0 {
		rule := fmt.Sprintf("with the row of %s of the same id: %s", j.Table.Name, j.Rule)
		t.found.tables.at(j.Paired.Relation, ActionDelete, rule).add(t.Binder.Env.Catalog.Table(j.Step.Paired.Table),
			j.Paired.Relation, purge.Tally{Rows: found.Paired, Keys: found.PairedKeys})
	}
	return t.run.Journal.Count(ctx, d)
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

// lookahead determines what all tasks would delete while one of them is current, as far as that is known.
type lookahead struct {
	run   *Run
	found *results
	// current is the attempt of the current task; those of other tasks are simulated.
	current *Attempt
}

// rows returns the rows that the tasks would delete or update in some relations. They are in the order of the
// tasks, up to the first job whose rows are not known yet.
func (s lookahead) rows(ctx context.Context, relations map[string]bool) (all []rules.JobRows, err error) {
	for _, t := range s.found.chosen {
		a := s.current
		if t.Name != a.Task.Name {
			if s.found.ineffective[t.Name] {
				continue
			}
			p, err := s.run.Database.Compile(t)
			if err != nil || p.Rights != nil {
				return all, err
			}
			a = s.run.NewAttempt(p)
		}
		for _, j := range a.Plan.Jobs {
			if !relations[j.Relation] && len(rules.CascadedJobs(j, j.Sweep, relations)) == 0 {
				continue
			}
			rows, known, err := s.ofJob(ctx, a, j)
			if err != nil {
				return nil, err
			}
			if !known {
				return all, nil
			}
			for _, r := range rows {
				if relations[r.Job.Relation] {
					all = append(all, r)
				}
			}
		}
	}
	return all, nil
}

// ofJob returns the rows of a job, including those that foreign keys delete or change; there are none if the job has no
// parents. known is false if the rows depend on tasks that have not been done.
func (s lookahead) ofJob(
	ctx context.Context, a *Attempt, j rules.Job,
) (rows []rules.JobRows, known bool, err error) {
	emptied := slices.ContainsFunc(j.Orphans, func(o rules.Orphan) bool { return o.EmptyAfter != "" })
	if emptied && s.found.follows(a.Task.Name, s.current.Task.Name) {
		return nil, false, nil
	}
	var ids []int64
	if j.Step.Dependent() {
		if known, err = s.loadParents(ctx, a.Task); err != nil || !known {
			return nil, false, err
		}
		ids = s.found.state.Parents[a.Task.Name]
		if j.Step.OfParents {
			ids = s.found.state.Deleted[a.Task.Name]
		}
		if len(ids) == 0 {
			return nil, true, nil
		}
	}
	for _, t := range s.found.chosen { // the job's condition reads their parents
		if !slices.Contains(j.Where.Args(), any(rules.DryRunDeleted(t.Name))) {
			continue
		}
		if known, err = s.loadParents(ctx, t); err != nil || !known {
			return nil, false, err
		}
	}
	sweep, err := a.Binder.Sweep(ctx, &j, ids)
	if err != nil {
		return nil, false, err
	}
	return rules.RowsOf(a.Task.Name, j, sweep), true, nil
}

// loadParents determines the parents of a task, and of the tasks before it, which may not have begun. known is
// false if mid-sourcing servers decide which parents are deleted.
func (s lookahead) loadParents(ctx context.Context, t rules.Task) (known bool, err error) {
	for _, before := range s.found.predecessors(t.Name) {
		if _, known := s.found.state.Deleted[before.Name]; known || before.ParentRule == nil {
			continue
		}
		if before.ParentRule.MidSourced && s.found.follows(before.Name, s.current.Task.Name) {
			return false, nil
		}
		p, err := s.run.Database.Compile(before)
		if err != nil {
			return false, err
		}
		b := s.run.Database.Binder(p, s.run.State)
		ids, err := b.Parents(ctx, p.Parents)
		if err != nil {
			return false, err
		}
		parents, _, err := spareParents(ctx, b, p.Jobs, ids)
		if err != nil {
			return false, err
		}
		s.found.recordParents(before.Name, parents)
	}
	return true, nil
}

func (t *countedTask) related(relation string) (map[string]bool, error) {
	var jobs []rules.Job
	for _, other := range t.found.chosen {
		p, err := t.run.Database.Compile(other)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, p.Jobs...)
	}
	return rules.RelatedRelations(jobs, relation), nil
}

// remarkUndated adds remarks on rows that a policy's rule never matches, since the column with their age is NULL.
func (x *counting) remarkUndated(ctx context.Context, a *Attempt) {
	if a.Task.Basis == "" || len(a.Jobs) == 0 {
		return
	}
	j := a.Jobs[0] // a policy has one table
	remark := func(format string, args ...any) {
		done := map[PreviewAction]string{
			ActionDelete: "deleted", ActionUpdate: "changed", ActionDetach: "detached",
		}[actionOf(j)]
		text := fmt.Sprintf("never "+done+": "+format, args...)
		x.found.tables.of(a.Plan, j).remark(text)
	}
	for _, column := range ageColumns(j) {
		detail, ok := j.Table.Column(column)
		if !ok || !detail.HasNulls || j.NoTIDs {
			continue
		}
		what := "a number"
		if detail.IsDate {
			what = "a date"
		}
		rows, about, err := countNulls(ctx, x.run.Database.Pool, j.Table, column)
		switch {
		case err != nil:
			remark("rows without %s in %s, which could not be counted: %s", what, column, sqlstate.Text(err))
		case rows > 0:
			noun := "rows"
			if rows == 1 {
				noun = "row"
			}
			remark("%s%s %s without %s in %s", about, humanize.Comma(rows), noun, what, column)
		}
	}
}

// ageColumns returns the stored names of the columns by which a job's rules judge the age of rows.
func ageColumns(j rules.Job) (columns []string) {
	for _, part := range slices.Concat(j.Step.Rules...) {
		switch p := part.(type) {
		case rules.Age:
			columns = append(columns, j.Table.Stored(p.Column))
		case rules.Newest:
			columns = append(columns, j.Table.Stored(p.OrderBy))
		}
	}
	slices.Sort(columns)
	return slices.Compact(columns)
}

// estimatedNulls estimates how many rows of the relations $1 have NULL in the column $2.
const estimatedNulls = `
SELECT COALESCE(sum(s.null_frac * greatest(c.reltuples, 0)), 0)::bigint FROM pg_stats s
JOIN pg_class c ON c.relname = s.tablename AND c.relnamespace = to_regnamespace(quote_ident(s.schemaname))
WHERE c.oid = ANY ($1::oid[]) AND s.attname = $2 AND NOT s.inherited`

// countNulls counts the rows with NULL in a column. If that takes too long, the number comes from the planner's
// statistics, and about says so.
func countNulls(
	ctx context.Context, pool *pgxpool.Pool, t *campaign.Table, column string,
) (rows int64, about string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 100; SET LOCAL statement_timeout = '3s'"); err != nil {
			return err
		}
		count := fmt.Sprintf("SELECT count(*) FROM %s WHERE %s IS NULL", t.Quoted(), pgx.Identifier{column}.Sanitize())
		return tx.QueryRow(ctx, count).Scan(&rows)
	})
	if !sqlstate.Is(err, pgerrcode.QueryCanceled) || ctx.Err() != nil {
		return rows, "", err
	}
	relations := []uint32{t.OID}
	for _, leaf := range t.Leaves {
		relations = append(relations, leaf.OID)
	}
	err = pool.QueryRow(ctx, estimatedNulls, relations, column).Scan(&rows)
	return rows, "about ", err
}
