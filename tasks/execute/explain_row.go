package execute

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

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Verdict is what becomes of a row.
type Verdict string

// Verdicts.
const (
	// Goes says that the next run takes the row, Later that some run does from a moment on, if nothing else changes,
	// Stays that none does, and Unknown that it can not be told.
	Goes    Verdict = "GOES"
	Later   Verdict = "LATER"
	Stays   Verdict = "STAYS"
	Unknown Verdict = "UNKNOWN"
)

// Part is a part of a condition, as it was judged.
type Part struct {
	// Of is the table whose row it is about, in words: another one than that of the row, where it depends on a row
	// there.
	Of string
	// Alternative is the number of the rule that it is a part of, from 1; all parts of one of them must be true.
	Alternative int
	// Words are the part for people.
	Words string
	// Is is whether it is true; nil: that is unknown.
	Is *bool
	// Values are the columns that it reads, with their values.
	Values []string
}

// RowStep is what a step does to a row.
type RowStep struct {
	Task   string
	Action Action
	// Rule is the whole rule in words, Parts are its parts.
	Rule  string
	Parts []Part
	// Held says that the row is held.
	Held bool
	// Verdict is what the step does, Since from when it does it, and Why says more in words.
	Verdict Verdict
	Since   *time.Time
	Why     string
}

// RowExplanation is why a row is, or is not, deleted.
type RowExplanation struct {
	// Table is its quoted name with the schema.
	Table string
	// Exists says that there is such a row.
	Exists bool
	// Now is the clock that it was judged by.
	Now time.Time
	// Steps are those that concern the table, in the order of the pipeline.
	Steps []RowStep
	// Verdict is that of the row: Task is which task takes it, Since from when on.
	Verdict Verdict
	Task    string
	Since   *time.Time
	Why     string
}

// Reasons for which a row is not explained.
const (
	NotCovered = "NOT_COVERED"
	NoIndex    = "NO_INDEX"
)

// ErrKey says that a key is not that of one row.
var ErrKey = errors.New("not a key of one row")

func notCovered(table, why string) error {
	return &RefusedError{Reason: NotCovered, Metadata: map[string]string{"table": table}, Message: why}
}

func noIndex(table, why string) error {
	return &RefusedError{
		Reason:   NoIndex,
		Metadata: map[string]string{"table": table},
		Message:  "no index finds the row within 5 seconds: " + why,
	}
}

// Explainer explains why rows of a table are, or are not, deleted, by the database as it was when it was made.
type Explainer struct {
	*task
	table    *campaign.Table
	problems map[string]string // why tasks would not succeed
}

// NewExplainer finds out what a run would begin with, as far as rows of a table depend on it. It changes and locks
// nothing. It fails with a RefusedError if no task covers the table.
func NewExplainer(ctx context.Context, c Config, table string) (*Explainer, error) {
	if c.Now.IsZero() {
		if err := c.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
			return nil, err
		}
	}
	c.DryRun, c.ContinueOnError, c.Chosen, c.Todo = true, true, c.Pipeline, c.Pipeline
	c.Succeeded, c.Failed = map[string]bool{}, map[string]bool{}
	o := &onlooker{holds: c.Holds, problems: map[string]string{}}
	d := open(ctx, c, o)
	d.preview.blind = true
	if err := d.look(ctx); err != nil {
		return nil, err
	}
	on, err := d.covered(table)
	if err != nil {
		return nil, err
	}
	if d.Todo, err = d.concerning(on); err != nil {
		return nil, err
	}
	if err := d.runAll(ctx); errors.Is(err, ErrLost) || sqlstate.Lost(err) || ctx.Err() != nil {
		return nil, cmp.Or(err, ctx.Err())
	}
	p, err := d.compile(c.Pipeline[len(c.Pipeline)-1])
	if err != nil {
		return nil, err
	}
	return &Explainer{d.other(p), on, o.problems}, nil
}

