package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
)

// steps are those that concern the row.
func (r *foundRow) steps(ctx context.Context) (steps []RowStep, err error) {
	pairing := func(j plan.Job) bool { return j.Paired != nil && j.Paired.Relation == r.table.Quoted() }
	relevant := map[string]bool{r.relation: true}
	for _, what := range r.Pipeline {
		p, err := r.compile(what)
		if err != nil {
			return nil, err
		}
		for _, j := range p.Jobs {
			relevant[j.Relation] = relevant[j.Relation] || pairing(j)
		}
	}
	all, err := r.claims(ctx, func(j plan.Job) bool { return relevant[j.Relation] })
	if err != nil {
		return nil, err
	}
	taken := claimed{}
	add := func(s RowStep, c claimed) {
		if s.Verdict == Goes && taken.task != "" && taken.hides(c.job) {
			s.Verdict, s.Why = Stays, "the task "+taken.task+" takes it before"
		}
		if s.Verdict == Goes && (c.job.Set == nil || taken.task == "") {
			taken = c
		}
		steps = append(steps, s)
	}
	for _, what := range r.Pipeline {
		p, err := r.compile(what)
		if err != nil {
			return nil, err
		}
		for _, j := range p.Jobs {
			if j.Relation != r.relation && !pairing(j) {
				continue
			}
			s, err := r.step(ctx, p, j, all)
			if err != nil {
				return nil, err
			}
			add(s, claimed{task: what.Name, job: j})
		}
		for _, skip := range p.SkippedSteps {
			if skip.Table == r.table {
				steps = append(steps, skipped(what, skip))
			}
		}
		if r.coalesces(what, r.table) {
			s, err := r.coalesced(ctx, p)
			if err != nil {
				return nil, err
			}
			add(s, claimed{task: what.Name})
		}
	}
	return steps, nil
}

// skipped is a step that is not applicable to the table.
func skipped(t plan.Task, s plan.Skip) RowStep {
	step := RowStep{Task: t.Name, Action: Delete, Rule: s.Rule, Verdict: Stays, Why: "the step is skipped: " + s.Why}
	if s.Step.Update != nil {
		step.Action = Update
	}
	return step
}

// takes reports whether a claim takes the row: its own, or one that is paired with it, as those before leave it.
func (r *foundRow) takes(ctx context.Context, before []claimed, c claimed) (is bool, err error) {
	if c.job.Relation == r.relation {
		return is, r.ask(ctx, &is, "("+c.claim.Where+") IS TRUE", c.claim.Args)
	}
	s := purge.Sweep{
		Where: c.claim.Where,
		Args:  c.claim.Args,
	}.Without(
		but(append(slices.Clone(before), c), on(c.job.Relation), c)...)
	p := c.job.Paired
	exists := fmt.Sprintf(
		"k.%[1]s <> 0 AND EXISTS (SELECT FROM ONLY %[2]s AS r WHERE r.%[3]s = k.%[1]s AND %[4]s)",
		p.Key,
		c.job.Relation,
		p.ID,
		s.Where,
	)
	return is, r.tx.QueryRow(ctx, fmt.Sprintf("SELECT %s FROM ONLY %s AS k WHERE EXISTS (SELECT FROM ONLY %[2]s AS r "+
		"WHERE r.ctid = k.ctid AND %s)", exists, r.relation, r.key.NumberedAfter(len(s.Args))),
		slices.Concat(s.Args, r.key.Args)...).
		Scan(&is)
}

// step explains what a job does to the row, by all claims of the run on its table.
func (r *foundRow) step(ctx context.Context, p *plan.Plan, j plan.Job, all []claimed) (s RowStep, err error) {
	s = r.begun(p.Task.Name, ruleOf(j, p.Parents))
	if j.Set != nil {
		s.Action = Update
	}
	takes := false
	if i := slices.IndexFunc(
		all,
		func(c claimed) bool { return c.key() == claimed{task: s.Task, job: j}.key() },
	); i >= 0 {
		if takes, err = r.takes(ctx, all[:i], all[i]); err != nil {
			return s, err
		}
	}
	of, whose := *r, "" // the row that the rule is about
	if j.Relation != r.relation {
		s.Rule = fmt.Sprintf("with the row of %s of the same id: %s", j.Table.Name, s.Rule)
		var id *int64
		if err := r.ask(
			ctx,
			&id,
			fmt.Sprintf(
				"(SELECT t.%[1]s::bigint FROM ONLY %[2]s AS t WHERE t.%[1]s = r.%[3]s AND t.%[1]s <> 0 LIMIT 1)",
				j.Paired.ID,
				j.Relation,
				j.Paired.Key,
			),
			nil,
		); err != nil {
			return s, err
		}
		if id == nil {
			s.Why = j.Name + " has no row of the same id"
			return s, nil
		}
		of.table, of.relation, of.key = j.Table, j.Relation, purge.Condition{
			Where: "r." + j.Paired.ID + " = $1::bigint",
			Args:  []any{*id},
		}
		whose = fmt.Sprintf("%s %d", j.Table.Name, *id)
	}
	due, err := of.judge(ctx, &s, p, j)
	if err != nil {
		return s, err
	}
	for i := range s.Parts {
		s.Parts[i].Of = cmp.Or(s.Parts[i].Of, whose)
	}
	for _, way := range j.OnHold {
		if err := of.ask(ctx, &s.Held, "("+way.Condition.Where+") IS TRUE", way.Condition.Args); err != nil {
			return s, err
		}
		if s.Held {
			break
		}
	}
	r.settle(&s, takes, due)
	return s, nil
}

