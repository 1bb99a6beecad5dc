package cleanup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// Database is the database of the run, or of a mid-sourcing server. It reads its environment again between tasks,
// and compiles each task once for an environment.
type Database struct {
	// Pool is read from; it may be a standby's. Primary is always the database itself.
	Pool, Primary *pgxpool.Pool
	Engine        *purge.Engine
	Env           rules.Env
	OnHold        *rules.OnHold
	// Predecessors returns the tasks up to and including the named one that would have changed something. It is set
	// only in a dry run.
	Predecessors func(task string) []rules.Task

	trash    *trashGate // for tasks with undo; nil in dry runs, and on mid-sourcing servers
	config   Config
	journal  Journal
	recorder *recorder
	readAt   time.Time // zero if the environment must be read again
	plans    map[string]*rules.Plan
}

// newDatabase returns the database to which the engine's pool connects. The engine reports to the journal.
func newDatabase(ctx context.Context, c Config, j Journal, primary *pgxpool.Pool, e purge.Engine) *Database {
	d := &Database{Pool: e.Pool, Primary: primary, config: c, journal: j}
	d.recorder = &recorder{Journal: j, ctx: ctx, warned: map[string]bool{}}
	e.Recorder = d.recorder
	d.Engine = purge.New(e)
	d.OnHold = &rules.OnHold{Engine: d.Engine}
	return d
}

// Log ignores errors: if the journal cannot be written to, the next batch fails as well.
func (d *Database) Log(ctx context.Context, messages ...message.Message) {
	if len(messages) > 0 {
		_ = d.journal.Log(ctx, messages...)
	}
}

// maxEnvAge is how long an environment is used for the tasks that follow. A run that follows a saved plan reads it for
// each task.
const maxEnvAge = time.Second

// Refresh reads the environment if it is too old. A dry run reads it only once, since it counts for several tasks
// at once.
func (d *Database) Refresh(ctx context.Context) error {
	if !d.readAt.IsZero() && (d.config.DryRun || (time.Since(d.readAt) < maxEnvAge && d.config.SavedPlan == nil)) {
		return nil
	}
	holds, err := d.journal.Holds(ctx)
	if err != nil {
		return fmt.Errorf("read the holds: %w", err)
	}
	env, err := LoadEnv(ctx, d.config, d.Pool, holds)
	if err != nil {
		return err
	}
	d.logCatalog(ctx, d.Env.Catalog, env.Catalog)
	for _, t := range holds.Tables {
		if t.Gone() && !slices.Contains(d.Env.Holds.Tables, t) {
			d.Log(ctx, message.HoldOfNoTable.With("held", t.FullName()))
		}
	}
	env.Record = d.journal.RecordRemote
	d.Env = env
	d.Engine.FlushStats = env.Catalog.Version >= 150_000
	d.ForgetPlans()
	d.OnHold = &rules.OnHold{Engine: d.Engine, ConditionsOnly: d.OnHold.ConditionsOnly}
	d.readAt = time.Now()
	return nil
}

// Forget makes the next Refresh read the environment. It is called after a change of it, and after an error that a
// change may have caused.
func (d *Database) Forget() { d.readAt = time.Time{} }

func (d *Database) ForgetPlans() { d.plans = map[string]*rules.Plan{} }

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

// EnvFor returns the environment for a task. In a dry run it has the predecessors of the task, so that tables are read
// as these would have left them.
func (d *Database) EnvFor(task string) rules.Env {
	env := d.Env
	if d.Predecessors != nil {
		env.Predecessors = d.Predecessors(task)
	}
	return env
}

func (d *Database) Compile(t rules.Task) (*rules.Plan, error) {
	if p := d.plans[t.Name]; p != nil {
		return p, nil
	}
	p, err := rules.Compile(t, d.EnvFor(t.Name))
	if err == nil {
		d.plans[t.Name] = p
	}
	return p, err
}

func (d *Database) Binder(p *rules.Plan, state rules.State) *rules.Binder {
	engine := d.Engine
	if d.trash != nil && keeps(p.Task) > 0 {
		gated := *engine
		gated.Gate, engine = d.trash.open, &gated
	}
	return &rules.Binder{Pool: d.Pool, Engine: engine, Env: d.Env, Plan: p, State: state, OnHold: d.OnHold}
}

// LoadEnv reads the environment of a database. Its catalog also covers the tables in more, given by their full or
// quoted names.
func LoadEnv(
	ctx context.Context, c Config, db campaign.Querier, holds rules.Holds, more ...string,
) (rules.Env, error) {
	scope := c.Scope()
	scope.Held, scope.Named = holds.TablesOfRows(), slices.Concat(scope.Named, more)
	catalog, err := campaign.LoadCatalog(ctx, db, scope)
	if err != nil {
		return rules.Env{}, err
	}
	return EnvOf(ctx, c, db, catalog, holds)
}

