package binding

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// State is what a run knows about its tasks. All binders of a run share it.
type State struct {
	// Succeeded are the tasks that have succeeded, by name.
	Succeeded map[string]bool
	// RetainedParents are the tasks that retained parents, or may have done so under a previous worker.
	RetainedParents map[string]bool
	// DryRun is what only a dry run knows; nil in a run that deletes.
	DryRun *DryRun
}

// DryRun is what the tasks of a dry run would have done, by name. Later tasks see their tables as these would have
// left them.
type DryRun struct {
	// Deleted are the parents whose own rows a task would delete or update.
	Deleted map[string][]int64
	// Processed are the parents whose dependent rows it would delete. Some of their own rows may be retained.
	Processed map[string][]int64
	// RolledUp is when the period begins whose rows a task would roll up.
	RolledUp map[string]*time.Time
}

type Binder struct {
	Pool   *pgxpool.Pool
	Engine *purge.Engine
	Env    plan.Env
	Plan   *plan.Plan
	State  State
	OnHold *OnHold
	// Remote are the ids of deliveries that remain on their mid-sourcing servers.
	Remote []int64

	lookups  map[plan.Lookup]any
	retained map[string][]int64 // ids of retained parents, by task
}

// Parents returns the ids of the parents in ascending order; nil if there are none.
func (b *Binder) Parents(ctx context.Context, p *plan.Parents) ([]int64, error) {
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

func (b *Binder) ParentsOf(ctx context.Context, j plan.Job, s purge.Sweep) (ids []int64, err error) {
	err = b.Engine.InTx(ctx, func(tx pgx.Tx) (err error) {
		ids, err = j.ParentsOf(s.Relation, s.Where).IDs(ctx, tx)
		return err
	})
	return ids, err
}

// Sweep returns the sweep of a job for some parents, without rows on hold.
func (b *Binder) Sweep(ctx context.Context, j *plan.Job, parents []int64) (s purge.Sweep, err error) {
	if s, err = b.Obsolete(ctx, j, parents); err != nil {
		return s, err
	}
	h, err := b.OnHold.condition(ctx, j, sqlexpr.Among)
	if err != nil || h.condition.IsZero() {
		return s, err
	}
	return restricted(j, s.Without(h.condition), h.readsOthers, h.readsDistributed), nil
}

// SweepOnHold returns a sweep of the obsolete rows that are on hold; any is false if there cannot be any.
func (b *Binder) SweepOnHold(ctx context.Context, j *plan.Job, parents []int64) (s purge.Sweep, any bool, err error) {
	h, err := b.OnHold.condition(ctx, j, sqlexpr.OneOf)
	if err != nil || h.condition.IsZero() {
		return s, false, err
	}
	if s, err = b.Obsolete(ctx, j, parents); err != nil {
		return s, false, err
	}
	return restricted(j, s.And(h.condition), h.readsOthers, h.readsDistributed), true, nil
}

func (b *Binder) Obsolete(ctx context.Context, j *plan.Job, parents []int64) (s purge.Sweep, err error) {
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
func (b *Binder) except(ctx context.Context, j *plan.Job, s purge.Sweep) (purge.Sweep, error) {
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
			ids = Without(ids, b.State.DryRun.Processed[e.Task])
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

// restricted adjusts a sweep whose condition has more than the job's rule. It notes whether the added condition
// reads other tables, and whether one of them is distributed.
func restricted(j *plan.Job, s purge.Sweep, readsOthers, readsDistributed bool) purge.Sweep {
	s.ReadsOthers = s.ReadsOthers || readsOthers
	if readsDistributed && !s.NoTIDs {
		s.NoTIDs, s.Newest, j.Location = true, nil, plan.JudgedByOtherServer
	}
	return s
}

func (b *Binder) remoteOf(ids []int64) []int64 { return Intersection(ids, b.Remote) }
