package execute

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// dependents are what stands on relations ($1) and keeps them from being dropped, with the name of the relation that it
// belongs to.
const dependents = `
SELECT name, n.nspname, r.relname
FROM unnest($1::text[]) AS name JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass
  AND d.refobjid = to_regclass(name) AND d.deptype = 'n'
LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
LEFT JOIN pg_class r ON r.oid = COALESCE(w.ev_class, k.conrelid, CASE d.classid
  WHEN 'pg_class'::regclass THEN d.objid END)
LEFT JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE r.oid IS DISTINCT FROM d.refobjid
ORDER BY 1, 2`

// foreseeDrops counts work tables of a kind that would be dropped together, and returns those on which something stands
// that stays so far.
func (t *task) foreseeDrops(ctx context.Context, d plan.Drop, tables []campaign.WorkTable) (stay []refused, err error) {
	names := quotedOf(tables)
	rows, err := t.Pool.Query(ctx, dependents, names)
	if err != nil {
		return nil, err
	}
	var (
		table        string
		schema, name *string
	)
	needed := map[string]string{}
	if _, err := pgx.ForEachRow(rows, []any{&table, &schema, &name}, func() error {
		on := "another object"
		if schema != nil && name != nil {
			on = pgx.Identifier{*schema, *name}.Sanitize()
		}
		if !t.preview.dropped[on] && !slices.Contains(names, on) {
			needed[table] = on
		}
		return nil
	}); err != nil {
		return nil, err
	}
	mayGo := slices.DeleteFunc(slices.Clone(tables), func(w campaign.WorkTable) bool {
		on, keeps := needed[w.Quoted()]
		if keeps {
			stay = append(stay, refused{w, fmt.Sprintf("%s could not be dropped: %s depends on it", w.Name, on)})
		}
		return keeps
	})
	if len(mayGo) == 0 {
		return stay, nil
	}
	t.preview.drop(maskOf(d.Prefix), ruleOfDrop(d), mayGo)
	return stay, t.journal.Count(ctx, purge.Delta{Dropped: int64(len(mayGo))})
}

// maskOf is the mask of the names of a kind of work tables, as in LIKE.
func maskOf(prefix string) string { return strings.ReplaceAll(prefix, "_", `\_`) + "%" }

// ruleOfDrop is why the tables of a kind go.
func ruleOfDrop(d plan.Drop) string {
	rule := fmt.Sprintf("the id in the name is that of no row of %s", d.Owner.Name)
	if d.Rule != "" {
		rule += " where " + d.Rule
	}
	if d.Lists {
		rule += ", and no _grp<id> in it is that of a list"
	}
	return rule
}

// foreseeLists records lists that would be deleted with their tables.
func (t *task) foreseeLists(
	ctx context.Context,
	tx Tx,
	j plan.Job,
	s purge.Sweep,
	ids []int64,
	tables []campaign.WorkTable,
) error {
	rule := t.plan.Parents.Rule
	found := purge.Tally{Rows: int64(len(ids)), Keys: ids[:min(len(ids), purge.SampleSize)]}
	if j.Date != "" {
		if err := between(ctx, tx, j.Date, s.Relation+" AS r WHERE "+s.Where, s.Args, &found); err != nil {
			return err
		}
	}
	t.preview.add(t.preview.at(j.Table.Quoted(), Delete, rule), j.Table, j.Relation, found)
	t.preview.drop(maskOf(j.Step.Tables.Prefix), "of a row of "+t.plan.Parents.Table.Name+": "+rule, tables)
	return nil
}

// between adds the oldest and the newest date of some rows to what was found of them.
func between(ctx context.Context, db campaign.Querier, date, from string, args []any, found *purge.Tally) error {
	finite := fmt.Sprintf("FILTER (WHERE isfinite((%s)::timestamptz))", date)
	var oldest, newest pgtype.Timestamptz
	err := db.QueryRow(
		ctx,
		fmt.Sprintf(
			"SELECT min(%[1]s) %[2]s::timestamptz, max(%[1]s) %[2]s::timestamptz FROM %[3]s",
			date,
			finite,
			from,
		),
		args...,
	).
		Scan(&oldest, &newest)
	found.Oldest, found.Newest = purge.FiniteTime(oldest), purge.FiniteTime(newest)
	return err
}
