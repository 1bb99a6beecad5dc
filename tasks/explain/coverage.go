package explain

import (
	"context"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/worktables"
)

// Coverage is which tables tasks delete rows from, update, roll up, or drop.
type Coverage struct {
	// Schema is the stored name of the application's; Zone is the time zone of its dates without one.
	Schema, Zone string
	Pipeline     []string
	// Tasks are in the order of the pipeline, by the quoted names of tables with their schemas.
	Tasks map[string][]string
	// Disabled are tasks that would cover a table if runs executed them.
	Disabled   map[string][]string
	WorkTables map[string]DroppedTables
}

type DroppedTables struct {
	Tasks []string
	// Retained has the reasons by stored names. Other tables are unused.
	Retained map[string]string
}

// It fails with campaign.ErrNotCampaign.
func Cover(ctx context.Context, c pipeline.Config, holds plan.Holds) (v Coverage, err error) {
	v.Tasks, v.Disabled, v.WorkTables = map[string][]string{}, map[string][]string{}, map[string]DroppedTables{}
	if err := c.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
		return v, err
	}
	c.DryRun = true // which rights are missing does not matter
	run := pipeline.New(ctx, c, pipeline.DiscardJournal(holds), c.Pool)
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
		if err := v.addDrops(ctx, run.NewAttempt(p)); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (v Coverage) addDrops(ctx context.Context, a *pipeline.Attempt) error {
	add := func(prefix string) DroppedTables {
		mask := worktables.Mask(prefix)
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
	finder := worktables.Finder{Attempt: a, Exclude: func(campaign.WorkTable) bool { return false }}
	for _, drop := range a.Plan.Drops {
		d := add(drop.Prefix)
		if d.Retained != nil {
			continue
		}
		var err error
		if d.Retained, err = finder.Reasons(ctx, drop); err != nil {
			return err
		}
		v.WorkTables[worktables.Mask(drop.Prefix)] = d
	}
	return nil
}