// begun is a step that is not yet judged, unless its task is known not to succeed.
func (r *foundRow) begun(task, rule string) RowStep {
	s := RowStep{Task: task, Action: Delete, Rule: rule, Verdict: Stays}
	if r.preview.void[task] {
		s.Verdict, s.Why = Unknown, "the task would not succeed: "+r.problems[task]
	}
	return s
}

// settle gives a step its verdict: takes says that it takes the row now, and due from when on all parts of a rule are
// true, nil if time alone does not make them.
func (r *foundRow) settle(s *RowStep, takes bool, due *time.Time) {
	switch {
	case s.Verdict == Unknown:
	case takes:
		s.Verdict = Goes
	case r.zero:
		s.Why = "it is the zero record"
	case s.Held:
		s.Why = "it is held, or what belongs to it"
	case due != nil && due.After(r.Now):
		s.Verdict, s.Since = Later, due
	case due != nil:
		s.Why = "something that is not part of the rule keeps it: what it belongs to, or what depends on it"
	default:
		s.Why = "the rule is not true of it"
	}
}

// judge adds the parts of a job's rules to a step, and those of its set's where the row depends on that. It returns
// from when on all are true; nil: time alone does not make them.
func (r *foundRow) judge(ctx context.Context, s *RowStep, p *plan.Plan, j plan.Job) (*time.Time, error) {
	parts, own, err := r.parts(
		ctx,
		r.other(p),
		p.Clauses(j.Step.Rules, r.table, r.givenFor(p.Task.Name)),
		r.relation,
		r.key,
	)
	if err != nil {
		return nil, err
	}
	s.Parts = parts
	if len(j.Step.Rules) == 0 {
		own = &time.Time{}
	}
	if !j.Step.Dependent() {
		return own, nil
	}
	rows, err := r.tx.Query(
		ctx,
		fmt.Sprintf(
			"SELECT DISTINCT parent.id::bigint FROM ONLY %s AS r, LATERAL (%s) AS parent (id) WHERE parent.id <> 0 "+
				"AND %s ORDER BY 1",
			r.relation,
			j.ParentIDs,
			r.key.Where,
		),
		r.key.Args...)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	set := p.Parents
	var earliest *time.Time
	for _, id := range ids {
		parts, due, err := r.parts(
			ctx,
			r.other(p),
			p.Clauses(p.Task.ParentSet.Rules, set.Table, r.givenFor(p.Task.Name)),
			set.Table.Quoted(),
			purge.Condition{Where: "r." + set.Key + " = $1::bigint", Args: []any{id}},
		)
		if err != nil {
			return nil, err
		}
		for _, part := range parts {
			part.Of = fmt.Sprintf("%s %d", set.Table.Name, id)
			s.Parts = append(s.Parts, part)
		}
		earliest = earlier(earliest, due)
	}
	return later(own, earliest), nil
}

// earlier is the earlier of two moments, of which nil is none.
func earlier(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.Before(*a)) {
		return b
	}
	return a
}

// later is the later of two moments; nil if one of them is none.
func later(a, b *time.Time) *time.Time {
	if a == nil || b == nil {
		return nil
	}
	if a.Before(*b) {
		return b
	}
	return a
}

// parts judges the parts of rules of a row of a relation, and returns from when on all of one rule are true; nil: time
// alone does not make them.
func (r *foundRow) parts(
	ctx context.Context,
	w *task,
	rules [][]plan.Clause,
	relation string,
	key purge.Condition,
) (parts []Part, since *time.Time, err error) {
	for i, clauses := range rules {
		at := &time.Time{}
		for _, c := range clauses {
			part := Part{Alternative: i + 1, Words: c.Text}
			if part.Is, err = ask[bool](ctx, r.tx, w, c.Condition, relation, key); err != nil {
				return nil, nil, err
			}
			if part.Values, err = r.values(ctx, c.Columns, relation, key); err != nil {
				return nil, nil, err
			}
			if part.Is == nil || !*part.Is {
				var due *time.Time
				if c.TrueFrom.SQL != "" {
					c.TrueFrom.SQL = fmt.Sprintf(
						"(SELECT CASE WHEN due.at < %s THEN due.at END FROM (SELECT %s AS at) AS due)",
						plan.Never,
						c.TrueFrom.SQL,
					)
					if due, err = ask[time.Time](ctx, r.tx, w, c.TrueFrom, relation, key); err != nil {
						return nil, nil, err
					}
				}
				at = later(at, due)
			}
			parts = append(parts, part)
		}
		since = earlier(since, at)
	}
	return parts, since, nil
}

// ask asks something about a row; nil: it is unknown, or there is no such row.
func ask[T any](
	ctx context.Context,
	tx pgx.Tx,
	w *task,
	q plan.Query,
	relation string,
	key purge.Condition,
) (value *T, err error) {
	args, err := w.values(ctx, q.Args, nil)
	if err != nil {
		return nil, err
	}
	err = tx.QueryRow(
		ctx,
		fmt.Sprintf("SELECT %s FROM %s AS r WHERE %s", q.SQL, relation, key.NumberedAfter(len(args))),
		slices.Concat(args, key.Args)...,
	).
		Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

// values are the values of some columns of a row, as far as they are there.
func (r *foundRow) values(
	ctx context.Context,
	columns []string,
	relation string,
	key purge.Condition,
) (values []string, err error) {
	for _, column := range columns {
		if column == "" || (!r.table.Has(column) && relation == r.relation) {
			continue
		}
		var value *string
		err := r.tx.QueryRow(
			ctx,
			fmt.Sprintf("SELECT r.%s::text FROM %s AS r WHERE %s", column, relation, key.Where),
			key.Args...,
		).
			Scan(&value)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil, nil
		case sqlstate.Is(err, pgerrcode.UndefinedColumn):
			continue
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
