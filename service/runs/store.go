package runs

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/preview"
)

// selectRun selects runs in one consistent snapshot, with the results of their tasks, and a view (%s).
const selectRun = `
SELECT id::text, state, dry_run, requested_by, reference_time, create_time, start_time, end_time, error, cause,
  COALESCE(plan::text, ''), what_if, accepted, last_sequence,
  (SELECT json_agg(json_build_object('Task', name, 'State', state, 'RowsDeleted', rows_deleted, 'RowsUpdated',
    rows_updated, 'TablesDropped', tables_dropped,
      'Batches', batches, 'RemoteDeliveriesLeft', remote_deliveries_left, 'RowsRefused', rows_refused,
      'RowsLeft', rows_refused + rows_locked + rows_kept + rows_bound, 'TablesLeft', tables_left, 'RowsHeld',
        rows_held, 'Detail', detail, 'Reason', reason, 'Metadata', metadata, 'StartTime', start_time, 'EndTime',
        end_time, 'Error', error) ORDER BY position)
    FROM cleanupd.task WHERE run_id = r.id), %s
FROM cleanupd.run AS r `

// View is how much of a run is read.
type View string

// Full has the tables that a task deleted from, or made smaller, or would have; Basic leaves them out.
const (
	Basic View = "NULL::json, NULL::json"
	Full  View = `(SELECT json_agg(json_build_object('Task', task, 'Relation', relation, 'RowsDeleted', rows_deleted,
		'TableBytesBefore', table_bytes_before, 'IndexBytesBefore', index_bytes_before,
      'TableBytesAfter', table_bytes_after, 'IndexBytesAfter', index_bytes_after, 'DeadBytes', dead_bytes,
        'FreeBytes', free_bytes) ORDER BY rows_deleted DESC, by_all DESC, relation)
    FROM (SELECT *, sum(rows_deleted) OVER (PARTITION BY relation) AS by_all FROM cleanupd.space
      WHERE run_id = r.id) AS s
    WHERE table_bytes_after IS NOT NULL AND (by_all > 0
      OR table_bytes_after + index_bytes_after < table_bytes_before + index_bytes_before)),
  (SELECT json_object_agg(name, preview) FROM cleanupd.task WHERE run_id = r.id AND preview IS NOT NULL)`
)

// load reads runs with their results.
func load(ctx context.Context, db campaign.Querier, v View, where string, args ...any) ([]*Run, error) {
	rows, err := db.Query(ctx, fmt.Sprintf(selectRun, v)+where, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Run, error) {
		r := &Run{}
		var spaces []struct {
			Task string
			Space
		}
		var previews map[string][]preview.Table
		err := row.Scan(
			&r.ID,
			&r.State,
			&r.DryRun,
			&r.RequestedBy,
			&r.ReferenceTime,
			&r.CreateTime,
			&r.StartTime,
			&r.EndTime,
			&r.Error,
			&r.Cause,
			&r.Plan,
			&r.WhatIf,
			&r.Accepted,
			&r.LastSequence,
			&r.Results,
			&spaces,
			&previews,
		)
		for task, preview := range previews {
			r.Result(task).Preview = preview
		}
		for _, s := range spaces {
			result := r.Result(s.Task)
			result.Space = append(result.Space, s.Space)
		}
		return r, err
	})
}

// get reads one run.
func get(ctx context.Context, db campaign.Querier, id string) (*Run, error) {
	key, err := uuid.Parse(id)
	if err != nil {
		return nil, ErrNotFound
	}
	// PostgreSQL does not read all the forms that Parse does
	list, err := load(ctx, db, Full, "WHERE id = $1::text::uuid", key.String())
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, ErrNotFound
	}
	return list[0], nil
}

// Get reads one run; ErrNotFound when there is none.
func (m *Manager) Get(ctx context.Context, id string) (*Run, error) { return get(ctx, m.calls, id) }

// ErrPageToken says that a page token is not one of this service's.
var ErrPageToken = failure.Field("page_token", "not a page token of this service")

