package rules

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// State is the state of a run's tasks. All binders of the run share it.
type State struct {
	// Succeeded are the tasks that have succeeded, by name.
	Succeeded map[string]bool
	// RetainedParents are the tasks that retained parents, or may have done so under a previous worker.
	RetainedParents map[string]bool
	// DryRun is the state of a dry run; nil in a run that deletes.
	DryRun *DryRun
}

// DryRun is what the tasks of a dry run would have done, by their names. Later tasks see tables as these tasks would
// have left them.
type DryRun struct {
	// Parents are those whose dependent rows a task would delete, and Deleted those of them whose own rows it would
	// delete or update.
	Parents, Deleted map[string][]int64
	// RolledUp has the start of the period whose rows a task would roll up.
	RolledUp map[string]*time.Time
}

type Binder struct {
	Pool   *pgxpool.Pool
	Engine *purge.Engine
	Env    Env
	Plan   *Plan
	State  State
	OnHold *OnHold
	// Remote are the ids of deliveries that remain on their mid-sourcing servers.
	Remote []int64

	lookups  map[Lookup]any
	retained map[string][]int64 // ids of retained parents, by task
}

// Parents returns the ids of the parents in ascending order; nil if there are none.
func (b *Binder) Parents(ctx context.Context, p *Parents) ([]int64, error) {
	if p == nil {
		return nil, nil
	}
	query, err := b.Bind(ctx, p.Query("r."+p.Key+"::bigint"), nil)
	if err != nil {
		return nil, err
	}
	return b.IDs(ctx, p.Table, sqlexpr.Format("%s ORDER BY 1", query))
}

// IDs runs a query for ids, and retries it after transient errors.
func (b *Binder) IDs(ctx context.Context, table *campaign.Table, query sqlexpr.Expr) (ids []int64, err error) {
	err = b.Engine.Retry(ctx, table.Name, func() (err error) { ids, err = query.IDs(ctx, b.Pool); return err })
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", table.Name, err)
	}
	return ids, nil
}

func (b *Binder) ParentsOf(ctx context.Context, j Job, s purge.Sweep) (ids []int64, err error) {
	err = b.Engine.InTx(ctx, func(tx pgx.Tx) (err error) {
		ids, err = j.ParentsOf(s.Relation, s.Where).IDs(ctx, tx)
		return err
	})
	return ids, err
}

// Sweep returns the sweep of a job for some parents, without rows on hold.
func (b *Binder) Sweep(ctx context.Context, j *Job, parents []int64) (s purge.Sweep, err error) {
	if s, err = b.Obsolete(ctx, j, parents); err != nil {
		return s, err
	}
	purpose := toCount
	if b.State.DryRun == nil {
		purpose = toChange
	}
	h, err := b.OnHold.condition(ctx, j, purpose)
	if err != nil || h.condition.IsZero() {
		return s, err
	}
	if purpose == toChange && s.Removes() {
		kept, err := b.OnHold.condition(ctx, j, toRemove)
		if err != nil {
			return s, err
		}
		s.Removed = s.Without(kept.condition).Where
	}
	return restricted(j, s.Without(h.condition), h.readsOthers, h.readsDistributed), nil
}

// SweepOnHold returns a sweep of the obsolete rows that are on hold; any is false if there cannot be any.
func (b *Binder) SweepOnHold(ctx context.Context, j *Job, parents []int64) (s purge.Sweep, any bool, err error) {
	h, err := b.OnHold.condition(ctx, j, toFind)
	if err != nil || h.condition.IsZero() {
		return s, false, err
	}
	if s, err = b.Obsolete(ctx, j, parents); err != nil {
		return s, false, err
	}
	return restricted(j, s.And(h.condition), h.readsOthers, h.readsDistributed), true, nil
}

func (b *Binder) Obsolete(ctx context.Context, j *Job, parents []int64) (s purge.Sweep, err error) {
	s = j.Sweep
	if s.Where, err = b.Bind(ctx, s.Where, parents); err != nil {
		return s, err
	}
	if s.Refused, err = b.Bind(ctx, s.Refused, parents); err != nil {
		return s, err
	}
	if s.Newest != nil {
		newest := *s.Newest
		for _, e := range []*sqlexpr.Expr{&newest.Rest, &newest.Last} {
			if *e, err = b.Bind(ctx, *e, parents); err != nil {
				return s, err
			}
		}
		s.Newest = &newest
	}
	s.Set = slices.Clone(s.Set)
	for i, a := range s.Set {
		if s.Set[i].Value, err = b.Bind(ctx, a.Value, parents); err != nil {
			return s, err
		}
	}
	if s.Companion != nil {
		companion := *s.Companion
		if companion.SQL, err = b.Bind(ctx, companion.SQL, parents); err != nil {
			return s, err
		}
		s.Companion = &companion
		if j.Step.Records && len(b.remoteOf(parents)) == 0 {
			s.Companion = nil
		}
	}
	if j.Step.OfParents {
		s.Keys = parents
	}
	if j.Except == nil || !b.State.RetainedParents[j.Except.Task] {
		return s, nil
	}
	return b.except(ctx, j, s)
}

