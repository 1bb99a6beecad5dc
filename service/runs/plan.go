package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

// DefaultPlanMaxAge is how old a plan may be by default.
const DefaultPlanMaxAge = 24 * time.Hour

// planned is a request with the tasks of its plan. It fails with ErrNotFound, an InvalidError if the plan is no dry run
// that succeeded, or a RefusedError if it does not hold any longer.
func (m *Manager) planned(ctx context.Context, tx pgx.Tx, p Pipeline, req Request) (Request, error) {
	run, err := planOf(ctx, tx, req.Plan, "plan")
	if err != nil {
		return req, err
	}
	if err := m.holds(ctx, tx, run.ID); err != nil {
		return req, err
	}
	found, err := loadPlan(ctx, tx, run.ID)
	if err != nil {
		return req, err
	}
	holds, _, err := readHolds(ctx, tx, *run.ReferenceTime)
	if err != nil {
		return req, err
	}
	req.Plan, req.Tasks = run.ID, run.chosen()
	for _, name := range req.Tasks {
		if p.Outside[name].Disabled {
			return req, failure.Field("plan", fmt.Sprintf("has the task %s, which is disabled", name))
		}
	}
	return req, pipeline.ConfirmPlan(ctx, m.config(p), holds, found[req.Tasks[0]]) // all have one basis
}

// planOf is the dry run that a field of a request names.
func planOf(ctx context.Context, db campaign.Querier, id, field string) (*Run, error) {
	run, err := get(ctx, db, id)
	if err == nil && (!run.DryRun || run.State != Succeeded || run.WhatIf != nil) {
		err = failure.Field(field, "must be the id of a dry run that succeeded, without what_if")
	}
	return run, err
}

// chosen are the names of the run's tasks.
func (r *Run) chosen() (names []string) {
	for _, t := range r.Results {
		if t.StartTime != nil {
			names = append(names, t.Task)
		}
	}
	return names
}

// holds fails with a RefusedError if a plan is too old, or a run has ended since.
func (m *Manager) holds(ctx context.Context, db campaign.Querier, plan string) error {
	var (
		age   time.Duration
		later *string
	)
	err := db.QueryRow(ctx, `SELECT clock_timestamp() - p.reference_time, (SELECT id::text FROM cleanupd.run
		WHERE NOT dry_run AND end_time > p.reference_time ORDER BY end_time LIMIT 1)
		FROM cleanupd.run p WHERE id = $1::text::uuid`, plan).
		Scan(&age, &later)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refused.StalePlan("it is forgotten")
	case err != nil:
		return err
	case later != nil:
		return refused.StalePlan(fmt.Sprintf("run %s has ended since", *later))
	case age > m.planMaxAge:
		return refused.StalePlan(fmt.Sprintf("it is %s old, and may be %s", age.Round(time.Second), m.planMaxAge))
	}
	return nil
}

// loadPlan reads what a dry run has found, by its tasks.
func loadPlan(ctx context.Context, db campaign.Querier, id string) (map[string]preview.Task, error) {
	rows, err := db.Query(
		ctx,
		"SELECT name, planned, preview FROM cleanupd.task WHERE run_id = $1::text::uuid AND planned IS NOT NULL",
		id,
	)
	if err != nil {
		return nil, err
	}
	var (
		name    string
		planned preview.Task
		tables  []preview.Table
		found   = map[string]preview.Task{}
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &planned, &tables}, func() error {
		planned.Tables = tables
		found[name] = planned
		planned, tables = preview.Task{}, nil
		return nil
	})
	return found, err
}

// config is what is configured for any run.
func (m *Manager) config(p Pipeline) pipeline.Config {
	return pipeline.Config{
		Pool:              m.pool,
		Pipeline:          p.Tasks,
		Outside:           p.Outside,
		Settings:          m.settings,
		MidSourcing:       m.midSourcing,
		RelatedListTables: m.relatedListTables,
		VacuumTruncate:    m.vacuumTruncate,
		Include:           m.include,
	}
}
