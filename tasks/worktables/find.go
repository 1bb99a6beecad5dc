package worktables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/hold"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

type Kind struct {
	Drop   plan.Drop
	Tables []campaign.WorkTable
	// Unused returns which of some tables are unused; nil if the database does not show that.
	Unused Unused
}

type Unused func(ctx context.Context, db campaign.Querier, tables []campaign.WorkTable) ([]campaign.WorkTable, error)

type Finder struct {
	*pipeline.Attempt
	// Exclude reports whether to leave out a table that is not on hold, for example because a saved plan does not drop
	// it.
	Exclude func(w campaign.WorkTable) bool
}

// Find finds the work tables of all kinds. known is true if the database shows which tables of at least one kind
// are unused. Unused tables that cannot be dropped because of their owner or kind count as retained.
func (f Finder) Find(ctx context.Context) (kinds []Kind, known bool, err error) {
	var retained int64
	for _, d := range f.Plan.Drops {
		k, n, err := f.find(ctx, d)
		if err != nil {
			return nil, false, err
		}
		kinds, known, retained = append(kinds, k), known || k.Unused != nil, retained+n
	}
	f.Retained.Tables += retained
	return kinds, known, nil
}

func (f Finder) find(ctx context.Context, d plan.Drop) (k Kind, retained int64, err error) {
	k.Drop = d
	pool, catalog := f.Binder.Pool, f.Binder.Env.Catalog
	hasOwners, err := f.Binder.Bool(ctx, pool, d.HasOwners)
	if err != nil {
		return k, 0, fmt.Errorf("query %s: %w", d.Owner.Name, err)
	}
	if !hasOwners {
		f.Log(ctx, message.ParentTableEmpty.With("table", d.WorkTables.Owner))
		return k, 0, nil
	}
	k.Unused = f.unused(d)
	tables, unfit, err := catalog.WorkTables(ctx, pool, d.Prefix, d.Bare)
	if err != nil {
		return k, 0, err
	}
	unused := func(tables []campaign.WorkTable) ([]campaign.WorkTable, error) { return k.Unused(ctx, pool, tables) }
	tables, onHold, err := hold.WorkTables{Attempt: f.Attempt}.Filter(ctx, d.WorkTables.Owner, tables, unused)
	if err != nil {
		return k, 0, err
	}
	if onHold > 0 {
		f.Log(ctx,
			message.Infof("%d tables %s are retained: they, or what they belong to, are on hold", onHold,
				Mask(d.Prefix)))
	}
	k.Tables = slices.DeleteFunc(tables, f.Exclude)
	if retained, err = f.others(ctx, k); err != nil {
		return k, 0, err
	}
	for _, name := range unfit {
		if d.Except == "" || !strings.HasPrefix(name, d.Except) {
			f.Log(ctx, message.Infof("%s begins like a work table, but has no id where one should be: retained", name))
		}
	}
	return k, retained, nil
}

// unused returns the function that finds unused tables. If there is no list at all, nothing is known about lists,
// and tables with the data of a list count as used.
func (f Finder) unused(d plan.Drop) Unused {
	logged := false
	return func(ctx context.Context, db campaign.Querier, tables []campaign.WorkTable) ([]campaign.WorkTable, error) {
		var ids, listIDs []int64
		for _, w := range tables {
			ids = append(ids, w.ID)
			if d.Lists {
				listIDs = append(listIDs, w.ListIDs()...)
			}
		}
		if hasOwners, err := f.Binder.Bool(ctx, db, d.HasOwners); err != nil || !hasOwners {
			return nil, err
		}
		used, err := f.Binder.Among(ctx, db, d.InUse, ids)
		if err != nil {
			return nil, err
		}
		lists, known := map[int64]bool{}, true
		if len(listIDs) > 0 {
			if lists, known, err = f.lists(ctx, db, d, listIDs); err != nil {
				return nil, err
			}
			if !known && d.Groups != nil && !logged {
				f.Log(ctx,
					message.Infof("%s is empty: tables with _grp and an id in their names are retained", d.Groups.Name))
				logged = true
			}
		}
		var unused []campaign.WorkTable
		for _, w := range tables {
			ofList := d.Lists && slices.ContainsFunc(w.ListIDs(), func(id int64) bool { return !known || lists[id] })
			if !used[w.ID] && !ofList {
				unused = append(unused, w)
			}
		}
		return unused, nil
	}
}

// lists returns which of some ids belong to lists. known is false if there is no list at all.
func (f Finder) lists(
	ctx context.Context, db campaign.Querier, d plan.Drop, ids []int64,
) (lists map[int64]bool, known bool, err error) {
	if d.Groups == nil {
		return nil, false, nil
	}
	if known, err = f.Binder.Bool(ctx, db, d.HasLists); err != nil {
		return nil, false, err
	}
	lists, err = f.Binder.Among(ctx, db, d.KnownLists, ids)
	return lists, known, err
}
