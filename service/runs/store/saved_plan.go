package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// FindPlan returns a dry run that another run can follow. field is the request field that names it. FindPlan fails
// with ErrNotFound, or with a failure.FieldError if the run is not a dry run that succeeded, or used what_if.
func FindPlan(ctx context.Context, db campaign.Querier, id, field string) (*Run, error) {
	parsed, err := ParseID(id)
	if err != nil {
		return nil, err
	}
	run, err := GetRun(ctx, db, parsed)
	if err == nil && (!run.DryRun || run.State != Succeeded || run.WhatIf != nil) {
		err = failure.Field(field, "must be the id of a dry run that succeeded, without what_if")
	}
	return run, err
}

// CheckPlan fails with a failure.Refusal if the saved plan is older than maxAge, or if another run has ended since
// then, or has worked until the schedule paused it. A run that was refused by a guard before it changed anything does
// not count.
func CheckPlan(ctx context.Context, db campaign.Querier, id uuid.UUID, maxAge time.Duration) error {
	var (
		age   time.Duration
		later *string // what another run has done since
	)
	err := db.QueryRow(ctx, `SELECT clock_timestamp() - p.reference_time, (SELECT format('run %s has %s since', id,
			CASE WHEN end_time IS NULL THEN 'worked' ELSE 'ended' END) FROM cleanupd.run r
		WHERE NOT dry_run AND (end_time > p.reference_time
			OR paused_by = $3 AND start_time IS NOT NULL AND pause_time > p.reference_time)
		AND NOT EXISTS (SELECT FROM cleanupd.task t WHERE run_id = r.id
			HAVING (r.cause = $2 OR bool_or(reason = $2)) AND bool_and(state IN ('SKIPPED', 'NOT_RUN') OR reason IS NOT
				DISTINCT FROM $2)
			AND sum(rows_deleted + rows_updated + tables_dropped + partitions_removed) = 0)
		ORDER BY end_time LIMIT 1) FROM cleanupd.run p WHERE id = $1`, id, failure.ReasonGuard, RequestedBySchedule).
		Scan(&age, &later)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return failure.StalePlan("it is forgotten")
	case err != nil:
		return err
	case later != nil:
		return failure.StalePlan(*later)
	case age > maxAge:
		return failure.StalePlan(fmt.Sprintf("it is %s old, and may be %s", age.Round(time.Second), maxAge))
	}
	return nil
}

// SavedPlan returns what the dry run has found, keyed by task.
func SavedPlan(ctx context.Context, db campaign.Querier, id uuid.UUID) (map[string]cleanup.SavedTask, error) {
	rows, _ := db.Query(ctx,
		"SELECT name, saved_plan, preview FROM cleanupd.task WHERE run_id = $1 AND saved_plan IS NOT NULL", id)
	var (
		name    string
		planned cleanup.SavedTask
		tables  []cleanup.PreviewTable
		found   = map[string]cleanup.SavedTask{}
	)
	_, err := pgx.ForEachRow(rows, []any{&name, &planned, &tables}, func() error {
		planned.Tables = tables
		found[name] = planned
		planned, tables = cleanup.SavedTask{}, nil
		return nil
	})
	return found, err
}
