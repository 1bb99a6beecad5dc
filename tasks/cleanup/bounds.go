package cleanup

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// tolerated is how many rows a task may delete if its saved plan has planned rows. One percent and a thousand more may
// have become obsolete in the meantime, by rules that do not depend on age.
func tolerated(planned int64) int64 { return planned + planned/100 + 1_000 }

// limit is how many rows of a table the saved plan allows. A table whose rows only foreign keys delete or change
// must be in the plan. Rows that foreign keys change may be rows that the plan deletes later.
func (b *bounds) limit(of bound, cascaded bool) int64 {
	planned, shown := b.planned[of]
	if deleted, ok := b.planned[bound{of.table, ActionDelete}]; of.action == ActionUpdate && cascaded && ok {
		planned, shown = planned+deleted, true
	}
	if cascaded && !shown {
		return 0
	}
	return tolerated(planned)
}

// bounds stops a batch that would take a task past its saved plan (see tolerated), or a table past the limit of a
// guard.
type bounds struct {
	mu   sync.Mutex
	done map[bound]int64
	// planned are the rows of the saved plan; nil without a saved plan.
	planned map[bound]int64
	// guards have the limits of guards, by table. Their Number includes the rows that the task has deleted.
	guards map[string]guard.Trip
}

type bound struct {
	table  string
	action PreviewAction
}

// startTask sets the bounds for a task. A previous worker may have deleted some of its rows already.
func (b *bounds) startTask(saved *SavedTask, done []purge.Space) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.planned, b.guards, b.done = nil, map[string]guard.Trip{}, rowsByTable(done)
	if saved == nil {
		return
	}
	b.planned = map[bound]int64{}
	for _, t := range saved.Tables {
		b.planned[bound{t.Table, t.Action}] = t.Rows
	}
}

func (b *bounds) setGuard(t guard.Trip) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.guards[t.Table] = t
}

func rowsByTable(spaces []purge.Space) map[bound]int64 {
	rows := map[bound]int64{}
	for _, s := range spaces {
		if s.Rows > 0 {
			rows[bound{s.Root, ActionDelete}] += s.Rows
		}
		if s.Updated > 0 {
			rows[bound{s.Root, ActionUpdate}] += s.Updated
		}
	}
	return rows
}

// Reserve adds the rows of a batch to those done. It fails if the batch exceeds a bound.
func (b *bounds) Reserve(d purge.Delta) (release func(), err error) {
	rows := rowsByTable(d.Space)
	b.mu.Lock()
	defer b.mu.Unlock()
	cascaded := map[string]bool{}
	for _, s := range d.Space {
		cascaded[s.Root] = cascaded[s.Root] || s.Cascaded > 0
	}
	for of, n := range rows {
		if limit := b.limit(of, cascaded[of.table]); b.planned != nil && b.done[of]+n > limit {
			return nil, planExceeded(of, b.planned[of], limit)
		}
		trip, ok := b.guards[of.table]
		if ok && trip.Number+n > trip.Limit {
			trip.Number, trip.AtLeast = max(trip.Limit, trip.Number)+1, true
			return nil, guard.Refuse([]guard.Trip{trip})
		}
	}
	for _, trip := range b.guards { // a rule that has never run must not drop even an empty partition
		if trip.Guard == guard.Policy && d.Partitions > 0 {
			trip.Number, trip.AtLeast = 1, true
			return nil, guard.Refuse([]guard.Trip{trip})
		}
	}
	for of, n := range rows {
		b.add(of, n)
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for of, n := range rows {
			b.add(of, -n)
		}
	}, nil
}

func (b *bounds) add(of bound, rows int64) {
	b.done[of] += rows
	if trip, ok := b.guards[of.table]; ok {
		trip.Number += rows
		b.guards[of.table] = trip
	}
}

func planExceeded(of bound, planned, limit int64) error {
	return &failure.Refusal{
		Reason:   failure.ReasonPlanExceeded,
		Metadata: map[string]string{"table": of.table, "planned": fmt.Sprint(planned)},
		Message: fmt.Sprintf("%s: the plan has %s rows to %s, but more than %s are due: stopped before the rest", of.table,
			humanize.Comma(planned), strings.ToLower(string(of.action)), humanize.Comma(limit)),
	}
}

// guard fails, before any table is dropped, with a guard.TrippedError if a guard trips, or if the trash has no room.
func (d drops) guard(ctx context.Context, kinds []WorkTableKind) error {
	if d.task.History == nil {
		return nil
	}
	var names []string
	for _, k := range kinds {
		if len(k.Tables) == 0 {
			continue
		}
		unused, err := k.Unused(ctx, d.task.Binder.Pool, k.Tables)
		if err != nil {
			return err
		}
		names = append(names, quotedNames(unused)...)
	}
	trips, err := d.judge(ctx, names)
	if err == nil {
		err = guard.Refuse(trips)
	}
	if err != nil || d.task.keeps() == 0 || len(names) == 0 {
		return err
	}
	bytes, _, err := workTableSizes(ctx, d.task.Binder.Pool, names)
	if err != nil {
		return err
	}
	return d.task.run.trashLimit().check(ctx, bytes)
}

// judge returns the guards that trip if the tables are dropped, given by their quoted names.
func (d drops) judge(ctx context.Context, names []string) ([]guard.Trip, error) {
	return d.task.History.JudgeDrops(ctx, guard.Drops{
		Mask:    workTableMaskOf(d.task.Plan),
		Tables:  int64(len(names)),
		Options: d.task.Options(),
		Sizes: func(ctx context.Context) (tables, database int64, err error) {
			return workTableSizes(ctx, d.task.Binder.Pool, names)
		},
	})
}

// ofLists returns the quoted names of the tables that would be dropped with lists.
func (d drops) ofLists(ctx context.Context, parents rules.ChosenParents) ([]string, error) {
	i := slices.IndexFunc(d.task.Jobs, func(j rules.Job) bool { return j.Step.Tables != nil })
	if i < 0 || len(parents.IDs) == 0 {
		return nil, nil
	}
	j := d.task.Jobs[i]
	s, err := d.task.Binder.Sweep(ctx, &j, parents.Own())
	if err != nil {
		return nil, err
	}
	ids, err := sqlexpr.Format("SELECT r.%s::bigint FROM %s AS r WHERE (%s) AND %s", s.ByKey, s.Relation, s.Where,
		j.TypedTables).IDs(ctx, d.task.Binder.Pool)
	if err != nil {
		return nil, fmt.Errorf("read the lists' tables: %w", err)
	}
	prefix := j.Step.Tables.Prefix
	tables, err := d.task.Binder.Env.Catalog.WorkTablesOf(ctx, d.task.Binder.Pool, prefix, ids)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(tables, func(w campaign.WorkTable) bool {
		return !d.isPlanned(w) || d.task.Binder.Env.Holds.WorkTable(w, "")
	})
	onHold, err := heldWorkTables{Attempt: d.task.Attempt}.WithRecipients(ctx, tables)
	if err != nil {
		return nil, err
	}
	return quotedNames(slices.DeleteFunc(tables, func(w campaign.WorkTable) bool { return onHold[w.Name] })), nil
}
