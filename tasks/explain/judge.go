package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// judge adds the conditions of a job's rules to a step, and the conditions of its parents' rules if the row depends on
// a parent. of names the row; "" if it is the explained one. judge returns when all conditions become true; nil if time
// alone does not make them.
func (x *explanation) judge(
	ctx context.Context, s *Step, p *plan.Plan, j plan.Job, r row, of string,
) (*time.Time, error) {
	b := x.binder(p)
	conditions, own, err := x.conditions(ctx, b, j.Step.Rules, r, of)
	if err != nil {
		return nil, err
	}
	s.Conditions = conditions
	if len(j.Step.Rules) == 0 {
		own = &time.Time{}
	}
	if !j.Step.Dependent() {
		return own, nil
	}
	ids, err := x.parentsOf(ctx, j, r)
	if err != nil {
		return nil, err
	}
	var earliest *time.Time
	for _, id := range ids {
		parent := row{table: p.Parents.Table, relation: p.Parents.Table.Quoted(), key: byID(p.Parents.Key, id)}
		name := fmt.Sprintf("%s %d", parent.table.Name, id)
		conditions, due, err := x.conditions(ctx, b, p.Task.ParentSet.Rules, parent, name)
		if err != nil {
			return nil, err
		}
		s.Conditions = append(s.Conditions, conditions...)
		earliest = earlier(earliest, due)
	}
	return later(own, earliest), nil
}

// parentsOf returns the ids of the parents of a row.
func (x *explanation) parentsOf(ctx context.Context, j plan.Job, r row) ([]int64, error) {
	sql := fmt.Sprintf(
		"SELECT DISTINCT parent.id::bigint FROM ONLY %s AS r, LATERAL (%s) AS parent (id) WHERE parent.id <> 0 "+
			"AND %s ORDER BY 1",
		r.relation, j.ParentIDs, r.key.Where,
	)
	rows, err := x.tx.Query(ctx, sql, r.key.Args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// conditions judges the parts of rules for a row, and returns when all of one rule become true; nil if time alone does
// not make them.
func (x *explanation) conditions(
	ctx context.Context, b *binding.Binder, rules plan.Rules, r row, of string,
) (all []Condition, since *time.Time, err error) {
	env := x.simulation.Database().EnvFor(b.Plan.Task.Name)
	for i, clauses := range b.Plan.Clauses(rules, r.table, env) {
		at := &time.Time{}
		for _, clause := range clauses {
			c := Condition{Of: of, Alternative: i + 1, Text: clause.Text}
			if c.True, err = ask[bool](ctx, x.tx, b, clause.Condition, r); err != nil {
				return nil, nil, err
			}
			if c.Values, err = x.values(ctx, clause.Columns, r); err != nil {
				return nil, nil, err
			}
			if c.True == nil || !*c.True {
				due, err := x.due(ctx, b, clause.TrueFrom, r)
				if err != nil {
					return nil, nil, err
				}
				at = later(at, due)
			}
			all = append(all, c)
		}
		since = earlier(since, at)
	}
	return all, since, nil
}

// due returns when a condition becomes true; nil if time alone does not make it.
func (x *explanation) due(ctx context.Context, b *binding.Binder, q plan.Query, r row) (*time.Time, error) {
	if q.SQL == "" {
		return nil, nil
	}
	q.SQL = fmt.Sprintf(
		"(SELECT CASE WHEN due.at < %s THEN due.at END FROM (SELECT %s AS at) AS due)", plan.Never, q.SQL,
	)
	return ask[time.Time](ctx, x.tx, b, q, r)
}

// ask selects a value of a row; nil if it is unknown, or if the row does not exist.
func ask[T any](ctx context.Context, tx pgx.Tx, b *binding.Binder, q plan.Query, r row) (value *T, err error) {
	args, err := b.Values(ctx, q.Args)
	if err != nil {
		return nil, err
	}
	sql := fmt.Sprintf("SELECT %s FROM %s AS r WHERE %s", q.SQL, r.relation, r.key.NumberedAfter(len(args)))
	err = tx.QueryRow(ctx, sql, slices.Concat(args, r.key.Args)...).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

// values returns the values of the columns of a row that exist.
func (x *explanation) values(ctx context.Context, columns []string, r row) (values []string, err error) {
	for _, column := range columns {
		if column == "" || !r.table.Has(column) {
			continue
		}
		var value *string
		sql := fmt.Sprintf("SELECT r.%s::text FROM %s AS r WHERE %s", column, r.relation, r.key.Where)
		err := x.tx.QueryRow(ctx, sql, r.key.Args...).Scan(&value)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil, nil
		case err != nil:
			return nil, err
		case value == nil:
			values = append(values, column+" is NULL")
		default:
			values = append(values, column+" = "+*value)
		}
	}
	return values, nil
}

// earlier returns the earlier of two moments; nil stands for never.
func earlier(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.Before(*a)) {
		return b
	}
	return a
}

// later returns the later of two moments; nil for never if one of them is.
func later(a, b *time.Time) *time.Time {
	if a == nil || b == nil {
		return nil
	}
	if a.Before(*b) {
		return b
	}
	return a
}