// Filter says which runs are listed; the zero value: all.
type Filter struct {
	State        State      // empty: any
	Task         string     // one that was chosen; empty: any
	DryRun       *bool      // nil: dry runs and others
	From, Before *time.Time // when they were requested: then or later, and earlier; nil: whenever
}

// where is the filter as conditions, whose parameters it appends.
func (f *Filter) where(args *[]any) (conditions []string) {
	only := func(condition string, value any) {
		*args = append(*args, value)
		conditions = append(conditions, fmt.Sprintf(condition, len(*args)))
	}
	if f.State != "" {
		only("state = $%d", f.State)
	}
	if f.Task != "" {
		only("EXISTS (SELECT FROM cleanupd.task WHERE run_id = r.id AND name = $%d AND chosen)", f.Task)
	}
	if f.DryRun != nil {
		only("dry_run = $%d", *f.DryRun)
	}
	if f.From != nil {
		only("create_time >= $%d", *f.From)
	}
	if f.Before != nil {
		only("create_time < $%d", *f.Before)
	}
	return conditions
}

// List reads a page of runs, newest first, and the token of the next page; empty when there is none. It fails with
// ErrPageToken, or InvalidError.
func (m *Manager) List(ctx context.Context, v View, f Filter, size int, token string) ([]*Run, string, error) {
	if f.Task != "" && !m.mayKnow(f.Task) {
		return nil, "", InvalidError{{Field: "task", Problem: fmt.Sprintf("there is no task %q", f.Task)}}
	}
	args := []any{size + 1}
	conditions := f.where(&args)
	if token != "" {
		created, id, err := parseToken(token)
		if err != nil {
			return nil, "", err
		}
		conditions = append(
			conditions,
			fmt.Sprintf("(create_time, id) < ($%d, $%d::text::uuid)", len(args)+1, len(args)+2),
		)
		args = append(args, created, id)
	}
	where := ""
	if len(conditions) > 0 {
		where = "WHERE " + strings.Join(conditions, " AND ") + " "
	}
	list, err := load(ctx, m.calls, v, where+"ORDER BY create_time DESC, id DESC LIMIT $1", args...)
	if err != nil || len(list) <= size {
		return list, "", err
	}
	last := list[size-1]
	return list[:size], formatToken(last.CreateTime, last.ID), nil
}

// formatToken is the token of the page after a run.
func formatToken(created time.Time, id string) string {
	return base64.URLEncoding.EncodeToString([]byte(created.UTC().Format(time.RFC3339Nano) + " " + id))
}

func parseToken(token string) (created time.Time, id string, err error) {
	raw, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return time.Time{}, "", ErrPageToken
	}
	when, id, _ := strings.Cut(string(raw), " ")
	if created, err = time.Parse(time.RFC3339Nano, when); err != nil {
		return time.Time{}, "", ErrPageToken
	}
	key, err := uuid.Parse(id)
	if err != nil || formatToken(created, key.String()) != token { // only the canonical form is accepted
		return time.Time{}, "", ErrPageToken
	}
	return created, key.String(), nil
}

