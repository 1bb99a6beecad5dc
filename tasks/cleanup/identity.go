package cleanup

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// unidentified selects the relations that refuse the actions $2 on the relations $1, because they are published and
// have no replica identity. These are the relations themselves, and those whose rows foreign keys delete or change
// with theirs. It returns the number of the action, from 1, and the name of the relation that refuses it.
const unidentified = `
WITH RECURSIVE affected (number, oid, action) AS (
  SELECT number, to_regclass(name)::oid, action
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS of (name, action, number)
  UNION SELECT number, part.oid, CASE k.confdeltype WHEN 'c' THEN 'DELETE' ELSE 'UPDATE' END
  FROM affected
    JOIN pg_constraint k ON k.contype = 'f' AND k.confrelid = affected.oid AND k.confdeltype IN ('c', 'n', 'd')
      AND ` + sqlexpr.Enforced + `
    CROSS JOIN LATERAL (SELECT k.conrelid UNION SELECT relid FROM pg_partition_tree(k.conrelid)) AS part (oid)
  WHERE affected.action = 'DELETE')
SELECT DISTINCT number, c.oid::regclass::text FROM affected JOIN pg_class c USING (oid)
WHERE c.relkind = 'r' AND c.relreplident <> 'f'
  AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END)
  AND EXISTS (SELECT FROM pg_publication p JOIN pg_publication_tables t USING (pubname)
    JOIN pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_class x ON x.relnamespace = n.oid AND x.relname = t.tablename
    WHERE CASE affected.action WHEN 'DELETE' THEN p.pubdelete ELSE p.pubupdate END
      AND (x.oid = c.oid OR x.oid IN (SELECT relid FROM pg_partition_ancestors(c.oid))))
ORDER BY 1, 2`

// remarkUnidentified adds remarks about published relations without a replica identity, for which the server rejects
// the task's statements. It does so even if no row is obsolete.
func (x *counting) remarkUnidentified(ctx context.Context, a *Attempt) {
	if !x.run.Database.Env.Catalog.Publishes {
		return
	}
	changes := x.changes(a)
	var relations, actions []string
	for _, c := range changes {
		relations, actions = append(relations, c.relation), append(actions, string(c.action))
	}
	var (
		number   int
		refusing string
	)
	rows, _ := x.run.Database.Pool.Query(ctx, unidentified, relations, actions)
	_, err := pgx.ForEachRow(rows, []any{&number, &refusing}, func() error {
		changes[number-1].remark(fmt.Sprintf(
			"%s is published and has no replica identity, so the server rejects this: ALTER TABLE %[1]s REPLICA "+
				"IDENTITY FULL helps, or USING INDEX with a unique index",
			refusing,
		))
		return nil
	})
	for _, t := range x.found.tables.all {
		if err != nil && len(t.found) > 0 {
			t.remark("it is unknown whether published tables refuse this: " + sqlstate.Text(err))
		}
	}
}

type change struct {
	relation string
	action   PreviewAction
	remark   func(text string)
}

func (x *counting) changes(a *Attempt) (all []change) {
	found := &x.found.tables
	for _, j := range a.Jobs {
		if j.Step.Dependent() && len(a.Parents) == 0 {
			continue
		}
		all = append(all, change{j.Relation, actionOf(j), func(text string) {
			found.at(j.Table.Quoted(), actionOf(j), a.Plan.Describe(j)).remark(text)
		}})
	}
	for _, t := range found.all {
		for _, relation := range slices.Sorted(maps.Keys(t.found)) {
			all = append(all, change{relation, t.Action, t.remark})
		}
	}
	options := x.run.Database.Env.Catalog.Table("XtkOption")
	if options != nil && (a.Task.RollUp != nil || a.Task.Advances != campaign.Option{}) {
		all = append(all, change{options.Quoted(), ActionUpdate, func(text string) {
			if len(found.all) == 0 {
				found.at(options.Quoted(), ActionUpdate, "")
			}
			for _, t := range found.all {
				t.remark("the time up to which the task is done could not be stored: " + text)
			}
		}})
	}
	return all
}
