package insight

import (
	"context"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// Coverage maps tables to the tasks that delete from, update, roll up or drop them.
type Coverage struct {
	// Schema is the stored name of the application's schema. Zone is the time zone of dates without one.
	Schema, Zone string
	Pipeline     []string
	// Tasks are the tasks for each table, by its quoted name with the schema. They are in the order of the pipeline.
	Tasks map[string][]string
	// Disabled are tasks that would cover a table if runs executed them.
	Disabled   map[string][]string
	WorkTables map[string]DroppedTables
}

type DroppedTables struct {
	Tasks []string
	// Retained has the reasons why work tables are retained, by their stored names. Other work tables are unused.
	Retained map[string]string
}

// Cover returns which tables tasks cover. It fails with campaign.ErrNotCampaign if this is not a Campaign database.
func Cover(ctx context.Context, c cleanup.Config, holds rules.Holds) (v Coverage, err error) {
	v.Tasks, v.Disabled, v.WorkTables = map[string][]string{}, map[string][]string{}, map[string]DroppedTables{}
	if err := c.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
		return v, err
	}
	c.DryRun = true // missing rights do not matter
	run := cleanup.NewRun(ctx, c, cleanup.Discard{Held: holds}, c.Pool)
	if err := run.Database.Refresh(ctx); err != nil {
		return v, err
	}
	catalog := run.Database.Env.Catalog
	v.Schema, v.Zone = catalog.Schema, catalog.Zone.Name
	for _, t := range c.Pipeline {
		v.Pipeline = append(v.Pipeline, t.Name)
		p, err := run.Database.Compile(t)
		if err != nil {
			return v, err
		}
		tasks := v.Tasks
		if t.Disabled {
			tasks = v.Disabled
		}
		for _, name := range covered(catalog, p) {
			tasks[name] = append(tasks[name], t.Name)
		}
		if t.Kind == rules.Policy { // one that cannot run must be mended, and needs no other beside it
			for _, table := range p.SkippedTables {
				tasks[table.Quoted()] = append(tasks[table.Quoted()], t.Name)
			}
		}
		if err := v.addDrops(ctx, run.NewAttempt(p)); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (v Coverage) addDrops(ctx context.Context, a *cleanup.Attempt) error {
	add := func(prefix string) DroppedTables {
		mask := cleanup.WorkTableMask(prefix)
		d := v.WorkTables[mask]
		if n := len(d.Tasks); n == 0 || d.Tasks[n-1] != a.Task.Name {
			d.Tasks = append(d.Tasks, a.Task.Name)
		}
		v.WorkTables[mask] = d
		return d
	}
	for _, j := range a.Plan.Jobs {
		if j.Step.Tables != nil {
			add(j.Step.Tables.Prefix)
		}
	}
	finder := cleanup.WorkTableFinder{Attempt: a, Exclude: func(campaign.WorkTable) bool { return false }}
	for _, drop := range a.Plan.Drops {
		d := add(drop.Prefix)
		if d.Retained != nil {
			continue
		}
		var err error
		if d.Retained, err = finder.Reasons(ctx, drop); err != nil {
			return err
		}
		v.WorkTables[cleanup.WorkTableMask(drop.Prefix)] = d
	}
	return nil
}