// except leaves out the rows that retained parents of another task need.
func (b *Binder) except(ctx context.Context, j *Job, s purge.Sweep) (purge.Sweep, error) {
	e := j.Except
	if err := RightsError(e.Rights); err != nil {
		return s, err
	}
	ids, known := b.retained[e.Task]
	if !known {
		var err error
		if ids, err = b.Parents(ctx, e.Parents); err != nil {
			return s, err
		}
		if b.State.DryRun != nil { // the rows that depend on processed parents would be deleted
			ids = Without(ids, b.State.DryRun.Parents[e.Task])
		}
		if b.retained == nil {
			b.retained = map[string][]int64{}
		}
		b.retained[e.Task] = ids
	}
	if len(ids) == 0 {
		return s, nil
	}
	needed, err := b.Bind(ctx, e.Condition, ids)
	if err != nil {
		return s, err
	}
	return restricted(j, s.Without(needed), true, e.ReadsDistributed), nil
}

// restricted adjusts a sweep to a condition that was added to the job's rule, and that may read other tables. If it
// reads a distributed one, rows are no longer found by their TIDs.
func restricted(j *Job, s purge.Sweep, readsOthers, readsDistributed bool) purge.Sweep {
	s.ReadsOthers = s.ReadsOthers || readsOthers
	if readsDistributed && !s.NoTIDs {
		s.NoTIDs, s.Newest, j.Location = true, nil, JudgedByOtherServer
	}
	return s
}

func (b *Binder) remoteOf(ids []int64) []int64 { return Intersection(ids, b.Remote) }

type ChosenParents struct {
	// IDs are the parents whose dependent rows are deleted.
	IDs []int64
	// RowsOnHold are the parents among IDs whose own rows are retained, because rows that depend on them are on hold.
	RowsOnHold []int64
}

func (p ChosenParents) Own() []int64 { return Without(p.IDs, p.RowsOnHold) }

// Of returns the parents for a job. A job on the parents' own rows gets only those that are not retained.
func (p ChosenParents) Of(j Job) []int64 {
	if j.Step.OfParents {
		return p.Own()
	}
	return p.IDs
}

func set(ids []int64) map[int64]bool {
	set := make(map[int64]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func Without(ids, others []int64) []int64 {
	if len(others) == 0 {
		return ids
	}
	excluded := set(others)
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return excluded[id] })
}

func Intersection(ids, others []int64) (both []int64) {
	among := set(others)
	for _, id := range ids {
		if among[id] {
			both = append(both, id)
		}
	}
	return both
}

// Bind replaces the placeholders by the values that are known only when the SQL is sent. ids replace ParentIDs and IDs.
func (b *Binder) Bind(ctx context.Context, sql sqlexpr.Expr, ids []int64) (sqlexpr.Expr, error) {
	return sql.Bind(func(value any) (any, error) {
		switch v := value.(type) {
		case ParentIDs, IDs:
			return ids, nil
		case RemoteIDs:
			return b.remoteOf(ids), nil
		case SucceededTask:
			return b.State.Succeeded[string(v)], nil
		case DryRunDeleted:
			return b.State.DryRun.Deleted[string(v)], nil
		case DryRunParents:
			return b.State.DryRun.Parents[string(v)], nil
		case RolledUpFrom:
			return b.State.DryRun.RolledUp[string(v)], nil
		case Lookup:
			return b.lookup(ctx, v)
		}
		return value, nil
	})
}

// lookup reads a value once per task.
func (b *Binder) lookup(ctx context.Context, l Lookup) (value any, err error) {
	if value, known := b.lookups[l]; known {
		return value, nil
	}
	if err := b.Pool.QueryRow(ctx, string(l)).Scan(&value); err != nil {
		return nil, fmt.Errorf("look up a value for %s: %w", b.Plan.Task.Name, err)
	}
	if b.lookups == nil {
		b.lookups = map[Lookup]any{}
	}
	b.lookups[l] = value
	return value, nil
}