// Row explains a row: key is the value of the table's own key, or COLUMN=VALUE, several of them with commas, for each
// column of a unique key. byText is called if the key is a text, before the row is looked for; an error ends the
// search. Row fails with ErrKey, or a RefusedError.
func (e *Explainer) Row(ctx context.Context, key string, byText func() error) (x RowExplanation, err error) {
	on := e.table
	x.Table, x.Now = on.Quoted(), e.Now
	ctx = e.inZone(ctx)
	err = pgx.BeginTxFunc(
		ctx,
		e.Pool,
		pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			if _, err := tx.Exec(
				ctx,
				"SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '1s'; SET LOCAL DateStyle = 'ISO'",
			); err != nil {
				return err
			}
			r, err := e.find(ctx, tx, key, byText)
			if err != nil || r == nil {
				return err
			}
			x.Exists = true
			if x.Steps, err = r.steps(ctx); err != nil {
				return err
			}
			x.conclude()
			return nil
		},
	)
	if sqlstate.Is(err, pgerrcode.QueryCanceled, pgerrcode.LockNotAvailable) && ctx.Err() == nil {
		err = noIndex(on.Quoted(), sqlstate.Explain(err))
	}
	return x, err
}

// covered returns the table of a name, or of which it names a partition. It fails with a RefusedError if no task covers
// it.
func (d *database) covered(name string) (*campaign.Table, error) {
	name = strings.ToLower(strings.ReplaceAll(name, `"`, ""))
	name = strings.TrimPrefix(name, d.given.Catalog.Schema+".")
	table := d.given.Catalog.Table(name)
	for _, t := range d.given.Catalog.Tables(func(t *campaign.Table) bool { return len(t.Leaves) > 1 }) {
		if slices.ContainsFunc(t.Leaves, func(leaf campaign.Leaf) bool { return leaf.Name == name }) {
			table = t
		}
	}
	if table == nil {
		return nil, notCovered(name, fmt.Sprintf("schema %q has no table %.64q", d.given.Catalog.Schema, name))
	}
	for _, what := range d.Pipeline {
		if is, err := d.covers(what, table); err != nil || is {
			return table, err
		}
	}
	return nil, notCovered(table.Quoted(), "no task covers "+table.Name)
}

// covers reports whether a task deletes from a table, updates it, or rolls rows of it up.
func (d *database) covers(what plan.Task, table *campaign.Table) (bool, error) {
	p, err := d.compile(what)
	if err != nil {
		return false, err
	}
	return d.coalesces(what, table) ||
		slices.ContainsFunc(p.Jobs, func(j plan.Job) bool { return takes(j, table.Quoted()) }) ||
		slices.ContainsFunc(p.SkippedSteps, func(s plan.Skip) bool { return s.Table == table }), nil
}

// concerning returns the tasks that cover a table, and those on whose outcome these depend, in order.
func (d *database) concerning(table *campaign.Table) ([]plan.Task, error) {
	concerns := map[string]bool{}
	for _, what := range slices.Backward(d.Pipeline) { // tasks depend on earlier ones
		is, err := d.covers(what, table)
		if err != nil {
			return nil, err
		}
		if !is && !concerns[what.Name] {
			continue
		}
		concerns[what.Name] = true
		p, err := d.compile(what)
		if err != nil {
			return nil, err
		}
		for _, name := range p.DependsOn() {
			concerns[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(d.Pipeline), func(t plan.Task) bool { return !concerns[t.Name] }), nil
}

// conclude is the verdict of all steps together.
func (x *RowExplanation) conclude() {
	x.Verdict, x.Why = Stays, "no rule takes it"
	rank := map[Verdict]int{Stays: 0, Later: 1, Unknown: 2, Goes: 3}
	for _, s := range x.Steps {
		switch {
		case s.Action == Update || rank[s.Verdict] < rank[x.Verdict] || x.Verdict == Goes:
		case s.Verdict == Stays:
			if s.Held {
				x.Task, x.Why = s.Task, s.Why
			}
		case s.Verdict == x.Verdict && (s.Verdict != Later || !s.Since.Before(*x.Since)):
		default:
			x.Verdict, x.Task, x.Since, x.Why = s.Verdict, s.Task, s.Since, s.Why
		}
	}
}
