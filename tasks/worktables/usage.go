package worktables

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Reasons returns why work tables of a kind are retained, by their stored names. It reads only the tables of owners
// and lists, so that it does not include an unused table with a row of a recipient on hold.
func (f Finder) Reasons(ctx context.Context, d plan.Drop) (map[string]string, error) {
	pool, catalog := f.Binder.Pool, f.Binder.Env.Catalog
	tables, _, err := catalog.WorkTables(ctx, pool, d.Prefix, d.Bare)
	if err != nil {
		return nil, err
	}
	others, owner, err := catalog.OtherWorkTables(ctx, pool, d.Prefix, d.Bare)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for _, o := range others {
		if g := groupOf(o, catalog.Schema, owner); g.schema == "" {
			reasons[o.Name] = g.reason()
		}
	}
	hasOwners, err := f.Binder.Bool(ctx, pool, d.HasOwners)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", d.Owner.Name, err)
	}
	var owned []campaign.WorkTable
	for _, w := range tables {
		switch {
		case w.View:
		case !hasOwners:
			reasons[w.Name] = d.WorkTables.Owner + " has no row: nothing shows which tables are in use"
		case f.Binder.Env.Holds.WorkTable(w, d.WorkTables.Owner):
			reasons[w.Name] = "on hold"
		default:
			owned = append(owned, w)
		}
	}
	if len(owned) == 0 {
		return reasons, nil
	}
	return reasons, f.addUsed(ctx, d, owned, reasons)
}

func (f Finder) addUsed(
	ctx context.Context, d plan.Drop, tables []campaign.WorkTable, reasons map[string]string,
) error {
	pool := f.Binder.Pool
	var ids, listIDs []int64
	for _, w := range tables {
		ids = append(ids, w.ID)
		if d.Lists {
			listIDs = append(listIDs, w.ListIDs()...)
		}
	}
	used, err := f.Binder.Among(ctx, pool, d.InUse, ids)
	if err != nil {
		return err
	}
	states, err := readStates(ctx, pool, d, ids)
	if err != nil {
		return err
	}
	lists, known := map[int64]bool{}, true
	if len(listIDs) > 0 {
		if lists, known, err = f.lists(ctx, pool, d, listIDs); err != nil {
			return err
		}
	}
	for _, w := range tables {
		if used[w.ID] {
			reasons[w.Name] = describeOwner(d.WorkTables.Owner, w.ID, states)
			continue
		}
		for _, id := range w.ListIDs() {
			switch {
			case !d.Lists:
			case !known:
				reasons[w.Name] = "NmsGroup shows no lists: the table may have the data of one"
			case lists[id]:
				reasons[w.Name] = fmt.Sprintf("list %d exists", id)
			}
		}
	}
	return nil
}

// readStates returns the states of owners by their ids; none if states do not decide which tables are in use.
func readStates(ctx context.Context, db campaign.Querier, d plan.Drop, ids []int64) (map[int64]int64, error) {
	states := map[int64]int64{}
	if d.Rule == "" || ownerStates[d.WorkTables.Owner] == nil || !d.Owner.Has("iState") {
		return states, nil
	}
	rows := sqlexpr.Format(
		"SELECT o.%[1]s::bigint, o.iState::bigint FROM %[2]s AS o WHERE o.%[1]s = ANY (%[3]s) AND o.iState IS NOT NULL",
		d.Key, d.Owner.Quoted(), sqlexpr.Arg(ids, "bigint[]")).Query(ctx, db)
	var id, state int64
	_, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error { states[id] = state; return nil })
	return states, err
}

// ownerState describes a range of values of iState.
type ownerState struct {
	first, last int64
	words       string
}

var ownerStates = map[string][]ownerState{
	"XtkWorkflow": {{0, 0, "is being edited"}, {11, 11, "is started"}, {13, 13, "is paused"}, {20, 20, "is stopped"}},
	"NmsDelivery": {
		{0, 0, "is being edited"},
		{1, 45, "is being prepared"},
		{51, 51, "is about to start"},
		{55, 55, "is in progress"},
		{61, 62, "is being recovered"},
		{71, 71, "is being paused"},
		{75, 75, "is paused"},
		{81, 85, "is stopped"},
		{95, 95, "is finished"},
	},
}

var ownerNouns = map[string]string{
	"XtkWorkflow":   "workflow",
	"NmsDelivery":   "delivery",
	"NmsGroup":      "list",
	"NmsSimulation": "simulation",
}

// describeOwner returns why a table is in use, for example: workflow 520 is paused.
func describeOwner(table string, id int64, states map[int64]int64) string {
	noun := ownerNouns[table]
	if noun == "" {
		noun = strings.ToLower(table)
	}
	state, known := states[id]
	if !known {
		return fmt.Sprintf("%s %d exists", noun, id)
	}
	for _, s := range ownerStates[table] {
		if s.first <= state && state <= s.last {
			return fmt.Sprintf("%s %d %s", noun, id, s.words)
		}
	}
	return fmt.Sprintf("%s %d is in state %d", noun, id, state)
}

func (g group) reason() string {
	switch {
	case g.kind != "":
		return "not a table that the application made, but " + g.kind
	case g.owner == "postgres":
		return "the superuser postgres owns it"
	}
	return fmt.Sprintf("the role %q owns it, not the application's", g.owner)
}
