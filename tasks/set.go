package tasks

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// setSize is how many parents are worked on at once: their ids are sent with every statement.
const setSize = 20_000

// fixedSet is a Set on a database, with its ids.
type fixedSet struct {
	Set
	table *campaign.Table
	where string
	args  []any
	ids   []int64
	// leftovers are the ids of deliveries that stay on their mid-sourcing servers.
	leftovers []int64
}

// fix returns a task's set without its ids; nil, with notes, if it is not applicable to this database.
func (e *Env) fix(ctx context.Context, p *plan, s Set) (*fixedSet, error) {
	table := e.Catalog.Table(s.Parent)
	if table == nil || !table.Has(s.Key) {
		p.note(Info, "table %s, or its column %s, is missing: skipped", s.Parent, s.Key)
		return nil, nil
	}
	e.needs(p, table, "SELECT")
	var args []any
	where, err := (&condition{env: e, table: table, plan: p, args: &args}).any(ctx, s.Rules)
	if err != nil || where == "" || !table.CanSelect {
		return nil, err
	}
	return &fixedSet{Set: s, table: table, where: where, args: args}, nil
}

// read reads the ids.
func (s *fixedSet) read(ctx context.Context, db campaign.Querier) error {
	rows, err := db.Query(ctx, fmt.Sprintf("SELECT r.%[1]s::bigint FROM %[2]s AS r WHERE %[3]s AND r.%[1]s <> 0 ORDER BY 1", s.Key, s.table.Quoted(), s.where), s.args...)
	if err == nil {
		s.ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", s.Parent, err)
	}
	return nil
}

// bind keeps parents, and counts them as left.
func (e *Env) bind(ids []int64) {
	before := len(e.set.ids)
	e.keep(ids)
	e.left.Bound += int64(before - len(e.set.ids))
}

// keep removes parents from the task's set: they, and what depends on them, are left alone in this run.
func (e *Env) keep(ids []int64) {
	stays := idSet(ids)
	e.kept = e.kept || len(ids) > 0
	e.set.ids = slices.DeleteFunc(slices.Clone(e.set.ids), func(id int64) bool { return stays[id] })
}

// idSet is ids to look up.
func idSet(ids []int64) map[int64]bool {
	set := map[int64]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// inSet is the condition that a row is one of the set, or depends on one; empty, with a note, when it is not applicable.
func (c *condition) inSet(ctx context.Context, step Step) (string, error) {
	switch {
	case c.env.set == nil:
		return "", nil
	case step.Message != "":
		return c.ofMessage(ctx, step.Message)
	case step.OfSet:
		c.parents = "SELECT r." + c.env.set.Key
		return c.member(ctx)
	case !c.table.Has(step.Link):
		c.plan.note(Info, "%s has no column %s: skipped", c.table.Name, step.Link)
		return "", nil
	}
	c.parents = "SELECT r." + step.Link
	return c.linked(ctx, "r."+step.Link)
}

// apart reports whether a statement has to read each table apart from the others: Citus joins a distributed table to no local
// one, and an ordinary subquery is run where its tables are.
func (c *condition) apart() bool { return c.elsewhere || c.table.Elsewhere != "" }

// eligible is the set's own condition, on a row r of the parent table.
func (c *condition) eligible(ctx context.Context) (string, error) {
	s := c.env.set
	return (&condition{env: c.env, table: s.table, plan: c.plan, args: c.args}).any(ctx, s.Rules)
}

// member is the condition that a row of the parent table is one of the set. It includes the set's own condition, so that a
// parent that the application changed in the meantime stays.
func (c *condition) member(ctx context.Context) (string, error) {
	s := c.env.set
	where, err := c.eligible(ctx)
	return fmt.Sprintf("%s AND r.%[2]s <> 0 AND r.%[2]s IN (SELECT unnest(%[3]s))", where, s.Key, c.bind(s.ids, "bigint[]")), err
}

// linked is the condition that a column refers to a row of the set. The ids are hashed once per statement; the set's own
// condition is checked for the parent of each matching row, and OFFSET keeps PostgreSQL from reading all parents instead.
// Another server is sent the ids, and the parents are read first.
func (c *condition) linked(ctx context.Context, column string) (string, error) {
	s := c.env.set
	where, err := c.eligible(ctx)
	if c.apart() {
		return fmt.Sprintf("%[1]s <> 0 AND %[1]s = ANY (%[2]s) AND %[1]s IN (SELECT r.%[4]s FROM %[3]s AS r WHERE r.%[4]s = ANY (%[2]s) AND %[5]s)",
			column, c.bind(s.ids, "bigint[]"), s.table.Quoted(), s.Key, where), err
	}
	return fmt.Sprintf("%[1]s <> 0 AND %[1]s IN (SELECT unnest(%[2]s)) AND EXISTS (SELECT FROM (SELECT %[1]s AS id) AS child, %[3]s AS r WHERE r.%[4]s = child.id AND %[5]s OFFSET 0)",
		column, c.bind(s.ids, "bigint[]"), s.table.Quoted(), s.Key, where), err
}

// holdBack keeps the parents of rows that a sweep had to leave, so that the next run finds both. If they cannot be determined,
// it keeps all parents.
func (e *Env) holdBack(ctx context.Context, u unit) {
	ids := e.set.ids
	if found, err := e.parentsOf(ctx, u); err == nil {
		ids = found
	}
	if len(ids) == 0 { // a locked table may have had no such rows
		return
	}
	e.bind(ids)
	e.log(ctx, Warning, fmt.Sprintf("%d rows of %s stay, since rows of theirs stayed in %s; the next run takes both", len(ids), e.set.table.Name, u.Name))
}

// parentsOf returns the parents of the rows that a sweep has left.
func (e *Env) parentsOf(ctx context.Context, u unit) (ids []int64, err error) {
	tx, err := e.engine.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	rows, err := tx.Query(ctx, fmt.Sprintf("SELECT DISTINCT parent.id::bigint FROM ONLY %s AS r, LATERAL (%s) AS parent (id) WHERE %s", u.Relation, u.parents, u.Where), u.Args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
