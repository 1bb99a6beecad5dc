package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/execute"
)

// DefaultPlanMaxAge is how old a plan may be by default.
const DefaultPlanMaxAge = 24 * time.Hour

// planned is a request with the tasks of its plan. It fails with ErrNotFound, an InvalidError if the plan is no dry run that succeeded, or a
// RefusedError if it does not hold any longer.
func (m *Manager) planned(ctx context.Context, tx pgx.Tx, req Request) (Request, error) {
	run, err := get(ctx, tx, req.Plan)
	if err != nil {
		return req, err
	}
	if !run.DryRun || run.State != Succeeded {
		return req, InvalidError{{"plan", "must be the id of a dry run that succeeded"}}
	}
	var (
		age   time.Duration
		later *string
	)
	if err := tx.QueryRow(ctx, `SELECT clock_timestamp() - $1::timestamptz, (SELECT id::text FROM cleanupd.run WHERE NOT dry_run AND end_time > $1::timestamptz ORDER BY end_time LIMIT 1)`,
		run.ReferenceTime).Scan(&age, &later); err != nil {
		return req, err
	}
	switch {
	case later != nil:
		return req, execute.Stale(fmt.Sprintf("run %s has ended since", *later))
	case age > m.planMaxAge:
		return req, execute.Stale(fmt.Sprintf("it is %s old, and may be %s", age.Round(time.Second), m.planMaxAge))
	}
	tasks, err := loadPlan(ctx, tx, run.ID)
	if err != nil {
		return req, err
	}
	req.Plan, req.Tasks = run.ID, nil
	for _, r := range run.Results {
		p, chosen := tasks[r.Task]
		if !chosen {
			continue
		}
		req.Tasks = append(req.Tasks, r.Task)
		if len(req.Tasks) > 1 { // it is one basis
			continue
		}
		if err := execute.Confirm(ctx, m.config(), p); err != nil {
			return req, err
		}
	}
	return req, nil
}

// loadPlan reads what a dry run has found, by its tasks.
func loadPlan(ctx context.Context, db campaign.Querier, id string) (map[string]execute.Planned, error) {
	rows, err := db.Query(ctx, "SELECT name, planned, preview FROM cleanupd.task WHERE run_id = $1::text::uuid AND planned IS NOT NULL", id)
	if err != nil {
		return nil, err
	}
	var (
		name    string
		planned execute.Planned
		preview []execute.TablePreview
		tasks   = map[string]execute.Planned{}
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &planned, &preview}, func() error {
		planned.Preview = preview
		tasks[name] = planned
		planned, preview = execute.Planned{}, nil
		return nil
	})
	return tasks, err
}

// config is what is configured for any run.
func (m *Manager) config() execute.Config {
	return execute.Config{Pool: m.pool, Settings: m.settings, MidSourcing: m.midSourcing, RelatedListTables: m.relatedListTables, Include: m.include}
}
