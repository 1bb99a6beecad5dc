package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// selectRun reads a run and its tasks in one consistent snapshot; %s is the View.
const selectRun = `
SELECT id::text, state, dry_run, requested_by, reference_time, create_time, start_time, end_time, error, cause,
  COALESCE(plan::text, ''), what_if, accepted_guards, last_sequence,
  pace, pause_time, paused_by, pause_stops_clock,
  CASE WHEN paused_by = '` + RequestedBySchedule + `' THEN window_until END, COALESCE(` + overtaking + `::text, ''),
  COALESCE(state = 'RUNNING' AND ` + idleRun + `, false),
  (SELECT json_agg(json_build_object('Task', name, 'State', state, 'RowsDeleted', rows_deleted, 'RowsUpdated',
    rows_updated, 'RowsCascaded', rows_cascaded, 'TablesDropped', tables_dropped,
    'PartitionsRemoved', partitions_removed,
      'Batches', batches, 'RemoteDeliveriesRetained', remote_deliveries_retained, 'RowsFailed', rows_failed,
	'RowsLocked', rows_locked,
      'RowsSuppressed', rows_suppressed, 'RowsDependent', rows_dependent,
      'RowsRetained', rows_failed + rows_locked + rows_suppressed + rows_dependent, 'TablesRetained',
	tables_retained, 'RowsOnHold',
        rows_on_hold, 'Detail', detail, 'Details', details, 'Reason', reason, 'Metadata', metadata, 'StartTime',
	start_time, 'EndTime',
        end_time, 'Error', error) ORDER BY position)
    FROM cleanupd.task WHERE run_id = r.id), %s
FROM cleanupd.run AS r `

// View says how much of a run is read.
type View string

// Basic leaves out the sizes of tables and what a dry run has found.
const (
	Basic View = "NULL::json, NULL::json"
	Full  View = `(SELECT json_agg(json_build_object('Task', task, 'Relation', relation, 'RowsDeleted', rows_deleted,
		'RowsCascaded', rows_cascaded,
		'TableBytesBefore', table_bytes_before, 'IndexBytesBefore', index_bytes_before,
      'TableBytesAfter', table_bytes_after, 'IndexBytesAfter', index_bytes_after, 'DeadBytes', dead_bytes,
        'FreeBytes', free_bytes) ORDER BY rows_deleted DESC, by_all DESC, relation)
    FROM (SELECT *, sum(rows_deleted) OVER (PARTITION BY relation) AS by_all FROM cleanupd.space
      WHERE run_id = r.id) AS s
    WHERE table_bytes_after IS NOT NULL AND (by_all > 0
      OR table_bytes_after + index_bytes_after < table_bytes_before + index_bytes_before)),
  (SELECT json_object_agg(name, preview) FROM cleanupd.task WHERE run_id = r.id AND preview IS NOT NULL)`
)

func readRuns(ctx context.Context, db campaign.Querier, v View, where string, args ...any) ([]*Run, error) {
	rows, _ := db.Query(ctx, fmt.Sprintf(selectRun, v)+where, args...)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Run, error) {
		r := &Run{}
		var spaces []struct {
			Task string
			Space
		}
		var previews map[string][]cleanup.PreviewTable
		err := row.Scan(&r.ID, &r.State, &r.DryRun, &r.RequestedBy, &r.ReferenceTime, &r.CreateTime, &r.StartTime,
			&r.EndTime, &r.Error, &r.Cause, &r.Plan, &r.WhatIf, &r.Accepted, &r.LastSequence, &r.Pace, &r.PauseTime,
			&r.PausedBy, &r.PauseStopsClock, &r.WindowOpenTime, &r.WaitsFor, &r.Interrupted, &r.Results, &spaces, &previews)
		for task, tables := range previews {
			r.Result(task).Preview = tables
		}
		for _, s := range spaces {
			result := r.Result(s.Task)
			result.Space = append(result.Space, s.Space)
		}
		return r, err
	})
}

// GetRun fails with ErrNotFound.
func GetRun(ctx context.Context, db campaign.Querier, id uuid.UUID) (*Run, error) {
	list, err := readRuns(ctx, db, Full, "WHERE id = $1", id)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, ErrNotFound
	}
	return list[0], nil
}

// Filter selects runs; its zero value selects all of them.
type Filter struct {
	State  State  // "" for any
	Task   string // a task that the run includes; "" for any
	DryRun *bool  // nil for both
	// From and Before limit when the run was requested. Before is exclusive; nil means no limit.
	From, Before *time.Time
}

type runKey struct {
	CreateTime time.Time
	ID         uuid.UUID
}

// ListRuns returns runs, newest first, and the token of the next page, "" on the last page. It fails with
// pagetoken.ErrInvalid.
func ListRuns(
	ctx context.Context, db campaign.Querier, v View, f Filter, size int, token string,
) ([]*Run, string, error) {
	args := pgx.StrictNamedArgs{"limit": size + 1}
	var conditions []string
	add := func(condition, name string, value any) {
		args[name] = value
		conditions = append(conditions, condition)
	}
	if f.State != "" {
		add("state = @state", "state", f.State)
	}
	if f.Task != "" {
		add("EXISTS (SELECT FROM cleanupd.task WHERE run_id = r.id AND name = @task AND chosen)", "task", f.Task)
	}
	if f.DryRun != nil {
		add("dry_run = @dry_run", "dry_run", *f.DryRun)
	}
	if f.From != nil {
		add("create_time >= @from", "from", *f.From)
	}
	if f.Before != nil {
		add("create_time < @before", "before", *f.Before)
	}
	after, err := pagetoken.Parse[runKey](token)
	if err != nil {
		return nil, "", err
	}
	if token != "" {
		args["created"] = after.CreateTime
		add("(create_time, id) < (@created, @id)", "id", after.ID)
	}
	where := ""
	if len(conditions) > 0 {
		where = "WHERE " + strings.Join(conditions, " AND ") + " "
	}
	list, err := readRuns(ctx, db, v, where+"ORDER BY create_time DESC, id DESC LIMIT @limit", args)
	if err != nil {
		return nil, "", err
	}
	page, next := pagetoken.Cut(list, size,
		func(r *Run) runKey { return runKey{r.CreateTime.UTC(), uuid.MustParse(r.ID)} })
	return page, next, nil
}
