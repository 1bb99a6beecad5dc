package dryrun

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/worktables"
)

// dropWorkTables counts the unused work tables. done is false if the database does not show which tables are
// unused.
func (t *task) dropWorkTables(ctx context.Context) (done bool, err error) {
	exclude := func(w campaign.WorkTable) bool { return t.found.dropped[w.Quoted()] }
	finder := worktables.Finder{Attempt: t.Attempt, Exclude: exclude}
	kinds, done, err := finder.Find(ctx)
	if err != nil {
		return false, err
	}
	blocked, err := worktables.DropAll(ctx, kinds, t.countUnused)
	t.Log(ctx, blocked...)
	return done, err
}

func (t *task) countUnused(
	ctx context.Context, k worktables.Kind, tables []campaign.WorkTable,
) (blocked []worktables.Blocked, err error) {
	if len(tables) == 0 {
		return nil, nil
	}
	t.run.Journal.Progress.At(tables[0].Name, t.expected)
	unused, err := k.Unused(ctx, t.Binder.Pool, tables)
	if err != nil || len(unused) == 0 {
		return nil, err
	}
	dependents, err := readDependents(ctx, t.Binder.Pool, worktables.Quoted(unused))
	if err != nil {
		return nil, err
	}
	drops := slices.Clone(unused)
	for again := true; again; { // a table that depends on a blocked table blocks others
		again = false
		names := worktables.Quoted(drops)
		drops = slices.DeleteFunc(drops, func(w campaign.WorkTable) bool {
			i := slices.IndexFunc(dependents[w.Quoted()], func(name string) bool {
				return !t.found.dropped[name] && !slices.Contains(names, name)
			})
			if i < 0 {
				return false
			}
			again = true
			m := message.WorkTableNotDropped.With("table", w.Name, "error", dependents[w.Quoted()][i]+" depends on it")
			blocked = append(blocked, worktables.Blocked{WorkTable: w, Message: m})
			return true
		})
	}
	if len(drops) == 0 {
		return blocked, nil
	}
	t.found.recordDrops(worktables.Mask(k.Drop.Prefix), worktables.Rule(k.Drop), drops)
	return blocked, t.run.Journal.Counts.Count(ctx, purge.Delta{Dropped: int64(len(drops))})
}

// selectDependents selects what depends on the relations $1 and so prevents dropping them, with the name of the
// relation that it belongs to.
const selectDependents = `
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

// readDependents returns what depends on relations, by the quoted names of these relations.
func readDependents(ctx context.Context, db campaign.Querier, names []string) (map[string][]string, error) {
	rows, _ := db.Query(ctx, selectDependents, names)
	var (
		table        string
		schema, name *string
	)
	dependents := map[string][]string{}
	_, err := pgx.ForEachRow(rows, []any{&table, &schema, &name}, func() error {
		dependent := "another object"
		if schema != nil && name != nil {
			dependent = pgx.Identifier{*schema, *name}.Sanitize()
		}
		dependents[table] = append(dependents[table], dependent)
		return nil
	})
	return dependents, err
}
