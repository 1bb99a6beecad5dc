package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

var ErrNotFound = failure.New(failure.NotFound, "no such run")

// ParseID fails with ErrNotFound for any text that is not a UUID.
func ParseID(id string) (uuid.UUID, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return uuid.Nil, ErrNotFound
	}
	return parsed, nil
}

type State string

const (
	Queued    State = "QUEUED"
	Running   State = "RUNNING"
	Paused    State = "PAUSED"
	Succeeded State = "SUCCEEDED"
	Failed    State = "FAILED"
	Cancelled State = "CANCELLED"
)

// Active reports whether the run has not ended.
func (s State) Active() bool { return s == Queued || s == Running || s == Paused }

// active is the SQL condition that corresponds to State.Active.
const active = "state IN ('QUEUED', 'RUNNING', 'PAUSED')"

// Cause says why a run did not succeed. If a task was refused, it is the reason of that task.
type Cause string

const (
	CauseCancelled    Cause = "CANCELLED"
	CauseNotCampaign  Cause = "NOT_CAMPAIGN"
	CauseUnavailable  Cause = "UNAVAILABLE"
	CauseInternal     Cause = "INTERNAL"
	CausePlanStale    Cause = failure.ReasonPlanStale
	CausePlanExceeded Cause = failure.ReasonPlanExceeded
	CauseNotUndoable  Cause = failure.ReasonNotUndoable
	CauseTrashFull    Cause = failure.ReasonTrashFull
	CauseGuarded      Cause = failure.ReasonGuard
)

type Run struct {
	ID            string     `json:"ID"`
	State         State      `json:"State"`
	DryRun        bool       `json:"DryRun"`
	RequestedBy   string     `json:"RequestedBy"`
	ReferenceTime *time.Time `json:"ReferenceTime"`
	CreateTime    time.Time  `json:"CreateTime"`
	StartTime     *time.Time `json:"StartTime"`
	EndTime       *time.Time `json:"EndTime"`
	Error         string     `json:"Error"`
	Cause         Cause      `json:"Cause"`
	// Plan is the id of the dry run whose plan the run follows; "" if none.
	Plan string `json:"Plan"`
	// WhatIf has the options that a dry run replaces, by name; nil if none.
	WhatIf map[string]int `json:"WhatIf"`
	// Accepted lists the guards that the run may pass.
	Accepted []guard.Trip `json:"Accepted,omitempty"`
	Pace     pace.Pace    `json:"Pace,omitempty"`
	// PauseTime and PausedBy say since when and by whom the run is paused; PauseTime is nil if it is not paused.
	PauseTime *time.Time `json:"PauseTime,omitempty"`
	PausedBy  string     `json:"PausedBy,omitempty"`
	// WindowOpenTime is when the window opens for which the schedule has paused the run. It is in the past if the window
	// is open, but a run by hand has to end first. It is nil if the schedule has not paused the run.
	WindowOpenTime *time.Time `json:"-"`
	// WaitsFor is the id of the run by hand that has to end before this one continues; "" if none.
	WaitsFor string `json:"-"`
	// Interrupted means that the run is RUNNING, but no replica has it.
	Interrupted bool `json:"-"`
	// PauseStopsClock means that the time limit does not count pauses.
	PauseStopsClock bool `json:"PauseStopsClock,omitempty"`
	// Undo is how long the trash keeps deleted rows, the maximum of the run's tasks; 0 means not at all.
	Undo time.Duration `json:"Undo,omitempty"`
	// Restore selects the trash that the run restores; nil if it deletes.
	Restore      *RestoreParams `json:"Restore,omitempty"`
	LastSequence int64          `json:"-"`
	Results      []Result       `json:"Results"`
}

