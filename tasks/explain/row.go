package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/dryrun"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

type Verdict string

const (
	// Deleted means that the next run deletes or updates the row, and DeletedLater that a later run does, if nothing
	// else changes.
	Deleted      Verdict = "DELETE_NEXT_RUN"
	DeletedLater Verdict = "DELETE_LATER"
	// Kept means that no run deletes the row, and Unknown that this cannot be determined.
	Kept    Verdict = "RETAINED"
	Unknown Verdict = "UNKNOWN"
)

// Condition is a part of a rule and its result.
type Condition struct {
	// Of is the table and the id of the row that the condition is about; "" for the explained row.
	Of string
	// Alternative is the number of the rule, from 1. One rule is sufficient, and all of its parts must be true.
	Alternative int
	Text        string
	// True is the result; nil if unknown.
	True *bool
	// Values are the columns that the condition reads, with their values.
	Values []string
}

// Step is what a step of a task does to the row.
type Step struct {
	Task       string
	Action     preview.Action
	Rule       string
	Conditions []Condition
	OnHold     bool
	// Verdict is what the step does, Since is from when on, and Why is the reason.
	Verdict Verdict
	Since   *time.Time
	Why     string
}

// Row explains why a row is deleted or not.
type Row struct {
	// Table is the quoted name with the schema.
	Table  string
	Exists bool
	Now    time.Time
	// Steps are in the order of the pipeline.
	Steps []Step
	// Verdict is that of all steps together. Task is the one that deletes the row, from Since on.
	Verdict Verdict
	Task    string
	Since   *time.Time
	Why     string
}

// ErrKey means that the key is not that of one row.
var ErrKey = failure.Field("key", "not a key of one row")

func notCovered(table, why string) error {
	return &refused.Error{Reason: refused.NotCovered, Metadata: map[string]string{"table": table}, Message: why}
}

func noIndex(table, why string) error {
	return &refused.Error{
		Reason:   refused.NoIndex,
		Metadata: map[string]string{"table": table},
		Message:  "no index finds the row within 5 seconds: " + why,
	}
}

// Explainer explains rows by the database as it was when the Explainer was created.
type Explainer struct {
	config     pipeline.Config
	simulation *dryrun.Simulation
	table      *campaign.Table
}

// NewExplainer returns an Explainer for a table. It determines the parents of the tasks on which the table's rows
// depend, and fails with a refused.Error if no task covers the table.
func NewExplainer(ctx context.Context, c pipeline.Config, holds plan.Holds, table string) (*Explainer, error) {
	e, err := simulate(ctx, c, holds)
	if err != nil {
		return nil, err
	}
	if e.table, err = e.covered(ctx, table); err != nil {
		return nil, err
	}
	concerning, err := e.simulation.Concerning(func(p *plan.Plan) bool { return e.covers(p, e.table) })
	if err != nil {
		return nil, err
	}
	return e, e.simulation.Do(ctx, concerning)
}

func simulate(ctx context.Context, c pipeline.Config, holds plan.Holds) (*Explainer, error) {
	if c.Now.IsZero() {
		if err := c.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
			return nil, err
		}
	}
	s, err := dryrun.Simulate(ctx, c, holds)
	if err != nil {
		return nil, err
	}
	return &Explainer{config: c, simulation: s}, nil
}

