package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/candidates"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rollup"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type explanation struct {
	*Explainer
	tx  pgx.Tx
	row row
}

func (x *explanation) steps(ctx context.Context) (steps []Step, err error) {
	relevant := map[string]bool{x.row.relation: true}
	plans := map[string]*plan.Plan{}
	for _, t := range x.config.Pipeline {
		p, err := x.simulation.Database().Compile(t)
		if err != nil {
			return nil, err
		}
		plans[t.Name] = p
		for _, j := range p.Jobs {
			relevant[j.Relation] = relevant[j.Relation] || x.isPaired(j)
		}
	}
	all, err := x.simulation.Candidates(ctx, relevant)
	if err != nil {
		return nil, err
	}
	taker := candidates.Set{} // the first set that deletes the row, or else updates it
	add := func(s Step, c candidates.Set) {
		if s.Verdict == Deleted && taker.Task != "" && taker.Hides(c.Job) {
			s.Verdict, s.Why = Kept, "the task "+taker.Task+" takes it before"
		}
		if s.Verdict == Deleted && (c.Job.Set == nil || taker.Task == "") {
			taker = c
		}
		steps = append(steps, s)
	}
	for _, t := range x.config.Pipeline {
		p := plans[t.Name]
		for _, j := range p.Jobs {
			if j.Relation != x.row.relation && !x.isPaired(j) {
				continue
			}
			s, err := x.step(ctx, p, j, all)
			if err != nil {
				return nil, err
			}
			add(s, candidates.Set{Task: t.Name, Job: j})
		}
		for _, skip := range p.SkippedSteps {
			if skip.Table == x.row.table {
				steps = append(steps, skipped(t.Name, skip))
			}
		}
		if rollsUp(x.simulation.Database().Env.Catalog, p, x.row.table) {
			s, err := x.rollUpStep(ctx, p)
			if err != nil {
				return nil, err
			}
			add(s, candidates.Set{Task: t.Name})
		}
	}
	return steps, nil
}

// isPaired reports whether the job deletes the explained row together with one of the job's table.
func (x *explanation) isPaired(j plan.Job) bool {
	return j.Paired != nil && j.Paired.Relation == x.row.table.Quoted()
}

func skipped(task string, s plan.Skip) Step {
	step := Step{
		Task:    task,
		Action:  preview.ActionOf(s.Step.Update != nil, s.Step.Partitions),
		Rule:    s.Rule,
		Verdict: Kept,
		Why:     "the step is skipped: " + s.Why,
	}
	return step
}

// newStep returns a step that is to be judged, or that is unknown because its task is known to fail.
func (x *explanation) newStep(task, rule string) Step {
	s := Step{Task: task, Action: preview.Delete, Rule: rule, Verdict: Kept}
	if problem, ineffective := x.simulation.Ineffective(task); ineffective {
		s.Verdict, s.Why = Unknown, "the task would not succeed: "+problem
	}
	return s
}

func (x *explanation) step(ctx context.Context, p *plan.Plan, j plan.Job, all []candidates.Set) (s Step, err error) {
	s = x.newStep(p.Task.Name, p.Describe(j))
	s.Action = preview.ActionOf(j.Set != nil, j.Partitions)
	deletes := false
	key := candidates.Set{Task: s.Task, Job: j}.Key()
	if i := slices.IndexFunc(all, func(c candidates.Set) bool { return c.Key() == key }); i >= 0 {
		if deletes, err = x.deletes(ctx, all[:i], all[i]); err != nil {
			return s, err
		}
	}
	judged, of := x.row, ""
	if j.Relation != x.row.relation {
		s.Rule = fmt.Sprintf("with the row of %s of the same id: %s", j.Table.Name, s.Rule)
		id, err := x.idOfPaired(ctx, j)
		if err != nil {
			return s, err
		}
		if id == nil {
			s.Why = j.Name + " has no row of the same id"
			return s, nil
		}
		judged = row{table: j.Table, relation: j.Relation, key: byID(j.Paired.ID, *id)}
		of = fmt.Sprintf("%s %d", j.Table.Name, *id)
	}
	due, err := x.judge(ctx, &s, p, j, judged, of)
	if err != nil {
		return s, err
	}
	for _, by := range j.OnHold {
		if err := x.ask(ctx, &s.OnHold, sqlexpr.Format("(%s) IS TRUE", by.Condition), judged); err != nil {
			return s, err
		}
		if s.OnHold {
			break
		}
	}
	x.conclude(&s, deletes, due)
	if p.Task.Disabled {
		s.Verdict, s.Since, s.Why = Kept, nil, "the task is disabled"
		return s, nil
	}
	if s.Verdict == Kept && due != nil && !due.After(x.config.Now) && !s.OnHold && !x.row.zero {
		return s, x.addReferring(ctx, &s, j, judged)
	}
	return s, nil
}

