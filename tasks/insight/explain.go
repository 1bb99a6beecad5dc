package insight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Statement struct {
	// Table is the quoted name with the schema, or the pattern of the names of work tables.
	Table string
	// Action is "" for a query, and for VACUUM and ANALYZE.
	Action cleanup.PreviewAction
	Rule   string
	// SQL lacks the condition that limits each batch to a part of the table. For a statement on many tables it names only
	// the first ones. It is "" if no work table would be dropped.
	SQL        string
	Parameters []string
	Scan       purge.Scan
	// Partitions is how many partitions the statement is for, one after another. SQL names the first one.
	Partitions int
}

type TaskExplanation struct {
	Now time.Time
	// Parents is the query for the parents, and Rows is how many it finds; nil if the task has no parents.
	Parents    *Statement
	Rows       int64
	Statements []Statement
	Skips      []string
}

// DescribeTask returns the statements of a task. It says that something is on hold, but not what: a caller who may
// see statements may not be allowed to see the holds.
func DescribeTask(
	ctx context.Context, c cleanup.Config, holds rules.Holds, t rules.Task,
) (e TaskExplanation, err error) {
	if err := c.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
		return e, err
	}
	e.Now = c.Now
	if o, ok := c.External[t.Name]; ok {
		err = explainOutside(ctx, o, &e)
		return e, err
	}
	a, skips, err := newAttempt(ctx, c, t)
	if err != nil {
		return e, err
	}
	if len(holds.Names) > 0 {
		e.Skips = append(e.Skips, "something is on hold and is retained, whatever the statements say")
	}
	defer func() { e.Skips = append(e.Skips, skips.messages...) }()
	if z := a.Binder.Env.Catalog.Zone; z.Unknown {
		skips.add(z.Reason.Text)
	}
	ctx = a.Database().InZone(ctx)
	for _, n := range a.Plan.Notes {
		skips.add(n.Text)
	}
	for _, grant := range a.Plan.Rights {
		skips.add("the task fails before it deletes anything; have the tables' owner execute: " + grant)
	}
	if a.Plan.Rights != nil {
		return e, nil
	}
	if err := addEmptyParents(ctx, a, skips); err != nil {
		return e, err
	}
	ids, err := a.Binder.Parents(ctx, a.Plan.Parents)
	if err != nil {
		return e, err
	}
	if p := a.Plan.Parents; p != nil {
		e.Rows = int64(len(ids))
		sql, args := p.Query("r." + p.Key).Build()
		e.Parents = &Statement{Table: p.Table.Quoted(), Rule: p.Rule, SQL: sql, Parameters: format(args)}
	}
	if e.Statements, err = sweeps(ctx, a, ids, skips); err != nil {
		return e, err
	}
	for _, more := range []func(context.Context, *cleanup.Attempt, *skipLog) ([]Statement, error){
		rollUp,
		drops,
		func(ctx context.Context, a *cleanup.Attempt, _ *skipLog) ([]Statement, error) {
			return vacuums(ctx, a, c.VacuumTruncate)
		},
	} {
		statements, err := more(ctx, a, skips)
		if err != nil {
			return e, err
		}
		e.Statements = append(e.Statements, statements...)
	}
	return e, nil
}

// newAttempt returns an attempt, and the log of the parts that it skips, with the reasons.
func newAttempt(ctx context.Context, c cleanup.Config, t rules.Task) (*cleanup.Attempt, *skipLog, error) {
	skips := &skipLog{}
	r := cleanup.NewRun(ctx, c, skips, c.Pool)
	if err := r.Database.Refresh(ctx); err != nil {
		return nil, nil, err
	}
	skips.messages = nil // the messages about the catalog, which each run logs
	p, err := r.Database.Compile(t)
	if err != nil {
		return nil, nil, err
	}
	return r.NewAttempt(p), skips, nil
}

// skipLog collects each message once.
type skipLog struct {
	cleanup.Discard
	messages []string
}

func (s *skipLog) add(message string) {
	if !slices.Contains(s.messages, message) {
		s.messages = append(s.messages, message)
	}
}

