package execute

import (
	"context"
	"fmt"
	"slices"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/jackc/pgx/v5"
)

// sizes is how many bytes relations ($1) take with their partitions, and the database; without the parts that VACUUM
// adds.
const sizes = `WITH RECURSIVE leaf AS (SELECT to_regclass(name)::oid AS oid FROM unnest($1::text[]) AS name UNION
	SELECT i.inhrelid FROM leaf JOIN pg_inherits i ON i.inhparent = leaf.oid JOIN pg_class p ON p.oid = leaf.oid
	AND p.relkind = 'p')
SELECT COALESCE(sum(pg_relation_size(c.oid) + COALESCE(pg_relation_size(NULLIF(c.reltoastrelid, 0)),
  0) + pg_indexes_size(c.oid)), 0)::bigint, pg_database_size(current_database())
FROM leaf JOIN pg_class c ON c.oid = leaf.oid WHERE c.relkind IN ('r', 'm')`

// judgeDrops returns the guards that trip for work tables that would be dropped, of kinds with a mask.
func (t *task) judgeDrops(ctx context.Context, mask string, tables []string) (trips []Trip, err error) {
	h := t.history
	latched := func(of Guard) bool { return t.DryRun && t.isLatched(of, mask) }
	n := Trip{GuardTables, mask, int64(len(tables)), h.most(GuardTables, mask, float64(h.MaxTables), 0)}
	if h.MaxTables > 0 && (n.Number > n.Most || latched(GuardTables)) {
		trips = append(trips, n)
	}
	if h.MaxDropPercent == 0 || (len(tables) == 0 && !latched(GuardBytes)) {
		return trips, nil
	}
	b, database := Trip{Guard: GuardBytes, Table: mask}, int64(0)
	err = pgx.BeginFunc(ctx, t.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, sizes, tables).Scan(&b.Number, &database)
	})
	if b.Most = h.most(
		GuardBytes,
		mask,
		float64(database)*h.MaxDropPercent/100,
		0,
	); b.Number > b.Most ||
		latched(GuardBytes) {
		trips = append(trips, b)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the sizes of work tables: %w", err)
	}
	return trips, nil
}

// quotedOf are the quoted names of work tables.
func quotedOf(tables []campaign.WorkTable) (names []string) {
	for _, w := range tables {
		names = append(names, w.Quoted())
	}
	return names
}

// judgeListTables is judgeDrops for the tables of lists.
func (t *task) judgeListTables(ctx context.Context, jobs []plan.Job, ids []int64) ([]Trip, error) {
	i := slices.IndexFunc(jobs, func(j plan.Job) bool { return j.Step.Tables != nil })
	if i < 0 || len(ids) == 0 {
		return nil, nil
	}
	prefix := jobs[i].Step.Tables.Prefix
	s, err := t.bind(ctx, &jobs[i], without(ids, t.heldBack))
	if err != nil {
		return nil, err
	}
	rows, err := t.Pool.Query(
		ctx,
		fmt.Sprintf(
			"SELECT r.%s::bigint FROM %s AS r WHERE (%s) AND %s",
			s.ByKey,
			s.Relation,
			s.Where,
			jobs[i].TypedTables,
		),
		s.Args...)
	if err != nil {
		return nil, err
	}
	typed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("ask which lists have tables: %w", err)
	}
	tables, err := t.given.Catalog.WorkTablesOf(ctx, t.Pool, prefix, typed)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(
		tables,
		func(w campaign.WorkTable) bool { return !t.mayDrop(w) || t.Holds.WorkTable(w, "") },
	)
	held, err := t.haveHeld(ctx, tables)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(tables, func(w campaign.WorkTable) bool { return held[w.Name] })
	return t.judgeDrops(ctx, maskOf(prefix), quotedOf(tables))
}

// mask stands for all work tables that the task drops; empty: it drops none.
func (t *task) mask() string {
	for _, j := range t.plan.Jobs {
		if j.Step.Tables != nil {
			return maskOf(j.Step.Tables.Prefix)
		}
	}
	if len(t.plan.Drops) == 0 {
		return ""
	}
	return maskOf(t.plan.Drops[0].Prefix)
}

// guardDrops fails with a RefusedError if more work tables of some kinds would be dropped than usual, and nobody has
// accepted that. None is dropped by then.
func (t *task) guardDrops(ctx context.Context, found [][]campaign.WorkTable, asks []question) error {
	if t.history == nil || t.DryRun {
		return nil
	}
	var names []string
	for i, ask := range asks {
		if len(found[i]) == 0 {
			continue
		}
		unused, err := ask(ctx, t.Pool, found[i])
		if err != nil {
			return err
		}
		names = append(names, quotedOf(unused)...)
	}
	trips, err := t.judgeDrops(ctx, t.mask(), names)
	if err != nil {
		return err
	}
	return tripped(trips)
}