// Among returns the ids that the query finds.
func (b *Binder) Among(ctx context.Context, db campaign.Querier, q sqlexpr.Expr, ids []int64) (map[int64]bool, error) {
	query, err := b.Bind(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	found, err := query.IDs(ctx, db)
	return set(found), err
}

func (b *Binder) Bool(ctx context.Context, db campaign.Querier, q sqlexpr.Expr) (result bool, err error) {
	query, err := b.Bind(ctx, q, nil)
	if err != nil {
		return false, err
	}
	return result, query.QueryRow(ctx, db).Scan(&result)
}

// maxIDs is how many ids on hold by other tables a statement may have in a parameter. If there are more, it reads the
// tables with the ids instead.
const maxIDs = 1_000_000

// idsTimeout is for a query for ids on hold.
const idsTimeout = time.Hour

// quickQuery is how long a query for ids on hold may take if each statement of a batch is to contain it.
const quickQuery = 10 * time.Millisecond

// OnHold finds the rows on hold of all jobs that are compiled for one environment. It reads each list of ids that are
// on hold by other tables once, for counts and for statements that cannot find out for themselves.
type OnHold struct {
	Engine *purge.Engine
	// ConditionsOnly is set for explanations, which check single rows and read no lists of ids.
	ConditionsOnly bool

	ids map[string]idsOnHold // by query
}

// idsOnHold are the ids on hold by other tables in ascending order; more than maxIDs if there are too many.
type idsOnHold struct {
	list  []int64
	quick bool // whether the query was
}

// purpose is what a condition on rows on hold is for.
type purpose int

const (
	toFind  purpose = iota // the rows on hold
	toCount                // the others, row by row
	// toChange is to delete or update rows. The statement itself finds out what other tables keep, so that rows which came
	// on hold after the task began are seen.
	toChange
	toRemove // a partition, all of whose rows one query checks
)

// onHold is the condition that a row is on hold; it is empty if no row is.
type onHold struct {
	condition sqlexpr.Expr
	// readsOthers is set if the condition reads other tables, and readsDistributed if it reads a distributed one.
	readsOthers, readsDistributed bool
}

// condition returns the condition that a row of a job is on hold.
func (o *OnHold) condition(ctx context.Context, j *Job, p purpose) (h onHold, err error) {
	among := func(column string, ids []int64) sqlexpr.Expr {
		if p == toFind {
			return sqlexpr.OneOf("r."+column, ids)
		}
		return sqlexpr.Among("r."+column, j.Table.IntegerType(column), ids)
	}
	for _, by := range j.OnHold {
		c, reads := by.Condition, by.ReadsOthers
		switch {
		case by.All != nil: // also those that the table does not have yet
			c = among(by.Column, slices.Sorted(slices.Values(by.All)))
		case o.ConditionsOnly && !by.Lookup.IsZero():
			c = by.Lookup
		case by.Column != "" && !o.ConditionsOnly:
			ids, err := o.idsOnHold(ctx, j, by)
			switch {
			case err != nil:
				return onHold{}, fmt.Errorf("find rows on hold in %s: %w", j.Name, err)
			case len(ids.list) > maxIDs, local(j, by) && (p == toRemove || p == toChange && ids.quick):
				c = sqlexpr.Format("r.%s IN (%s)", by.Column, by.IDs)
			case p == toChange && !by.Lookup.IsZero():
				c = by.Lookup
			case len(ids.list) == 0:
				continue
			default:
				c, reads = among(by.Column, ids.list), false
			}
		}
		h.condition = sqlexpr.Or(h.condition, c)
		h.readsOthers, h.readsDistributed = h.readsOthers || reads, h.readsDistributed || reads && by.ReadsDistributed
	}
	return h, nil
}

// local reports whether a statement of a job can read the tables of a condition on this server.
func local(j *Job, by HoldCondition) bool { return !by.ReadsRemote && j.Table.Location == "" }

func (o *OnHold) idsOnHold(ctx context.Context, j *Job, by HoldCondition) (ids idsOnHold, err error) {
	query, _ := by.IDs.Build()
	if ids, known := o.ids[query]; known {
		return ids, nil
	}
	err = o.Engine.Retry(ctx, j.Name, func() (err error) {
		if err := o.Engine.Wait(ctx); err != nil {
			return err
		}
		begun := time.Now()
		ids.list, err = o.read(ctx, by.IDs, idsTimeout, "auto")
		if err != nil || time.Since(begun) > 10*quickQuery { // with round trips
			return err
		}
		// the plans of batches do not know how rare a value is
		_, err = o.read(ctx, by.IDs, quickQuery, "force_generic_plan")
		if ids.quick = err == nil; sqlstate.Is(err, pgerrcode.QueryCanceled) {
			err = ctx.Err()
		}
		return err
	})
	switch {
	case campaign.Dropped(ctx, o.Engine.Pool, err, j.Relation): // nothing is deleted from a table that no longer exists
		return idsOnHold{}, nil
	case err != nil:
		return idsOnHold{}, err
	}
	slices.Sort(ids.list)
	if o.ids == nil {
		o.ids = map[string]idsOnHold{}
	}
	o.ids[query] = ids
	return ids, nil
}

func (o *OnHold) read(
	ctx context.Context, query sqlexpr.Expr, timeout time.Duration, plan string,
) (ids []int64, err error) {
	err = o.Engine.InTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL plan_cache_mode = %s; SET LOCAL statement_timeout = %d", plan,
			timeout.Milliseconds()))
		if err == nil {
			ids, err = sqlexpr.Format("%s LIMIT %d", query, maxIDs+1).IDs(ctx, tx)
		}
		return err
	})
	return ids, err
}
