package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Statement is what a task would have the database do.
type Statement struct {
	// Table is its quoted name with the schema; of work tables the mask of their names.
	Table string
	// Action is empty for a query, and for VACUUM and ANALYZE.
	Action Action
	// Rule says in words which rows, or why tables go.
	Rule string
	// SQL is the statement, without the part of the table that each batch is for, with the values of its parameters, in
	// words where there are many; where it is done with many tables, that of the first ones. It is empty if no work
	// table would go.
	SQL        string
	Parameters []string
	// Way is how the rows are found.
	Way string
	// Partitions is how many partitions it is done in, one after another; the SQL names the first one.
	Partitions int
}

// Explanation is what a task would do here and now.
type Explanation struct {
	// Now is the clock that it would go by.
	Now time.Time
	// Set is the query for the rows that it begins with, of which there are Rows; nil: it has none.
	Set  *Statement
	Rows int64
	// Statements are in order.
	Statements []Statement
	// Skips say what is not done, and why, and which rights are missing.
	Skips []string
}

// Explain tells what a task would do here and now. It changes and locks nothing. That something is held is told, and
// not what: whoever may ask for a statement may not see the holds.
func Explain(ctx context.Context, c Config, what plan.Task) (e Explanation, err error) {
	if err := c.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
		return e, err
	}
	e.Now = c.Now
	if o, ok := c.Outside[what.Name]; ok {
		err = explainOutside(ctx, o, &e)
		return e, err
	}
	if len(c.Holds.Names) > 0 {
		e.Skips = append(e.Skips, "something is held: it stays, whatever the statements say")
		c.Holds = plan.Holds{}
	}
	journal := &skips{all: &e.Skips}
	d := &database{Config: c, journal: journal, engine: purge.New(purge.Engine{Pool: c.Pool, Settings: c.Settings})}
	if d.given, err = survey(ctx, c); err != nil {
		return e, err
	}
	if z := d.given.Catalog.Zone; z.Unknown {
		e.Skips = append(e.Skips, z.Reason)
	}
	ctx = d.inZone(ctx)
	d.given.Record = journal.Record // what accompanies the rows is not told
	compiled, err := plan.Compile(what, d.given)
	if err != nil {
		return e, err
	}
	t := d.other(compiled)
	for _, n := range t.plan.Notes {
		e.Skips = append(e.Skips, n.Text)
	}
	for _, grant := range t.plan.Rights {
		e.Skips = append(e.Skips, "the task fails before it deletes anything; let an owner of the tables run: "+grant)
	}
	if t.plan.Rights != nil {
		return e, nil
	}
	empty, err := t.emptyParents(ctx)
	if err != nil {
		return e, err
	}
	e.Skips = append(e.Skips, empty...)
	ids, err := t.loadParents(ctx, t.plan.Parents)
	if err != nil {
		return e, err
	}
	if p := t.plan.Parents; p != nil {
		e.Set = &Statement{
			Table:      p.Table.Quoted(),
			Rule:       p.Rule,
			SQL:        "SELECT r." + p.Key + p.Rows(),
			Parameters: shown(p.Args),
		}
		e.Rows = int64(len(ids))
	}
	if e.Statements, err = t.statements(ctx, ids); err != nil {
		return e, err
	}
	for _, more := range []func(context.Context) ([]Statement, error){
		t.coalesceStatements,
		t.dropStatements,
		t.vacuumStatements,
	} {
		some, err := more(ctx)
		if err != nil {
			return e, err
		}
		e.Statements = append(e.Statements, some...)
	}
	return e, nil
}

// skips is the journal of a task that is only explained: what it would log is what it skips, and why.
type skips struct {
	onlooker
	all *[]string
}

func (s *skips) Log(_ context.Context, _ severity.Level, messages ...string) error {
	for _, m := range messages {
		if !slices.Contains(*s.all, m) {
			*s.all = append(*s.all, m)
		}
	}
	return nil
}

// emptyParents says which tables have no row, so that they prove nothing now: what is said of rows that are gone from
// them is not done.
func (t *task) emptyParents(ctx context.Context) (notes []string, err error) {
	var names []string
	for _, j := range t.plan.Jobs {
		for _, o := range j.Orphans {
			if o.EmptyAfter == "" {
				names = append(names, o.Parent)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		empty, err := t.given.Catalog.Table(name).Empty(ctx, t.Pool)
		if err != nil {
			return nil, err
		}
		if empty {
			notes = append(notes, emptyParent(name))
		}
	}
	return notes, nil
}

// statements are those of the task's jobs, one for all partitions of a table.
func (t *task) statements(ctx context.Context, ids []int64) (all []Statement, err error) {
	last := -1
	for i, j := range t.plan.Jobs {
		if last >= 0 && t.plan.Jobs[last].StepNumber == j.StepNumber && t.plan.Jobs[last].Table == j.Table {
			all[len(all)-1].Partitions++
			continue
		}
		last = i
		action := Delete
		if j.Set != nil {
			action = Update
		}
		told := Statement{
			Table:      j.Table.Quoted(),
			Action:     action,
			Rule:       ruleOf(j, t.plan.Parents),
			SQL:        j.SQL(),
			Partitions: 1,
		}
		s, err := t.bind(ctx, &j, ids[:min(len(ids), parentsAtOnce)])
		if err != nil {
			return nil, err
		}
		told.Parameters = append(shown(s.Args), shown(s.SetArgs)...)
		told.Way, err = t.engine.ScanMethod(ctx, s)
		var refusal *purge.RemoteError
		switch {
		case errors.As(err, &refusal):
			told.Way = "not at all: " + refusal.Reason
		case t.vanished(ctx, err, s.Relation), sqlstate.Is(err, pgerrcode.LockNotAvailable, pgerrcode.QueryCanceled):
			told.Way = "not known: the table is locked, or gone"
		case err != nil:
			return nil, err
		}
		all = append(all, told)
	}
	return all, nil
}

// fewShown is how many ids are shown of a parameter.
const fewShown = 10

// shown are the values of parameters.
func shown(args []any) (values []string) {
	for _, a := range args {
		switch a := a.(type) {
		case time.Time:
			values = append(values, a.UTC().Format(time.RFC3339))
		case pgtype.Timestamptz:
			if a.Valid && a.InfinityModifier == pgtype.Finite {
				values = append(values, shown([]any{a.Time})...)
			} else {
				values = append(
					values,
					cmp.Or(
						map[pgtype.InfinityModifier]string{
							pgtype.Infinity:         "infinity",
							pgtype.NegativeInfinity: "-infinity",
						}[a.InfinityModifier],
						"NULL",
					),
				)
			}
		case []int64:
			text := fmt.Sprint(a[:min(len(a), fewShown)])
			if more := len(a) - fewShown; more > 0 {
				text += fmt.Sprintf(" and %d more", more)
			}
			values = append(values, text)
		case *time.Time:
			if a == nil {
				values = append(values, "NULL")
			} else {
				values = append(values, a.UTC().Format(time.RFC3339))
			}
		default:
			values = append(values, fmt.Sprint(a))
		}
	}
	return values
}