type Result struct {
	Task          string        `json:"Task"`
	State         cleanup.State `json:"State"`
	RowsDeleted   int64         `json:"RowsDeleted"`
	RowsUpdated   int64         `json:"RowsUpdated"`
	RowsCascaded  int64         `json:"RowsCascaded,omitempty"`
	TablesDropped int64         `json:"TablesDropped"`
	// PartitionsRemoved counts whole partitions that were dropped or detached.
	PartitionsRemoved int64      `json:"PartitionsRemoved,omitempty"`
	Batches           int64      `json:"Batches"`
	StartTime         *time.Time `json:"StartTime"`
	EndTime           *time.Time `json:"EndTime"`
	Error             string     `json:"Error"`
	Space             []Space    `json:"Space,omitempty"`
	// RemoteDeliveriesRetained counts deliveries that remain on mid-sourcing servers for which no database is
	// configured.
	RemoteDeliveriesRetained int64 `json:"RemoteDeliveriesRetained,omitempty"`
	// RowsRetained counts the obsolete rows that were retained for any reason except a hold. It is the sum of the four
	// fields below. It leaves out rows of the TablesRetained tables, whose end was not reached.
	RowsRetained   int64 `json:"RowsRetained,omitempty"`
	RowsFailed     int64 `json:"RowsFailed,omitempty"`
	RowsLocked     int64 `json:"RowsLocked,omitempty"`
	RowsSuppressed int64 `json:"RowsSuppressed,omitempty"`
	RowsDependent  int64 `json:"RowsDependent,omitempty"`
	RowsOnHold     int64 `json:"RowsOnHold,omitempty"`
	TablesRetained int64 `json:"TablesRetained,omitempty"`
	// RowsRestored counts rows that came back from the trash, RowsExisting those that stayed there, since rows with their
	// keys exist again.
	RowsRestored int64 `json:"RowsRestored,omitempty"`
	RowsExisting int64 `json:"RowsExisting,omitempty"`
	// UndoExpireTime is when the first of what the task deleted leaves the trash; nil if nothing of it is there, or the
	// run has not ended.
	UndoExpireTime *time.Time `json:"UndoExpireTime,omitempty"`
	// Detail explains retained rows, or why the task was not run; "" if neither applies. Details has the same messages one
	// by one.
	Detail  string            `json:"Detail,omitempty"`
	Details []message.Message `json:"Details,omitempty"`
	// Reason is the machine-readable reason why the task was refused; "" if it was not. Metadata has the details.
	Reason   string                 `json:"Reason,omitempty"`
	Metadata map[string]string      `json:"Metadata,omitempty"`
	Preview  []cleanup.PreviewTable `json:"Preview,omitempty"`
}

func (r *Run) UUID() uuid.UUID { return uuid.MustParse(r.ID) }

// Result returns the result of a task, or nil if the run has no such task.
func (r *Run) Result(task string) *Result {
	i := slices.IndexFunc(r.Results, func(t Result) bool { return t.Task == task })
	if i < 0 {
		return nil
	}
	return &r.Results[i]
}

// FailedTask returns the first task that failed. If none failed, it returns the first one that was stopped, or "".
func (r *Run) FailedTask() string {
	for _, state := range []cleanup.State{cleanup.Failed, cleanup.Cancelled} {
		if i := slices.IndexFunc(r.Results, func(t Result) bool { return t.State == state }); i >= 0 {
			return r.Results[i].Task
		}
	}
	return ""
}

// Reason returns the machine-readable reason if the run was refused, otherwise "".
func (r *Run) Reason() string {
	switch r.Cause {
	case CausePlanStale, CausePlanExceeded, CauseGuarded, CauseNotUndoable, CauseTrashFull:
		return string(r.Cause)
	}
	return ""
}

// RefusedTask returns the reason of the first task that was refused, or "" if none was.
func (r *Run) RefusedTask() Cause {
	for _, t := range r.Results {
		if t.Reason != "" {
			return Cause(t.Reason)
		}
	}
	return ""
}

// Failures returns one line for each failed task.
func (r *Run) Failures() string {
	var lines []string
	for _, t := range r.Results {
		if t.State == cleanup.Failed {
			lines = append(lines, fmt.Sprintf("task %s failed: %s", t.Task, t.Error))
		}
	}
	return strings.Join(lines, "\n")
}

func (r *Run) Started() (names []string) {
	for _, t := range r.Results {
		if t.StartTime != nil {
			names = append(names, t.Task)
		}
	}
	return names
}

// selectRun reads a run and its tasks in one consistent snapshot; %s is the View.
const selectRun = `
SELECT id::text, state, dry_run, requested_by, reference_time, create_time, start_time, end_time, error, cause,
  COALESCE(plan::text, ''), what_if, accepted_guards, last_sequence,
  pace, pause_time, paused_by, pause_stops_clock,
  (SELECT COALESCE(max(undo), '0') FROM cleanupd.task WHERE run_id = r.id AND chosen), restore,
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
        rows_on_hold, 'RowsRestored', rows_restored, 'RowsExisting', rows_existing,
	'UndoExpireTime', (SELECT min(expire_time) FROM cleanupd.trash AS w WHERE w.run_id = r.id AND w.task = t.name
	  AND w.end_time IS NULL AND (kind <> 'ROWS' OR ` + trash.RowsLeft + ` > 0)),
	'Detail', detail, 'Details', details, 'Reason', reason, 'Metadata', metadata, 'StartTime',
	start_time, 'EndTime',
        end_time, 'Error', error) ORDER BY position)
    FROM cleanupd.task AS t WHERE run_id = r.id), %s
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
		err := row.Scan(&r.ID, &r.State, &r.DryRun, (*connection.Text)(&r.RequestedBy), &r.ReferenceTime, &r.CreateTime,
			&r.StartTime, &r.EndTime, (*connection.Text)(&r.Error), &r.Cause, &r.Plan, &r.WhatIf, &r.Accepted,
			&r.LastSequence, &r.Pace, &r.PauseTime, &r.PausedBy, &r.PauseStopsClock, &r.Undo, &r.Restore,
			&r.WindowOpenTime, &r.WaitsFor, &r.Interrupted, &r.Results, &spaces, &previews)
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