// Start stores a run, for any replica to claim. It fails with InvalidError, ActiveError or ErrTooManyDryRuns.
func (m *Manager) Start(ctx context.Context, req Request) (*Run, error) {
	p, err := m.Pipeline(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.validate(req); err != nil {
		return nil, err
	}
	for {
		var run *Run
		err := pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) (err error) {
			if !req.DryRun {
				if err := m.keepOwn(ctx, tx); err != nil {
					return err
				}
			}
			if req.Plan != "" {
				if req, err = m.planned(ctx, tx, p, req); err != nil {
					return err
				}
			}
			if run, err = insertRun(ctx, tx, p, req); err != nil || run == nil {
				return err
			}
			return audit.Note(ctx, tx, audit.Details{
				"run_id":               run.ID,
				"tasks":                req.Tasks,
				"skip_tasks":           req.SkipTasks,
				"dry_run":              req.DryRun,
				"continue_on_error":    req.ContinueOnError,
				"max_duration_seconds": req.MaxDuration.Seconds(),
				"plan":                 req.Plan,
				"what_if":              req.WhatIf,
				"accept_guards":        req.Accepted,
			})
		})
		if err != nil {
			return nil, err
		}
		if run != nil {
			return run, nil
		}
		active, err := load(
			ctx,
			m.calls,
			Basic,
			"WHERE slot = ANY ($1::smallint[]) AND state IN ('QUEUED', 'RUNNING') ORDER BY slot",
			slots(req),
		)
		if err != nil {
			return nil, err
		}
		switch {
		case req.DryRun && len(active) == len(slots(req)):
			return nil, tooManyDryRuns(req)
		case !req.DryRun && len(active) == 1:
			return nil, &ActiveError{active[0].ID}
		}
		// The run that was active has just ended: try again.
	}
}

// slots returns the slots that a run may take, in order; each has one active run at most. Dry runs of viewers share
// one, so that one is left for those who may do more.
func slots(req Request) []int16 {
	switch {
	case !req.DryRun:
		return []int16{0}
	case req.ByViewer:
		return []int16{1}
	}
	return []int16{2, 1}
}

// insertRun stores a run in a free slot, for any replica to claim; nil when no slot is free.
func insertRun(ctx context.Context, tx pgx.Tx, p Pipeline, req Request) (*Run, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	for _, slot := range slots(req) {
		tag, err := tx.Exec(
			ctx,
			`INSERT INTO cleanupd.run (id, slot, dry_run, continue_on_error, max_duration, requested_by, trace_parent,
				plan, what_if, accepted, reference_time)
			VALUES ($1::text::uuid, $2, $3, $4, $5::bigint * interval '1 microsecond', $6, $7, $8::text::uuid, $9,
				$10, (SELECT reference_time FROM cleanupd.run WHERE id = $8::text::uuid))
			ON CONFLICT (slot) WHERE state IN ('QUEUED', 'RUNNING') DO NOTHING`,
			id.String(),
			slot,
			req.DryRun,
			req.ContinueOnError,
			microseconds(req.MaxDuration),
			connection.Text(req.RequestedBy),
			traceParent(ctx),
			unlessEmpty(req.Plan),
			unlessNil(req.WhatIf),
			unlessNone(req.Accepted),
		)
		if err != nil {
			return nil, fmt.Errorf("store the run: %w", err)
		}
		if tag.RowsAffected() == 0 {
			continue
		}
		if err := insertTasks(ctx, tx, id.String(), p, req); err != nil {
			return nil, fmt.Errorf("store the run: %w", err)
		}
		return get(ctx, tx, id.String())
	}
	return nil, nil
}

// unlessEmpty is a text, or NULL.
func unlessEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// unlessNil are values, or NULL.
func unlessNil(values map[string]int) any {
	if values == nil {
		return nil
	}
	return values
}

// unlessNone are the guards that a run may pass, or NULL.
func unlessNone(accepted []guard.Trip) any {
	if len(accepted) == 0 {
		return nil
	}
	return accepted
}

func microseconds(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	us := d.Microseconds()
	return &us
}

// insertTasks stores one row per task of the pipeline and notifies the replicas that a run waits.
func insertTasks(ctx context.Context, tx pgx.Tx, id string, p Pipeline, req Request) error {
	chosen := p.chosen(req)
	var names, states []string
	for _, name := range p.names() {
		state := pipeline.Skipped
		if slices.Contains(chosen, name) {
			state = pipeline.Pending
		}
		names, states = append(names, name), append(states, string(state))
	}
	if _, err := tx.Exec(ctx, `INSERT INTO cleanupd.task (run_id, position, name, chosen, state)
		SELECT $1::text::uuid, position, name, state = $4, state
			FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS t (name, state, position)`,
		id, names, states, string(pipeline.Pending)); err != nil {
		return err
	}
	return notify(ctx, tx, id, 0)
}
