package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/binding"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// Database is the database of the run, or of a mid-sourcing server. It reads its environment again between tasks,
// and compiles each task once for an environment.
type Database struct {
	// Pool is the one to read from. Primary is the database itself, also if Pool is a standby's.
	Pool, Primary *pgxpool.Pool
	Engine        *purge.Engine
	Env           plan.Env
	OnHold        *binding.OnHold
	// Predecessors returns the tasks up to and including the named one that would have changed something. It is set
	// only in a dry run.
	Predecessors func(task string) []plan.Task

	config   Config
	journal  Journal
	recorder *recorder
	readAt   time.Time // zero if the environment must be read again
	plans    map[string]*plan.Plan
}

// NewDatabase returns the database to which the engine's pool connects. The engine reports to the journal.
func NewDatabase(ctx context.Context, c Config, j Journal, primary *pgxpool.Pool, e purge.Engine) *Database {
	d := &Database{Pool: e.Pool, Primary: primary, config: c, journal: j}
	d.recorder = &recorder{Activity: j.Activity, journal: j, ctx: ctx, warned: map[string]bool{}}
	e.Recorder = d.recorder
	d.Engine = purge.New(e)
	d.OnHold = &binding.OnHold{Engine: d.Engine}
	return d
}

// Log ignores that it cannot write: the next batch then fails, too, because it must write to the journal.
func (d *Database) Log(ctx context.Context, messages ...message.Message) {
	if len(messages) > 0 {
		_ = d.journal.Progress.Log(ctx, messages...)
	}
}

// maxEnvAge is how long an environment is used for the tasks that follow. A run by a saved plan reads it for each
// task.
const maxEnvAge = time.Second

// Refresh reads the environment if it is too old. A dry run reads it only once, since it counts for several tasks
// at once.
func (d *Database) Refresh(ctx context.Context) error {
	if !d.readAt.IsZero() && (d.config.DryRun || (time.Since(d.readAt) < maxEnvAge && d.config.SavedPlan == nil)) {
		return nil
	}
	holds, err := d.journal.Safety.Holds(ctx)
	if err != nil {
		return fmt.Errorf("read the holds: %w", err)
	}
	env, err := LoadEnv(ctx, d.config, d.Pool, holds)
	if err != nil {
		return err
	}
	d.logCatalog(ctx, d.Env.Catalog, env.Catalog)
	for _, t := range holds.Tables {
		if t.Gone && !slices.Contains(d.Env.Holds.Tables, t) {
			d.Log(ctx, message.HoldOfNoTable.With("held", t.FullName()))
		}
	}
	env.Record = d.journal.Register.Record
	d.Env = env
	d.Engine.FlushStats = env.Catalog.Version >= 150_000
	d.ForgetPlans()
	d.OnHold = &binding.OnHold{Engine: d.Engine, ConditionsOnly: d.OnHold.ConditionsOnly}
	d.readAt = time.Now()
	return nil
}

// Forget makes the next Refresh read the environment. It is called after an error that a change of the environment
// may have caused.
func (d *Database) Forget() { d.readAt = time.Time{} }

func (d *Database) ForgetPlans() { d.plans = map[string]*plan.Plan{} }

// logCatalog logs the time zone of dates without one, and the schemas that are not cleaned, if they have changed.
func (d *Database) logCatalog(ctx context.Context, before, now *campaign.Catalog) {
	if before == nil {
		before = &campaign.Catalog{}
	}
	if why := now.Zone.Reason; why.Text != "" && why.Text != before.Zone.Reason.Text {
		d.Log(ctx, why)
	}
	if others := now.OtherSchemas; now.Schema != "" && len(others) > 0 && !slices.Equal(others, before.OtherSchemas) {
		d.Log(ctx, message.SchemasNotCleaned.With("schema", now.Schema, "others", strings.Join(others, ", ")))
	}
}

// InZone returns a context whose statements read and write dates without a time zone as the application does.
func (d *Database) InZone(ctx context.Context) context.Context {
	return connection.InZone(ctx, d.Env.Catalog.Zone.Name)
}

// EnvFor returns the environment for a task. In a dry run it has the tasks before, so that tables are read as these
// would have left them.
func (d *Database) EnvFor(task string) plan.Env {
	env := d.Env
	if d.Predecessors != nil {
		env.Predecessors = d.Predecessors(task)
	}
	return env
}

func (d *Database) Compile(t plan.Task) (*plan.Plan, error) {
	if p := d.plans[t.Name]; p != nil {
		return p, nil
	}
	p, err := plan.Compile(t, d.EnvFor(t.Name))
	if err == nil {
		d.plans[t.Name] = p
	}
	return p, err
}

func (d *Database) Binder(p *plan.Plan, state binding.State) *binding.Binder {
	return &binding.Binder{Pool: d.Pool, Engine: d.Engine, Env: d.Env, Plan: p, State: state, OnHold: d.OnHold}
}

func LoadEnv(ctx context.Context, c Config, pool *pgxpool.Pool, holds plan.Holds) (plan.Env, error) {
	scope := c.Scope()
	scope.Held = holds.TablesOfRows()
	catalog, err := campaign.LoadCatalog(ctx, pool, scope)
	if err != nil {
		return plan.Env{}, err
	}
	return EnvOf(ctx, c, pool, catalog, holds)
}

func EnvOf(
	ctx context.Context, c Config, pool *pgxpool.Pool, catalog *campaign.Catalog, holds plan.Holds,
) (env plan.Env, err error) {
	env = plan.Env{
		Catalog:  catalog,
		Now:      c.Now,
		DryRun:   c.DryRun,
		Holds:    holds,
		Pipeline: c.Pipeline,
	}
	if env.Options, err = campaign.ReadOptions(ctx, pool, catalog); err == nil && c.WhatIf != nil {
		env.Options = env.Options.With(c.WhatIf)
	}
	return env, err
}