// addReferring says which tables have rows whose foreign keys keep the row.
func (x *explanation) addReferring(ctx context.Context, s *Step, j plan.Job, r row) error {
	var names []string
	for _, k := range j.Table.KeysTo() {
		name := k.Table.FullName()
		if k.Action != campaign.Refuses || !k.Table.CanSelect || slices.Contains(names, name) {
			continue
		}
		var refers bool
		exists := sqlexpr.Format("EXISTS (SELECT FROM %s AS c WHERE %s)", k.Table.Quoted(), k.On("r", "c"))
		if err := x.ask(ctx, &refers, exists, r); err != nil {
			return err
		}
		if refers {
			names = append(names, name)
		}
	}
	if names != nil {
		s.Why = "foreign keys of rows of " + strings.Join(names, ", ") + " refer to it"
	}
	return nil
}

func (x *explanation) idOfPaired(ctx context.Context, j plan.Job) (id *int64, err error) {
	of := sqlexpr.Format(
		"(SELECT t.%[1]s::bigint FROM ONLY %[2]s AS t WHERE t.%[1]s = r.%[3]s AND t.%[1]s <> 0 LIMIT 1)", j.Paired.ID,
		j.Relation, j.Paired.Key)
	return id, x.ask(ctx, &id, of, x.row)
}

func byID(column string, id int64) sqlexpr.Expr {
	return sqlexpr.Format("r.%s = %s", column, sqlexpr.Arg(id, "bigint"))
}

// deletes reports whether the set has the row, or one that is paired with it, and the sets before do not.
func (x *explanation) deletes(ctx context.Context, before []candidates.Set, c candidates.Set) (is bool, err error) {
	if c.Job.Relation == x.row.relation {
		return is, x.ask(ctx, &is, sqlexpr.Format("(%s) IS TRUE", c.Rows.Where), x.row)
	}
	excluded := candidates.Exclusions(append(slices.Clone(before), c), candidates.On(c.Job.Relation), c)
	s := purge.Sweep{Where: c.Rows.Where}.Without(excluded...)
	p := c.Job.Paired
	exists := sqlexpr.Format("k.%[1]s <> 0 AND EXISTS (SELECT FROM ONLY %[2]s AS r WHERE r.%[3]s = k.%[1]s AND %[4]s)",
		p.Key, c.Job.Relation, p.ID, s.Where)
	return is, sqlexpr.Format(
		"SELECT %s FROM ONLY %s AS k WHERE EXISTS (SELECT FROM ONLY %[2]s AS r WHERE r.ctid = k.ctid AND %[3]s)",
		exists, x.row.relation, x.row.key).QueryRow(ctx, x.tx).Scan(&is)
}

// conclude sets the verdict of a step. deletes is set if the step deletes the row now. due is when all parts of a
// rule become true; nil if they do not with time alone.
func (x *explanation) conclude(s *Step, deletes bool, due *time.Time) {
	switch {
	case s.Verdict == Unknown:
	case deletes:
		s.Verdict = Deleted
	case x.row.zero:
		s.Why = "it is the zero record"
	case s.OnHold:
		s.Why = "it is held, or what belongs to it"
	case due != nil && due.After(x.config.Now):
		s.Verdict, s.Since = DeletedLater, due
	case due != nil:
		s.Why = "something that is not part of the rule keeps it: what it belongs to, or what depends on it"
	default:
		s.Why = "the rule is not true of it"
	}
}

func (x *explanation) rollUpStep(ctx context.Context, p *plan.Plan) (s Step, err error) {
	env := x.simulation.Database().Env
	period, skip := rollup.New(env, *p.Task.RollUp)
	if skip != nil {
		return skipped(p.Task.Name, plan.Skip{Rule: period.Rule(), Why: skip.Text}), nil
	}
	if err := period.Find(ctx, x.tx); err != nil {
		return s, err
	}
	s = x.newStep(p.Task.Name, period.Rule())
	s.OnHold = period.OnHold(env, p)
	var inPeriod bool
	if err := x.ask(ctx, &inPeriod, sqlexpr.Format("(%s) IS TRUE", period.Condition()), x.row); err != nil {
		return s, err
	}
	var due *time.Time
	b := x.binder(p)
	s.Conditions, due, err = x.conditions(ctx, b, period.Rules(), x.row, "")
	x.conclude(&s, inPeriod && !s.OnHold, due)
	return s, err
}

func (x *explanation) binder(p *plan.Plan) *binding.Binder { return x.simulation.Attempt(p).Binder }

// ask evaluates SQL on the row as r.
func (x *explanation) ask(ctx context.Context, dest any, sql sqlexpr.Expr, r row) error {
	query := sqlexpr.Format("SELECT %s FROM ONLY %s AS r WHERE %s", sql, r.relation, r.key)
	return query.QueryRow(ctx, x.tx).Scan(dest)
}