// covered returns a table by its name, or by the name of a partition. It fails with a refused.Error if no task
// covers the table.
func (e *Explainer) covered(ctx context.Context, name string) (*campaign.Table, error) {
	table := e.simulation.Database().Env.Catalog.Find(name)
	if table == nil {
		var exists bool
		if err := e.config.Pool.QueryRow(ctx, tableExists, name).Scan(&exists); err != nil {
			return nil, err
		}
		if !exists {
			return nil, notCovered(name, fmt.Sprintf("there is no table %.64q", name))
		}
	}
	var above []string // the tables with whose rows foreign keys delete or change rows of the table
	for _, t := range e.config.Pipeline {
		p, err := e.simulation.Database().Compile(t)
		if err != nil || (table != nil && e.covers(p, table)) {
			return table, err
		}
		for _, j := range p.Jobs {
			isNamed := func(t *campaign.Table) bool {
				return t != j.Table && slices.Contains([]string{t.Name, t.FullName(), t.Quoted()}, name)
			}
			if slices.ContainsFunc(j.Affected, isNamed) && !slices.Contains(above, j.Table.FullName()) {
				above = append(above, j.Table.FullName())
			}
		}
	}
	if above != nil {
		return nil, notCovered(name, fmt.Sprintf("no task and no policy covers %.64s: foreign keys delete or change its "+
			"rows with those of %s that they refer to, which can be explained", name, strings.Join(above, ", ")))
	}
	return nil, notCovered(name, fmt.Sprintf("no task and no policy covers %.64s: its rows are kept", name))
}

// tableExists returns whether any schema has a table of the name $1, however it is quoted.
const tableExists = `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f')
  AND lower(replace($1::text, '"', '')) IN (lower(c.relname), lower(n.nspname || '.' || c.relname)))`

func (e *Explainer) covers(p *plan.Plan, table *campaign.Table) bool {
	return slices.Contains(covered(e.simulation.Database().Env.Catalog, p), table.Quoted())
}

// covered returns the quoted names of the tables that a compiled task covers.
func covered(c *campaign.Catalog, p *plan.Plan) (names []string) {
	if r := p.Task.RollUp; r != nil && c.Table(r.Table) != nil {
		names = append(names, c.Table(r.Table).Quoted())
	}
	for _, j := range p.Jobs {
		if names = append(names, j.Root); j.Paired != nil {
			names = append(names, j.Paired.Relation)
		}
	}
	for _, s := range p.SkippedSteps {
		names = append(names, s.Table.Quoted())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func rollsUp(c *campaign.Catalog, p *plan.Plan, table *campaign.Table) bool {
	r := p.Task.RollUp
	return r != nil && c.Table(r.Table) == table
}

// Row explains the row with a unique key. If the key is a text, it calls onText before it looks for the row, and
// stops if that returns an error. Row fails with ErrKey, or a refused.Error.
func (e *Explainer) Row(ctx context.Context, key []KeyColumn, onText func() error) (x Row, err error) {
	x.Table, x.Now = e.table.Quoted(), e.config.Now
	d := e.simulation.Database()
	ctx = d.InZone(ctx)
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, d.Pool, options, func(tx pgx.Tx) error {
		const settings = "SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '1s'; SET LOCAL DateStyle = 'ISO'"
		if _, err := tx.Exec(ctx, settings); err != nil {
			return err
		}
		r, err := find(ctx, tx, e.table, key, onText)
		if err != nil || r == nil {
			return err
		}
		x.Exists = true
		if x.Steps, err = (&explanation{Explainer: e, tx: tx, row: *r}).steps(ctx); err != nil {
			return err
		}
		x.conclude()
		return nil
	})
	if sqlstate.Is(err, pgerrcode.QueryCanceled, pgerrcode.LockNotAvailable) && ctx.Err() == nil {
		err = noIndex(e.table.Quoted(), sqlstate.Explain(err))
	}
	return x, err
}

func (x *Row) conclude() {
	x.Verdict, x.Why = Kept, "no rule deletes it"
	rank := map[Verdict]int{Kept: 0, DeletedLater: 1, Unknown: 2, Deleted: 3}
	for _, s := range x.Steps {
		switch {
		case s.Action != preview.Delete || rank[s.Verdict] < rank[x.Verdict] || x.Verdict == Deleted:
		case s.Verdict == Kept:
			if s.OnHold {
				x.Task, x.Why = s.Task, s.Why
			}
		case s.Verdict == x.Verdict && (s.Verdict != DeletedLater || !s.Since.Before(*x.Since)):
		default:
			x.Verdict, x.Task, x.Since, x.Why = s.Verdict, s.Task, s.Since, s.Why
		}
	}
}
