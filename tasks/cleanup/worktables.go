package cleanup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type WorkTableKind struct {
	Drop   rules.Drop
	Tables []campaign.WorkTable
	// Unused returns those of the tables that are unused; nil if none can be judged, because the table of their owners is
	// empty.
	Unused unusedWorkTables
}

type unusedWorkTables func(
	ctx context.Context, db campaign.Querier, tables []campaign.WorkTable,
) ([]campaign.WorkTable, error)

type WorkTableFinder struct {
	*Attempt
	// Exclude reports whether to leave out a table that is not on hold, for example because a saved plan does not drop
	// it.
	Exclude func(w campaign.WorkTable) bool
}

// Find finds the work tables of all kinds. known is true if the tables of at least one kind can be judged unused.
// Unused tables that cannot be dropped because of their owner or kind count as retained.
func (f WorkTableFinder) Find(ctx context.Context) (kinds []WorkTableKind, known bool, err error) {
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

func (f WorkTableFinder) find(ctx context.Context, d rules.Drop) (k WorkTableKind, retained int64, err error) {
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
	tables, onHold, err := heldWorkTables{Attempt: f.Attempt}.Filter(ctx, d.WorkTables.Owner, tables, unused)
	if err != nil {
		return k, 0, err
	}
	if onHold > 0 {
		f.Log(ctx,
			message.Infof("%d tables %s are retained: they, or the rows that they belong to, are on hold", onHold,
				WorkTableMask(d.Prefix)))
	}
	k.Tables = slices.DeleteFunc(tables, f.Exclude)
	if retained, err = f.others(ctx, k); err != nil {
		return k, 0, err
	}
	for _, name := range unfit {
		if d.Except == "" || !strings.HasPrefix(name, d.Except) {
			f.Log(ctx, message.Infof("%s has the prefix of a work table, but no valid id after it: retained", name))
		}
	}
	return k, retained, nil
}

// unused returns the function that finds unused tables. If there is no list at all, nothing is known about lists,
// and tables with the data of a list count as used.
func (f WorkTableFinder) unused(d rules.Drop) unusedWorkTables {
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
func (f WorkTableFinder) lists(
	ctx context.Context, db campaign.Querier, d rules.Drop, ids []int64,
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

// WorkTableMask returns a pattern for LIKE that matches names with a prefix.
func WorkTableMask(prefix string) string { return strings.ReplaceAll(prefix, "_", `\_`) + "%" }

// workTableMaskOf returns the pattern under which the guards judge all work tables that a task drops; "" if it drops
// none.
func workTableMaskOf(p *rules.Plan) string {
	for _, j := range p.Jobs {
		if j.Step.Tables != nil {
			return WorkTableMask(j.Step.Tables.Prefix)
		}
	}
	if len(p.Drops) == 0 {
		return ""
	}
	return WorkTableMask(p.Drops[0].Prefix)
}

func DropRule(d rules.Drop) string {
	rule := fmt.Sprintf("the id in the name is that of no row of %s", d.Owner.Name)
	if d.Rule != "" {
		rule += " where " + d.Rule
	}
	if d.Lists {
		rule += ", and no _grp<id> in it is that of a list"
	}
	return rule
}

func quotedNames(tables []campaign.WorkTable) (names []string) {
	for _, w := range tables {
		names = append(names, w.Quoted())
	}
	return names
}

func WorkTablesOfKind(tables []campaign.WorkTable, views bool) []campaign.WorkTable {
	return slices.DeleteFunc(slices.Clone(tables), func(w campaign.WorkTable) bool { return w.View != views })
}

// DropStatement returns the statement that drops tables, all or none of which are views. It never cascades.
func DropStatement(tables []campaign.WorkTable) (sql string, args []any) {
	names := quotedNames(tables)
	if tables[0].ByFunction {
		return "SELECT " + campaign.DropFunction + "($1::text[]::regclass[])", []any{names}
	}
	if tables[0].View {
		return "DROP VIEW " + strings.Join(names, ", "), nil
	}
	return "DROP TABLE " + strings.Join(names, ", "), nil
}

// Reasons returns why work tables of a kind are retained, by their stored names. It does not read the work tables, so
// it leaves out unused ones that have a row of a recipient on hold.
func (f WorkTableFinder) Reasons(ctx context.Context, d rules.Drop) (map[string]string, error) {
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
			reasons[w.Name] = d.WorkTables.Owner + " has no row: it is unknown which tables are in use"
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

func (f WorkTableFinder) addUsed(
	ctx context.Context, d rules.Drop, tables []campaign.WorkTable, reasons map[string]string,
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
				reasons[w.Name] = "no list is known from NmsGroup: the table may have the data of one"
			case lists[id]:
				reasons[w.Name] = fmt.Sprintf("list %d exists", id)
			}
		}
	}
	return nil
}

// readStates returns the states of owners by their ids; none if states do not decide which tables are in use.
func readStates(ctx context.Context, db campaign.Querier, d rules.Drop, ids []int64) (map[int64]int64, error) {
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

// others logs which relations have names of work tables of a kind, but are not dropped because of their owner, kind
// or schema. It returns how many of them in the application's schema are unused.
func (f WorkTableFinder) others(ctx context.Context, k WorkTableKind) (retained int64, err error) {
	catalog := f.Binder.Env.Catalog
	others, owner, err := catalog.OtherWorkTables(ctx, f.Binder.Pool, k.Drop.Prefix, k.Drop.Bare)
	if err != nil {
		return 0, err
	}
	var groups []group
	tables := map[group][]campaign.WorkTable{}
	for _, o := range others {
		g := groupOf(o, catalog.Schema, owner)
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
		tables[g] = append(tables[g], o.WorkTable)
	}
	for _, g := range groups {
		found := tables[g]
		if g.owner != "" {
			if found, err = k.Unused(ctx, f.Binder.Pool, found); err != nil {
				return 0, err
			}
			retained += int64(len(found))
		}
		if len(found) > 0 {
			f.Log(ctx, g.message(len(found), found[0].Quoted(), catalog.Schema, owner))
		}
	}
	return retained, nil
}

// group is why relations are not dropped: their schema, kind or owner.
type group struct {
	schema, kind, owner string
}

func groupOf(o campaign.OtherWorkTable, schema, owner string) group {
	switch {
	case o.Schema != schema:
		return group{schema: o.Schema}
	case o.Kind != "":
		return group{kind: o.Kind}
	case owner == "postgres":
		return group{owner: owner}
	}
	return group{owner: o.Owner}
}

// message returns the message about the relations of a group. schema and owner are the application's.
func (g group) message(number int, example, schema, owner string) message.Message {
	switch {
	case g.schema != "":
		return message.WorkTablesElsewhere.With("tables", number, "example", example, "schema", g.schema,
			"application", schema)
	case g.kind != "":
		return message.WorkTablesOfOtherKind.With("tables", number, "example", example, "kind", g.kind)
	case owner == "postgres":
		return message.WorkTablesOfSuperuser.With("tables", number, "example", example)
	}
	return message.WorkTablesOfOthers.With("tables", number, "example", example, "owner", g.owner, "application", owner,
		"statement", "ALTER TABLE … OWNER TO "+pgx.Identifier{owner}.Sanitize())
}

// sizes returns the size in bytes of the relations $1 with their partitions, without the files that VACUUM adds,
// and that of the database.
const sizes = `WITH RECURSIVE leaf AS (SELECT to_regclass(name)::oid AS oid FROM unnest($1::text[]) AS name UNION
	SELECT i.inhrelid FROM leaf JOIN pg_inherits i ON i.inhparent = leaf.oid JOIN pg_class p ON p.oid = leaf.oid
	AND p.relkind = 'p')
SELECT COALESCE(sum(pg_relation_size(c.oid) + COALESCE(pg_relation_size(NULLIF(c.reltoastrelid, 0)),
  0) + pg_indexes_size(c.oid)), 0)::bigint, pg_database_size(current_database())
FROM leaf JOIN pg_class c ON c.oid = leaf.oid WHERE c.relkind IN ('r', 'm')`

// workTableSizes returns the size in bytes of tables, given by their quoted names, and of the database.
func workTableSizes(ctx context.Context, pool *pgxpool.Pool, names []string) (tables, database int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, sizes, names).Scan(&tables, &database)
	})
	return tables, database, err
}
