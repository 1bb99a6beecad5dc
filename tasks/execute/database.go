package execute

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// database is one that a run works in: its own, or that of a mid-sourcing server. Between tasks, what is known of it is
// read again.
type database struct {
	Config
	primary  *pgxpool.Pool // the database itself, where Pool is that of a standby
	engine   *purge.Engine
	journal  Journal
	recorder *recorder
	given    plan.Env
	looked   time.Time             // when it was read; zero: never
	plans    map[string]*plan.Plan // compiled for it
	heldBy   map[string][]int64    // ids on hold, by the queries for them
	// bounds are what its tasks may take; nil: it takes nothing, or is on another server.
	bounds *bounded
	// clockOffset is how far this process's clock is ahead of the database's.
	clockOffset time.Duration
	// now is the database by its options as they are stored, where a dry run supposes others; nil: it does not.
	now *database
	// supposing is the task at work by the options that a dry run supposes, once its set is known; nil: there is none,
	// or not yet.
	supposing *task
	// preview is what a dry run knows beyond the task at work; nil: it is none, or on another server.
	preview *preview
	// keepers are the tasks of which parents had to stay in this run, or may have, under a previous worker.
	keepers map[string]bool
}

// open returns a run's own database.
func open(ctx context.Context, c Config, j Journal) *database {
	d := &database{Config: c, primary: c.Pool, journal: j, recorder: newRecorder(ctx, j), keepers: map[string]bool{}}
	var account purge.Ledger = j
	if c.DryRun {
		d.preview, d.Pool = newPreview(c.Chosen), cmp.Or(c.Standby.Pool, c.Pool)
	} else {
		d.bounds = &bounded{Journal: j}
		account = d.bounds
	}
	if c.WhatIf != nil {
		stored := c
		stored.WhatIf = nil
		d.now = open(ctx, stored, &unheard{j})
	}
	d.engine = purge.New(
		purge.Engine{Pool: d.Pool, Ledger: account, Recorder: d.recorder, Settings: c.Settings, Lock: c.Lock},
	)
	return d
}

// log writes to the journal, if there is anything to write. If that fails, the next batch fails, too, which must write
// to it.
func (d *database) log(ctx context.Context, level severity.Level, messages ...string) {
	if len(messages) > 0 {
		_ = d.journal.Log(ctx, level, messages...)
	}
}

// fresh is how long what was read of the database is taken for what it is: a task that comes after another at once is
// not planned anew, unless it has to be compared with what a dry run found.
const fresh = time.Second

// look reads the catalog and the options as they are now, for the next task.
func (d *database) look(ctx context.Context) (err error) {
	// a dry run counts of several tasks at once
	if (time.Since(d.looked) < fresh && d.Plan == nil) || (d.preview != nil && !d.looked.IsZero()) {
		return nil
	}
	if d.Holds, err = d.journal.Holds(ctx); err != nil {
		return fmt.Errorf("read the holds: %w", err)
	}
	now, err := survey(ctx, d.Config)
	if err != nil {
		return err
	}
	d.logCatalog(ctx, d.given.Catalog, now.Catalog)
	d.given = now
	d.given.Record = d.journal.Record
	d.engine.FlushStats = d.given.Catalog.Version >= 150_000
	d.plans, d.heldBy, d.looked = map[string]*plan.Plan{}, map[string][]int64{}, time.Now()
	return nil
}

// logCatalog logs, if it has changed since the last time, in which time zone dates without one are read, and which
// schemas are not cleaned.
func (d *database) logCatalog(ctx context.Context, before, now *campaign.Catalog) {
	if before == nil {
		before = &campaign.Catalog{}
	}
	if z := now.Zone; z != before.Zone && z.Reason != "" {
		level := severity.Info
		if z.Unknown {
			level = severity.Warning
		}
		d.log(ctx, level, z.Reason)
	}
	if others := now.OtherSchemas; len(others) > 0 && !slices.Equal(others, before.OtherSchemas) {
		d.log(
			ctx,
			severity.Warning,
			fmt.Sprintf(
				"schema %s is cleaned; tables of Campaign in %s are not: to clean those, run a service whose role "+
					"has that schema first in its search_path",
				now.Schema,
				strings.Join(others, ", "),
			),
		)
	}
}

// inZone returns a context in which statements read and write dates without a time zone as the application does.
func (d *database) inZone(ctx context.Context) context.Context {
	return connection.InZone(ctx, d.given.Catalog.Zone.Name)
}

// survey reads what plans are compiled for.
func survey(ctx context.Context, c Config) (plan.Env, error) {
	catalog, err := campaign.LoadCatalog(ctx, c.Pool)
	if err != nil {
		return plan.Env{}, err
	}
	return given(ctx, c, catalog)
}

// given is what plans are compiled for in a database whose catalog is known.
func given(ctx context.Context, c Config, catalog *campaign.Catalog) (g plan.Env, err error) {
	g = plan.Env{
		Catalog:           catalog,
		Now:               c.Now,
		DryRun:            c.DryRun,
		Holds:             c.Holds,
		Pipeline:          c.Pipeline,
		RelatedListTables: c.RelatedListTables,
		Include:           c.Include,
	}
	if g.Options, err = campaign.ReadOptions(ctx, c.Pool, catalog); err == nil && c.WhatIf != nil {
		g.Options = g.Options.With(c.WhatIf)
	}
	return g, err
}

// givenFor is what a task is compiled for: in a dry run, as the tasks before it would have left the database.
func (d *database) givenFor(task string) plan.Env {
	given := d.given
	if d.preview != nil {
		given.Predecessors = d.preview.upTo(task)
	}
	return given
}

// compile plans a task for the database, once.
func (d *database) compile(t plan.Task) (*plan.Plan, error) {
	if p := d.plans[t.Name]; p != nil {
		return p, nil
	}
	p, err := plan.Compile(t, d.givenFor(t.Name))
	if err == nil {
		d.plans[t.Name] = p
	}
	return p, err
}

// inBatch runs fn in a batch's transaction, with the account of what it did, as soon as the server's load allows it.
// stays is what the task has left so far.
func (d *database) inBatch(ctx context.Context, stays purge.Retained, fn func(tx Tx) (purge.Delta, error)) error {
	if err := d.engine.Wait(ctx); err != nil {
		return err
	}
	begun := time.Now()
	tx, err := d.engine.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	delta, err := fn(tx)
	if err != nil {
		return err
	}
	delta.Begun, delta.Cursor.Before = begun, stays
	if err := d.engine.Commit(ctx, tx, delta); err != nil {
		return err
	}
	d.engine.Spend(delta.Deleted + delta.Updated)
	return nil
}