func (s *skipLog) Log(_ context.Context, messages ...message.Message) error {
	for _, m := range messages {
		s.add(m.Text)
	}
	return nil
}

// addEmptyParents adds the parent tables that are empty now: as long as they are, no row counts as an orphan of theirs.
func addEmptyParents(ctx context.Context, a *cleanup.Attempt, skips *skipLog) error {
	var names []string
	for _, j := range a.Plan.Jobs {
		for _, o := range j.Orphans {
			if o.EmptyAfter == "" {
				names = append(names, o.Parent)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		empty, err := a.Binder.Env.Catalog.Table(name).Empty(ctx, a.Binder.Pool)
		if err != nil {
			return err
		}
		if empty {
			skips.add(message.ParentTableEmpty.With("table", name).Text)
		}
	}
	return nil
}

// sweeps returns one statement for all partitions of a table.
func sweeps(ctx context.Context, a *cleanup.Attempt, parents []int64, skips *skipLog) (all []Statement, err error) {
	for i, j := range a.Plan.Jobs {
		if i > 0 && a.Plan.Jobs[i-1].StepNumber == j.StepNumber && a.Plan.Jobs[i-1].Table == j.Table {
			all[len(all)-1].Partitions++
			continue
		}
		s := Statement{
			Table: j.Table.Quoted(), Action: cleanup.ActionOf(j.Set != nil, j.Partitions), Rule: a.Plan.Describe(j),
			Partitions: 1,
		}
		sweep, err := a.Binder.Sweep(ctx, &j, parents[:min(len(parents), cleanup.ParentsAtOnce)])
		if err != nil {
			return nil, err
		}
		sql, args := sweep.SQL().Build()
		s.SQL, s.Parameters = sql, format(args)
		if s.Scan, err = scan(ctx, a, sweep, skips); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// scan returns how a sweep finds its rows. If that is unknown, it adds the reason to the log.
func scan(ctx context.Context, a *cleanup.Attempt, s purge.Sweep, skips *skipLog) (purge.Scan, error) {
	scan, err := a.Binder.Engine.Scan(ctx, s)
	if failed := (*purge.OtherServerError)(nil); errors.As(err, &failed) {
		skips.add(s.Relation + ": its rows cannot be found: " + failed.Reason)
		return purge.Scan{}, nil
	}
	if sqlstate.Is(err, pgerrcode.LockNotAvailable, pgerrcode.QueryCanceled) ||
		campaign.Dropped(ctx, a.Binder.Pool, err, s.Relation) {
		skips.add(s.Relation + ": the table is locked or no longer exists")
		return purge.Scan{}, nil
	}
	return scan, err
}

func explainOutside(ctx context.Context, o external.Task, e *TaskExplanation) error {
	if o.Disabled {
		e.Skips = append(e.Skips, fmt.Sprintf("the task %s is disabled", o.Name))
	}
	statements, err := o.Statements(ctx, e.Now)
	for _, s := range statements {
		action := cleanup.PreviewAction("")
		if s.Deletes {
			action = cleanup.ActionDelete
		}
		e.Statements = append(e.Statements, Statement{Table: s.Table, Action: action, Rule: s.Rule, SQL: s.SQL})
	}
	return err
}

type explanation struct {
	*Explainer
	tx  pgx.Tx
	row row
}

func (x *explanation) steps(ctx context.Context) (steps []StepExplanation, err error) {
	relevant := map[string]bool{x.row.relation: true}
	plans := map[string]*rules.Plan{}
	above := map[*campaign.Table][]row{}
	for _, t := range x.config.Pipeline {
		p, err := x.simulation.Database().Compile(t)
		if err != nil {
			return nil, err
		}
		plans[t.Name] = p
		for _, j := range p.Jobs {
			relevant[j.Relation] = relevant[j.Relation] || x.isPaired(j)
			if _, known := above[j.Table]; !known && takesAlong(j, x.row.table) {
				if above[j.Table], err = x.above(ctx, j.Table, x.row); err != nil {
					return nil, err
				}
			}
			for _, r := range above[j.Table] {
				relevant[r.relation] = true
			}
		}
	}
	all, err := x.simulation.Rows(ctx, relevant)
	if err != nil {
		return nil, err
	}
	taker := rules.JobRows{} // the first job that deletes the row, or else updates it
	add := func(s StepExplanation, c rules.JobRows) {
		if s.Verdict == Deleted && taker.Task != "" && taker.Hides(c.Job) {
			s.Verdict, s.Why = Kept, "the task "+taker.Task+" deletes or updates it first"
		}
		if s.Verdict == Deleted && (c.Job.Set == nil || taker.Task == "") {
			taker = c
		}
		steps = append(steps, s)
	}
	for _, t := range x.config.Pipeline {
		p := plans[t.Name]
		for _, j := range p.Jobs {
			for _, r := range above[j.Table] {
				if r.relation != j.Relation || !takesAlong(j, x.row.table) {
					continue
				}
				s, err := x.stepAbove(ctx, p, j, all, r)
				if err != nil {
					return nil, err
				}
				add(s, rules.JobRows{Task: t.Name, Job: j})
			}
			if j.Relation != x.row.relation && !x.isPaired(j) {
				continue
			}
			s, err := x.step(ctx, p, j, all)
			if err != nil {
				return nil, err
			}
			add(s, rules.JobRows{Task: t.Name, Job: j})
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
			add(s, rules.JobRows{Task: t.Name})
		}
	}
	return steps, nil
}

// isPaired reports whether the job deletes the explained row together with one of the job's table.
func (x *explanation) isPaired(j rules.Job) bool {
	return j.Paired != nil && j.Paired.Relation == x.row.table.Quoted()
}

// takesAlong reports whether foreign keys may delete rows of another table with those that the job deletes.
func takesAlong(j rules.Job, t *campaign.Table) bool {
	return j.Table != t && j.Set == nil && j.Partitions != purge.DetachPartitions && slices.Contains(j.Table.Going(), t)
}

// above returns the rows of a table with which foreign keys delete r. path has the tables from which keys were
// followed.
func (x *explanation) above(ctx context.Context, top *campaign.Table, r row, path ...*campaign.Table) ([]row, error) {
	var rows []row
	path = append(slices.Clone(path), r.table)
	for _, k := range r.table.ForeignKeys {
		if k.Action != campaign.Deletes || slices.Contains(path, k.Parent) || !k.Parent.CanSelect ||
			!slices.Contains(top.Going(), k.Parent) {
			continue
		}
		parent := row{table: k.Parent, relation: k.Parent.Quoted(), key: r.linked(k.On("r", "other"))}
		exists, err := parent.find(ctx, x.tx)
		if err != nil {
			return nil, err
		}
		further := []row{parent}
		if exists && k.Parent != top {
			further, err = x.above(ctx, top, parent, path...)
		}
		if err != nil {
			return nil, err
		}
		if exists {
			rows = append(rows, further...)
		}
	}
	return rows, nil
}

// stepAbove is the step that deletes the row with one above it.
func (x *explanation) stepAbove(
	ctx context.Context, p *rules.Plan, j rules.Job, all []rules.JobRows, r row,
) (StepExplanation, error) {
	s, err := (&explanation{Explainer: x.Explainer, tx: x.tx, row: r}).step(ctx, p, j, all)
	name := j.Table.FullName()
	s.Rule = fmt.Sprintf("by foreign keys, with its row of %s: %s", name, s.Rule)
	for i := range s.Conditions {
		s.Conditions[i].Of = cmp.Or(s.Conditions[i].Of, name)
	}
	if s.Verdict == Kept {
		s.Why = fmt.Sprintf("its row of %s is retained: %s", name, strings.TrimPrefix(s.Why, matchesBut))
	}
	return s, err
}

func skipped(task string, s rules.Skip) StepExplanation {
	step := StepExplanation{
		Task:    task,
		Action:  cleanup.ActionOf(s.Step.Update != nil, s.Step.Partitions),
		Rule:    s.Rule,
		Verdict: Kept,
		Why:     "the step is skipped: " + s.Why,
	}
	return step
}

// newStep returns a step that is to be judged, or that is unknown because its task is known to fail.
func (x *explanation) newStep(task, rule string) StepExplanation {
	s := StepExplanation{Task: task, Action: cleanup.ActionDelete, Rule: rule, Verdict: Kept}
	if problem, ineffective := x.simulation.Ineffective(task); ineffective {
		s.Verdict, s.Why = Unknown, wouldFail+problem
	}
	return s
}

func (x *explanation) step(
	ctx context.Context, p *rules.Plan, j rules.Job, all []rules.JobRows,
) (s StepExplanation, err error) {
	s = x.newStep(p.Task.Name, p.Describe(j))
	s.Action = cleanup.ActionOf(j.Set != nil, j.Partitions)
	deletes := false
	key := rules.JobRows{Task: s.Task, Job: j}.Key()
	if i := slices.IndexFunc(all, func(c rules.JobRows) bool { return c.Key() == key }); i >= 0 {
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
	if s.OnHold, err = x.isOnHold(ctx, j, judged); err != nil {
		return s, err
	}
	if s.OnHold {
		if err := x.nameHolds(&s, p, func(alone *rules.Plan, _ rules.Env) (bool, error) {
			isSame := func(other rules.Job) bool { return rules.JobRows{Task: s.Task, Job: other}.Key() == key }
			i := slices.IndexFunc(alone.Jobs, isSame)
			if i < 0 {
				return false, nil
			}
			return x.isOnHold(ctx, alone.Jobs[i], judged)
		}); err != nil {
			return s, err
		}
	}
	x.conclude(&s, p, deletes, due)
	if p.Task.Disabled {
		s.Verdict, s.Since, s.Why = Kept, nil, "the task is disabled"
		return s, nil
	}
	if (s.Verdict == Kept && s.matches && !s.OnHold && !x.row.zero || s.Verdict == DeletedLater) && j.Set == nil {
		return s, x.addReferring(ctx, &s, judged)
	}
	return s, nil
}

func (x *explanation) isOnHold(ctx context.Context, j rules.Job, r row) (is bool, err error) {
	for _, by := range j.OnHold {
		if err := x.ask(ctx, &is, sqlexpr.Format("(%s) IS TRUE", by.Condition), r); err != nil || is {
			return is, err
		}
	}
	return false, nil
}

// nameHolds finds which holds keep the row: those for which keeps is true, given the task compiled as if there were no
// other hold. If all of them together do not, the row is kept only because keys are not followed to their end.
func (x *explanation) nameHolds(
	s *StepExplanation, p *rules.Plan, keeps func(alone *rules.Plan, env rules.Env) (bool, error),
) error {
	env := x.simulation.Database().EnvFor(p.Task.Name)
	env.HoldsWithinReach = true
	keep := func(holds rules.Holds) (bool, error) {
		env.Holds = holds
		alone, err := rules.Compile(p.Task, env)
		if err != nil {
			return false, err
		}
		return keeps(alone, env)
	}
	isTooDeep := func(m message.Message) bool { return m.Code == message.HoldTooDeep.Code }
	if i := slices.IndexFunc(p.Notes, isTooDeep); i >= 0 {
		if kept, err := keep(env.Holds); err != nil || !kept {
			s.tooDeep = p.Notes[i].Text
			return err
		}
	}
	for _, h := range x.Holds {
		kept, err := keep(h.Holds)
		if err != nil {
			return err
		}
		if kept {
			s.OnHoldBy = append(s.OnHoldBy, h)
		}
	}
	return nil
}

// addReferring says which tables have rows whose foreign keys keep the row. A row that is due later is retained if no
// task deletes theirs.
func (x *explanation) addReferring(ctx context.Context, s *StepExplanation, r row) error {
	tables, err := x.referring(ctx, r)
	if sqlstate.Is(err, pgerrcode.QueryCanceled) && ctx.Err() == nil {
		return nil // the table is large, and the key has no index
	}
	if err != nil || tables == nil {
		return err
	}
	var names []string
	stay := false
	for _, t := range tables {
		names = append(names, t.FullName())
		deleting, err := x.simulation.Concerning(func(p *rules.Plan) bool {
			return !p.Task.Disabled && slices.ContainsFunc(p.Jobs, func(j rules.Job) bool {
				return j.Set == nil && rules.Deletes(j, t)
			})
		})
		if err != nil {
			return err
		}
		stay = stay || len(deleting) == 0
	}
	refer := "foreign keys of rows of " + strings.Join(names, ", ")
	switch {
	case s.Verdict == Kept:
		s.Why = refer + " refer to it"
	case stay:
		s.Verdict, s.Since, s.Why, s.matches = Kept, nil, refer+" refer to it", true
	default:
		s.Why = "unless " + refer + " still refer to it"
	}
	return nil
}

// referring returns the tables with rows whose foreign keys keep the row, or one that foreign keys would delete with
// it. path has the tables from which keys were followed.
func (x *explanation) referring(
	ctx context.Context, r row, path ...*campaign.Table,
) (tables []*campaign.Table, err error) {
	path = append(slices.Clone(path), r.table)
	for _, k := range r.table.KeysTo() {
		if k.Action == campaign.Clears || !k.Table.CanSelect || slices.Contains(path, k.Table) {
			continue
		}
		child := row{table: k.Table, relation: k.Table.Quoted(), key: r.linked(k.On("other", "r"))}
		if k.Action == campaign.Deletes {
			further, err := x.referring(ctx, child, path...)
			if err != nil {
				return nil, err
			}
			tables = append(tables, further...)
			continue
		}
		var refers bool
		exists := sqlexpr.Format("SELECT EXISTS (SELECT FROM %s AS r WHERE %s)", child.relation, child.key)
		err := pgx.BeginFunc(ctx, x.tx, func(tx pgx.Tx) error { return exists.QueryRow(ctx, tx).Scan(&refers) })
		if err != nil {
			return nil, err
		}
		if refers && !slices.Contains(tables, k.Table) {
			tables = append(tables, k.Table)
		}
	}
	return tables, nil
}

func (x *explanation) idOfPaired(ctx context.Context, j rules.Job) (id *int64, err error) {
	of := sqlexpr.Format(
		"(SELECT t.%[1]s::bigint FROM ONLY %[2]s AS t WHERE t.%[1]s = r.%[3]s AND t.%[1]s <> 0 LIMIT 1)", j.Paired.ID,
		j.Relation, j.Paired.Key)
	return id, x.ask(ctx, &id, of, x.row)
}

func byID(column string, id int64) sqlexpr.Expr {
	return sqlexpr.Format("r.%s = %s", column, sqlexpr.Arg(id, "bigint"))
}

// deletes reports whether the job has the row, or one that is paired with it, and the jobs before do not.
func (x *explanation) deletes(ctx context.Context, before []rules.JobRows, c rules.JobRows) (is bool, err error) {
	if c.Job.Relation == x.row.relation {
		return is, x.ask(ctx, &is, sqlexpr.Format("(%s) IS TRUE", c.Rows.Where), x.row)
	}
	excluded := rules.Exclusions(append(slices.Clone(before), c), rules.OnRelation(c.Job.Relation), c)
	s := purge.Sweep{Where: c.Rows.Where}.Without(excluded...)
	p := c.Job.Paired
	exists := sqlexpr.Format("k.%[1]s <> 0 AND EXISTS (SELECT FROM ONLY %[2]s AS r WHERE r.%[3]s = k.%[1]s AND %[4]s)",
		p.Key, c.Job.Relation, p.ID, s.Where)
	return is, sqlexpr.Format(
		"SELECT %s FROM ONLY %s AS k WHERE EXISTS (SELECT FROM ONLY %[2]s AS r WHERE r.ctid = k.ctid AND %[3]s)",
		exists, x.row.relation, x.row.key).QueryRow(ctx, x.tx).Scan(&is)
}

const (
	matchesBut = "the rule matches it, but "
	wouldFail  = "the task would not succeed: "
)

// conclude sets the verdict of a step. deletes is set if the step deletes the row now. due is when all parts of a
// rule become true; nil if they do not with time alone.
func (x *explanation) conclude(s *StepExplanation, p *rules.Plan, deletes bool, due *time.Time) {
	s.matches = due != nil && !due.After(x.config.Now)
	switch {
	case s.Verdict == Unknown:
	case deletes:
		s.Verdict = Deleted
		if lacks := x.simulation.LacksRights(p); lacks != "" {
			s.Verdict, s.Why = Unknown, wouldFail+lacks
		}
	case x.row.zero:
		s.Why = "it is the zero record"
	case s.tooDeep != "":
		s.Why = s.tooDeep
	case s.OnHold:
		s.Why = "it, or a row that belongs to it, is on hold"
		for i, h := range s.OnHoldBy {
			separator := ": "
			if i > 0 {
				separator = "; "
			}
			s.Why += fmt.Sprintf("%shold %s (%s)", separator, h.ID, h.Reason)
		}
	case due != nil && due.After(x.config.Now):
		s.Verdict, s.Since = DeletedLater, due
	case due != nil:
		s.Why = matchesBut + "another row keeps it: one that it belongs to, or one that depends on it"
	default:
		s.Why = "the rule does not match it"
	}
}

func (x *explanation) rollUpStep(ctx context.Context, p *rules.Plan) (s StepExplanation, err error) {
	env := x.simulation.Database().Env
	period, skip := cleanup.NewPeriod(env, *p.Task.RollUp)
	if skip != nil {
		return skipped(p.Task.Name, rules.Skip{Rule: period.Rule(), Why: skip.Text}), nil
	}
	if err := period.Find(ctx, x.tx); err != nil {
		return s, err
	}
	s = x.newStep(p.Task.Name, period.Rule())
	if s.OnHold = period.OnHold(env, p); s.OnHold {
		if err := x.nameHolds(&s, p, func(alone *rules.Plan, env rules.Env) (bool, error) {
			return period.OnHold(env, alone), nil
		}); err != nil {
			return s, err
		}
	}
	var inPeriod bool
	if err := x.ask(ctx, &inPeriod, sqlexpr.Format("(%s) IS TRUE", period.Condition()), x.row); err != nil {
		return s, err
	}
	var due *time.Time
	b := x.binder(p)
	s.Conditions, due, err = x.conditions(ctx, b, period.Rules(), x.row, "")
	x.conclude(&s, p, inPeriod && !s.OnHold, due)
	return s, err
}

func (x *explanation) binder(p *rules.Plan) *rules.Binder { return x.simulation.Attempt(p).Binder }

// ask evaluates SQL on the row as r.
func (x *explanation) ask(ctx context.Context, dest any, sql sqlexpr.Expr, r row) error {
	query := sqlexpr.Format("SELECT %s FROM ONLY %s AS r WHERE %s", sql, r.relation, r.key)
	return query.QueryRow(ctx, x.tx).Scan(dest)
}

const maxIDs = 10

func format(args []any) (values []string) {
	for _, a := range args {
		values = append(values, formatOne(a))
	}
	return values
}

func formatOne(value any) string {
	switch v := value.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case *time.Time:
		if v == nil {
			return "NULL"
		}
		return formatOne(*v)
	case pgtype.Timestamptz:
		switch {
		case v.InfinityModifier == pgtype.Infinity:
			return "infinity"
		case v.InfinityModifier == pgtype.NegativeInfinity:
			return "-infinity"
		case !v.Valid:
			return "NULL"
		}
		return formatOne(v.Time)
	case []int64:
		text := fmt.Sprint(v[:min(len(v), maxIDs)])
		if more := len(v) - maxIDs; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return text
	}
	return fmt.Sprint(value)
}

func rollUp(ctx context.Context, a *cleanup.Attempt, skips *skipLog) ([]Statement, error) {
	if a.Task.RollUp == nil {
		return nil, nil
	}
	p, skip := cleanup.NewPeriod(a.Binder.Env, *a.Task.RollUp)
	if skip != nil {
		skips.add(skip.Text)
		return nil, nil
	}
	if err := p.Check(); err != nil {
		skips.add("the task fails: " + err.Error())
		return nil, nil
	}
	if err := p.Find(ctx, a.Binder.Pool); err != nil {
		return nil, err
	}
	if p.UpToDate() {
		a.Log(ctx, message.Infof("coalesceUpToDate"))
		return nil, nil
	}
	statement, err := p.Statement(ctx, a.Binder.Pool, []pgtype.TID{})
	sql, args := statement.Build()
	return []Statement{{
		Table:      p.Table.Quoted(),
		Action:     cleanup.ActionDelete,
		Rule:       p.Rule(),
		SQL:        sql,
		Parameters: format(args),
		Scan:       purge.Scan{Method: purge.PlannerScan},
		Partitions: 1,
	}}, err
}

// drops returns, for each kind, the queries for which work tables are in use, and the statements that drop the
// others, views first.
func drops(ctx context.Context, a *cleanup.Attempt, _ *skipLog) (all []Statement, err error) {
	finder := cleanup.WorkTableFinder{Attempt: a, Exclude: func(campaign.WorkTable) bool { return false }}
	kinds, _, err := finder.Find(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		statements, err := dropsOf(ctx, a, k)
		if err != nil {
			return nil, err
		}
		all = append(all, statements...)
	}
	return all, nil
}

func dropsOf(ctx context.Context, a *cleanup.Attempt, k cleanup.WorkTableKind) (all []Statement, err error) {
	drop := Statement{
		Table: cleanup.WorkTableMask(k.Drop.Prefix), Action: cleanup.ActionDrop, Rule: cleanup.DropRule(k.Drop),
	}
	if k.Unused == nil || len(k.Tables) == 0 {
		return []Statement{drop}, nil
	}
	unused, err := k.Unused(ctx, a.Binder.Pool, k.Tables)
	if err != nil {
		return nil, err
	}
	var ids, lists []int64
	for _, w := range k.Tables {
		ids, lists = append(ids, w.ID), append(lists, w.ListIDs()...)
	}
	query := func(table *campaign.Table, rule string, q sqlexpr.Expr, ids []int64) error {
		bound, err := a.Binder.Bind(ctx, q, ids)
		sql, args := bound.Build()
		all = append(all, Statement{Table: table.Quoted(), Rule: rule, SQL: sql, Parameters: format(args)})
		return err
	}
	if err := query(k.Drop.Owner, "which of the ids in the names are in use", k.Drop.InUse, ids); err != nil {
		return nil, err
	}
	if k.Drop.Groups != nil && len(lists) > 0 {
		rule := "which of the ids after _grp are those of lists"
		if err := query(k.Drop.Groups, rule, k.Drop.KnownLists, lists); err != nil {
			return nil, err
		}
	}
	if len(unused) == 0 {
		all = append(all, drop)
	}
	for _, views := range []bool{true, false} {
		tables := cleanup.WorkTablesOfKind(unused, views)
		if len(tables) == 0 {
			continue
		}
		statement := drop
		statement.Rule = fmt.Sprintf("%s; %d of them, in groups", drop.Rule, len(tables))
		var args []any
		statement.SQL, args = cleanup.DropStatement(tables[:min(len(tables), cleanup.FirstDropGroup)])
		statement.Parameters = format(args)
		all = append(all, statement)
	}
	return all, nil
}

// vacuums returns one statement for all tables that have the same command.
func vacuums(ctx context.Context, a *cleanup.Attempt, truncate bool) (all []Statement, err error) {
	if !a.Task.Vacuums {
		return nil, nil
	}
	commands, tables, err := cleanup.PrepareVacuum(ctx, a, truncate)
	if err != nil {
		return nil, err
	}
	for _, g := range commands.Groups(tables) {
		first := g.Tables[0].Quoted()
		all = append(all, Statement{
			Table: first,
			Rule:  fmt.Sprintf("%d tables, one after another", len(g.Tables)),
			SQL:   g.Command + " " + first,
		})
	}
	return all, nil
}