func EnvOf(
	ctx context.Context, c Config, db campaign.Querier, catalog *campaign.Catalog, holds rules.Holds,
) (env rules.Env, err error) {
	env = rules.Env{
		Catalog:  catalog,
		Now:      c.Now,
		DryRun:   c.DryRun,
		Holds:    holds,
		Pipeline: c.Pipeline,
	}
	if env.Options, err = campaign.ReadOptions(ctx, db, catalog); err == nil && c.WhatIf != nil {
		env.Options = env.Options.With(c.WhatIf)
	}
	return env, err
}

// OnServer returns an attempt on the database of a mid-sourcing account, with the steps of a task and for given
// parents, regardless of the task's rules. There are no holds: the holds of the main database name its own ids, and
// deliveries on hold were already left out there. The engine gets the server's pool, one worker and no lock, and
// the messages of the journal get the server's name.
func (r *Run) OnServer(ctx context.Context, account string, t rules.Task, j Journal, e purge.Engine) (*Attempt, error) {
	e.Pool, e.Lock, e.Workers = r.Config.MidSourcing.Databases[account], 0, 1
	j = serverJournal{j, account}
	t.Undo = nil // the trash is in the main database
	server := &Run{Config: r.Config, Journal: j, State: rules.State{Succeeded: r.State.Succeeded}}
	server.Database = newDatabase(ctx, r.Config, j, e.Pool, e)
	if err := server.Database.Refresh(ctx); err != nil {
		return nil, err
	}
	table := server.Database.Env.Catalog.Table(t.ParentRule.Parent)
	switch {
	case table == nil:
		return nil, campaign.ErrNotCampaign
	case table.RowSecurity: // hidden rows would count as deleted
		return nil, errors.New("row security may hide rows of " + t.ParentRule.Parent)
	}
	t.ParentRule = &rules.ParentRule{Parent: t.ParentRule.Parent, Key: t.ParentRule.Key}
	compiled, err := server.Database.Compile(t)
	if err != nil {
		return nil, err
	}
	a := server.NewAttempt(compiled)
	a.Log(ctx, compiled.Notes...)
	return a, rules.RightsError(compiled.Rights)
}

// serverJournal is the journal of the work on a mid-sourcing server.
type serverJournal struct {
	Journal
	account string
}

func (serverJournal) Holds(context.Context) (rules.Holds, error) { return rules.Holds{}, nil }

func (serverJournal) PolicyChange(context.Context, rules.Task) (*message.Message, error) {
	return nil, nil
}

func (serverJournal) History(context.Context) (*guard.History, error) { return nil, nil }

func (j serverJournal) At(object string, _ int64) { j.Journal.At(j.account+": "+object, -1) }

func (j serverJournal) Log(ctx context.Context, messages ...message.Message) error {
	named := slices.Clone(messages)
	for i, m := range messages {
		named[i] = m.OnServer(j.account)
	}
	return j.Journal.Log(ctx, named...)
}

func basisOf(c Config, env rules.Env) Basis {
	b := Basis{
		Version:  "unknown",
		Options:  env.Options.InForce(),
		Mappings: env.Catalog.Mappings(),
		Holds:    env.Holds.Names,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = info.Main.Version
	}
	b.External, b.Policies = map[string]string{}, map[string]string{}
	for name, o := range c.External {
		b.External[name] = o.Basis
	}
	for _, t := range c.Pipeline {
		if t.Basis != "" {
			b.Policies[t.Name] = t.Basis
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.MidSourcing.Databases)) {
		b.MidSourcing = append(b.MidSourcing, name+"="+address(c.MidSourcing.Databases[name]))
	}
	for _, name := range slices.Sorted(slices.Values(c.MidSourcing.Keep)) {
		b.MidSourcing = append(b.MidSourcing, name+"=keep")
	}
	return b
}

// address returns the server's address, without credentials.
func address(pool *pgxpool.Pool) string {
	c := pool.Config().ConnConfig
	hosts := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if host := fmt.Sprintf("%s:%d", f.Host, f.Port); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return strings.Join(hosts, ",") + "/" + c.Database
}

// ConfirmPlan fails with a failure.Refusal if the basis of a saved plan has changed.
func ConfirmPlan(ctx context.Context, c Config, holds rules.Holds, saved SavedTask) error {
	env, err := LoadEnv(ctx, c, c.Pool, holds)
	if err != nil {
		return err
	}
	return confirm(c, env, saved)
}

func confirm(c Config, env rules.Env, saved SavedTask) error {
	if changes := saved.Basis.Changes(basisOf(c, env)); changes != nil {
		return failure.StalePlan(changes...)
	}
	return nil
}

func replacedSince(before, now map[string]string) (replaced []string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if oid, found := now[name]; found && oid != before[name] {
			replaced = append(replaced, name+" was replaced by another table since the preview")
		}
	}
	return replaced
}

// optionsOf returns the effective options that a task reads. The basis of a policy, or of a task on another
// database, is included as an option with the task's name.
func optionsOf(c Config, env rules.Env, t rules.Task) map[string]string {
	options, names := env.Options.InForce(), t.OptionNames()
	maps.DeleteFunc(options, func(name, _ string) bool { return !slices.Contains(names, name) })
	if o, ok := c.External[t.Name]; ok {
		options[t.Name] = o.Basis
	}
	if t.Basis != "" {
		options[t.Name] = t.Basis
	}
	return options
}
