package explain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// judge adds the conditions of a job's rules to a step, and those of its parents' rules if the row depends on a
// parent. of is the name of the row; "" for the explained row. The result is when all conditions become true; nil
// if they do not with time alone.
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

func (x *explanation) parentsOf(ctx context.Context, j plan.Job, r row) ([]int64, error) {
	known := sqlexpr.Format("parent.id <> 0 AND %s", r.key)
	return sqlexpr.Format("%s ORDER BY 1", j.ParentsOf(r.relation, known)).IDs(ctx, x.tx)
}

// conditions evaluates rules for a row. The result is when all parts of one rule become true; nil if they do not
// with time alone.
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

// due returns when a condition becomes true; nil if it does not with time alone.
func (x *explanation) due(ctx context.Context, b *binding.Binder, at sqlexpr.Expr, r row) (*time.Time, error) {
	if at.IsZero() {
		return nil, nil
	}
	due := sqlexpr.Format("(SELECT CASE WHEN due.at < %s THEN due.at END FROM (SELECT %s AS at) AS due)", plan.Never,
		at)
	return ask[time.Time](ctx, x.tx, b, due, r)
}

// ask evaluates SQL for a row. It returns nil if the value is NULL or the row does not exist.
func ask[T any](ctx context.Context, tx pgx.Tx, b *binding.Binder, sql sqlexpr.Expr, r row) (value *T, err error) {
	bound, err := b.Bind(ctx, sql, nil)
	if err != nil {
		return nil, err
	}
	err = sqlexpr.Format("SELECT %s FROM %s AS r WHERE %s", bound, r.relation, r.key).QueryRow(ctx, tx).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

func (x *explanation) values(ctx context.Context, columns []string, r row) (values []string, err error) {
	for _, column := range columns {
		if column == "" || !r.table.Has(column) {
			continue
		}
		var value *string
		query := sqlexpr.Format("SELECT r.%s::text FROM %s AS r WHERE %s", r.table.Spell(column), r.relation,
			r.key)
		err := query.QueryRow(ctx, x.tx).Scan(&value)
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

func earlier(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.Before(*a)) {
		return b
	}
	return a
}

// later returns the later one of two times, where nil stands for never.
func later(a, b *time.Time) *time.Time {
	if a == nil || b == nil {
		return nil
	}
	if a.Before(*b) {
		return b
	}
	return a
}
