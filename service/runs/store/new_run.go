package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// RequestedBySchedule is the RequestedBy of scheduled runs. It cannot be the name of a caller, because those
// contain a colon.
const RequestedBySchedule = "schedule"

type NewRun struct {
	Slots           []int16
	DryRun          bool
	ContinueOnError bool
	MaxDuration     time.Duration   // 0 for no limit
	PauseStopsClock bool            // whether MaxDuration leaves out pauses
	Pace            pace.Pace       // "" for pace.Balanced
	Phase           *schedule.Phase // the current phase of the schedule's windows; nil if no windows apply to the run
	RequestedBy     string
	Plan            uuid.UUID // the dry run whose plan the run follows; uuid.Nil if none
	KeepAsPlanned   bool      // whether the trash keeps what tasks delete for at least as long as the plan's preview says
	WhatIf          map[string]int
	Accepted        []guard.Trip
	Restore         *RestoreParams // nil for a run that deletes
	Pipeline        []rules.Task   // all tasks
	Chosen          []string       // the names of the tasks to run
	// RequestID is uuid.Nil if the request has none. RequestDigest is a digest of the rest of the request.
	RequestID     uuid.UUID
	RequestDigest []byte
}

// requestLifetime is how long a repeated request returns the run of the first one, by the database's clock.
const requestLifetime = "'24 hours'"

// ErrRequestReused says that the request has the id of a different request.
var ErrRequestReused = failure.Field("request_id", "is the id of another request of the last 24 hours")

// FindRequested returns the run that was started by a request with this id, or nil. It fails with ErrRequestReused
// if the digest of that request differs.
func FindRequested(ctx context.Context, db campaign.Querier, requestID uuid.UUID, digest []byte) (*Run, error) {
	var id uuid.UUID
	var same bool
	err := db.QueryRow(
		ctx, `SELECT id, request_digest = $2 FROM cleanupd.run
			WHERE request_id = $1 AND create_time > clock_timestamp() - interval `+requestLifetime, requestID, digest,
	).Scan(&id, &same)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	case !same:
		return nil, ErrRequestReused
	}
	return GetRun(ctx, db, id)
}

// TraceHeader is the W3C header under which a run stores the trace context of the call that requested it.
const TraceHeader = "traceparent"

// InsertRun stores a run and notifies the replicas that it waits. A run by hand takes the slot of a scheduled run that
// waits for its window. InsertRun returns nil if no slot is free, or if another call has stored a run of the same
// request in the meantime.
func InsertRun(ctx context.Context, tx pgx.Tx, r NewRun) (*Run, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	trace := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, trace)
	// NULL if there are none. Marshaled here, because the connection would escape characters of the names of tables,
	// which are compared.
	var accepted []byte
	if len(r.Accepted) > 0 {
		if accepted, err = json.Marshal(r.Accepted); err != nil {
			return nil, err
		}
	}
	if r.RequestID != uuid.Nil {
		_, err := tx.Exec(
			ctx, `UPDATE cleanupd.run SET request_id = NULL
				WHERE request_id = $1 AND create_time <= clock_timestamp() - interval `+requestLifetime, r.RequestID,
		)
		if err != nil {
			return nil, err
		}
	}
	var windowUntil *time.Time
	if r.Phase != nil {
		windowUntil = &r.Phase.Until
		r.Pace = cmp.Or(r.Phase.Pace, r.Pace)
	}
	r.Pace = cmp.Or(r.Pace, pace.Balanced)
	var yielding *Epoch // of the run whose slot this one takes
	if !r.DryRun && r.RequestedBy != RequestedBySchedule {
		if yielding, err = yieldSlot(ctx, tx); err != nil {
			return nil, err
		}
	}
	for _, slot := range r.Slots {
		tag, err := tx.Exec(
			ctx,
			`INSERT INTO cleanupd.run (id, slot, dry_run, continue_on_error, max_duration, requested_by, trace_parent,
				plan, what_if, accepted_guards, request_id, request_digest, pace, pause_stops_clock, window_until,
				restore, reference_time)
			VALUES (@id, @slot, @dry_run, @continue_on_error, NULLIF(@max_duration::interval, '0'), @requested_by,
				@trace_parent, @plan, @what_if, @accepted_guards, @request_id, @request_digest, @pace,
				@pause_stops_clock, @window_until, @restore, (SELECT reference_time FROM cleanupd.run WHERE id = @plan))
			ON CONFLICT DO NOTHING`,
			pgx.StrictNamedArgs{
				"id":                id,
				"slot":              slot,
				"dry_run":           r.DryRun,
				"continue_on_error": r.ContinueOnError,
				"max_duration":      r.MaxDuration,
				"requested_by":      connection.Text(r.RequestedBy),
				"trace_parent":      trace[TraceHeader],
				"plan":              zeronull.UUID(r.Plan),
				"what_if":           r.WhatIf,
				"accepted_guards":   accepted,
				"request_id":        zeronull.UUID(r.RequestID),
				"request_digest":    r.RequestDigest,
				"pace":              r.Pace,
				"pause_stops_clock": r.PauseStopsClock,
				"window_until":      windowUntil,
				"restore":           r.Restore,
			},
		)
		if err != nil {
			return nil, fmt.Errorf("store the run: %w", err)
		}
		if tag.RowsAffected() == 0 {
			continue
		}
		if err := insertTasks(ctx, tx, id, r); err != nil {
			return nil, fmt.Errorf("store the run: %w", err)
		}
		if yielding != nil {
			overtaken := message.RunOvertaken.With("run", id, "caller", r.RequestedBy)
			if err := LogToRun(ctx, tx, *yielding, overtaken); err != nil {
				return nil, err
			}
		}
		if r.Phase != nil && !r.Phase.Open {
			if err := PauseRun(ctx, tx, id, RequestedBySchedule); err != nil {
				return nil, err
			}
			if err := LogWindow(ctx, tx, Epoch{RunID: id}, r.Phase.Until); err != nil {
				return nil, err
			}
		}
		return GetRun(ctx, tx, id)
	}
	return nil, returnSlot(ctx, tx)
}

func insertTasks(ctx context.Context, tx pgx.Tx, id uuid.UUID, r NewRun) error {
	var names, kinds, states []string
	var undo []*time.Duration
	for _, t := range r.Pipeline {
		state := cleanup.Skipped
		if slices.Contains(r.Chosen, t.Name) {
			state = cleanup.Pending
		}
		names, kinds, states = append(names, t.Name), append(kinds, t.Kind.String()), append(states, string(state))
		undo = append(undo, t.Undo)
	}
	if _, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.task (run_id, position, name, kind, chosen, state, undo)
		SELECT @run_id::uuid, position, name, kind, state = @pending, state, greatest(undo, '0', (SELECT undo
			FROM cleanupd.task AS p WHERE @keep_as_planned AND p.run_id = @plan AND p.name = t.name))
		FROM unnest(@names::text[], @kinds::text[], @states::text[], @undo::interval[])
			WITH ORDINALITY AS t (name, kind, state, undo, position)`,
		pgx.StrictNamedArgs{
			"run_id": id, "names": names, "kinds": kinds, "states": states, "undo": undo,
			"pending": string(cleanup.Pending), "plan": r.Plan, "keep_as_planned": r.KeepAsPlanned,
		},
	); err != nil {
		return err
	}
	return NotifyWaiting(ctx, tx, id)
}

// A run takes the first free slot of its list, and each slot has at most one active run. Viewers may use only one
// of the two slots for dry runs, so that the other one stays free for callers with more rights.
var (
	DeletingSlots  = []int16{0}
	DryRunSlots    = []int16{2, 1}
	ViewerRunSlots = []int16{1}
)

// A run by hand takes the slot of a scheduled run that waits for its window. The scheduled run has slot 3 meanwhile,
// in which a run can only be paused, and gets its slot back in the transaction that ends the run by hand. Slot 0 is
// therefore never free while a scheduled run waits, and the next one stays pending.

// yields is the SQL condition that a run has given its slot to a run by hand.
const yields = "slot = 3 AND " + active

// overtaking is the SQL for the id of the run by hand that has the slot of run r, or NULL.
const overtaking = `(SELECT h.id FROM cleanupd.run h WHERE r.slot = 3 AND r.state = 'PAUSED' AND h.slot = 0
	AND h.` + active + `)`

// yieldSlot makes a scheduled run that waits for its window give its slot away, unless a replica has it. It returns nil
// if there is no such run. The new epoch fences a replica that has stopped renewing its lease.
func yieldSlot(ctx context.Context, tx pgx.Tx) (*Epoch, error) {
	var id uuid.UUID
	err := tx.QueryRow(
		ctx,
		`UPDATE cleanupd.run SET slot = 3 WHERE slot = 0 AND state = 'PAUSED' AND paused_by = $1 AND replica = ''
		RETURNING id`,
		RequestedBySchedule,
	).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := BeginEpoch(ctx, tx, id)
	return &e, err
}

// returnSlot gives the slot back, unless a run by hand has it.
func returnSlot(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(
		ctx,
		"UPDATE cleanupd.run SET slot = 0 WHERE "+yields+` AND NOT EXISTS (SELECT FROM cleanupd.run h
			WHERE h.slot = 0 AND h.`+active+")",
	)
	return err
}

func ActiveRuns(ctx context.Context, db campaign.Querier, slots []int16) ([]*Run, error) {
	return readRuns(ctx, db, Basic, "WHERE slot = ANY ($1) AND "+active+" ORDER BY slot", slots)
}

// RunActive is the reason of an ActiveError.
const RunActive = "RUN_ACTIVE"

// ActiveError says that another run has the slot.
type ActiveError struct{ RunID string }

func (e *ActiveError) Error() string { return fmt.Sprintf("run %s is active", e.RunID) }

func (*ActiveError) Kind() failure.Kind { return failure.Conflict }

func (e *ActiveError) Info() (reason string, metadata map[string]string) {
	return RunActive, map[string]string{"run_id": e.RunID}
}

// FindPlan returns a dry run that another run can follow. field is the request field that names it. FindPlan fails
// with ErrNotFound, or with a failure.FieldError if the run is not a dry run that succeeded, or used what_if.
func FindPlan(ctx context.Context, db campaign.Querier, id, field string) (*Run, error) {
	parsed, err := ParseID(id)
	if err != nil {
		return nil, err
	}
	run, err := GetRun(ctx, db, parsed)
	if err == nil && (!run.DryRun || run.State != Succeeded || run.WhatIf != nil) {
		err = failure.Field(field, "must be the id of a dry run that succeeded, with the stored options"+run.failedTasks())
	}
	return run, err
}

// failedTasks says how to save a plan without the tasks that failed; "" if no task of a dry run failed.
func (r *Run) failedTasks() string {
	var names []string
	for _, t := range r.Results {
		if r.DryRun && t.State == cleanup.Failed {
			names = append(names, t.Task)
		}
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf("; in this one %s failed: make one without (skip_tasks; cleanupd run --dry-run --skip-task %s)",
		strings.Join(names, ", "), strings.Join(names, " --skip-task "))
}

// CheckPlan fails with a failure.Refusal if the saved plan was pruned or is older than maxAge, or if another run has
// ended since then, or has worked until the schedule paused it. A run that was refused before it changed anything does
// not count.
func CheckPlan(ctx context.Context, db campaign.Querier, id uuid.UUID, maxAge time.Duration) error {
	var (
		age      time.Duration
		later    *string // what another run has done since
		refusals = []string{failure.ReasonGuard, failure.ReasonNotUndoable, failure.ReasonTrashFull}
	)
	err := db.QueryRow(ctx, `SELECT clock_timestamp() - p.reference_time, (SELECT format('run %s has %s since', id,
			CASE WHEN end_time IS NULL THEN 'worked' ELSE 'ended' END) FROM cleanupd.run r
		WHERE NOT dry_run AND (end_time > p.reference_time
			OR paused_by = $3 AND start_time IS NOT NULL AND pause_time > p.reference_time)
		AND NOT EXISTS (SELECT FROM cleanupd.task t WHERE run_id = r.id
			HAVING (r.cause = ANY ($2) OR bool_or(reason = ANY ($2)))
				AND bool_and(state IN ('SKIPPED', 'NOT_RUN') OR reason = ANY ($2))
			AND sum(rows_deleted + rows_updated + tables_dropped + partitions_removed) = 0)
		ORDER BY end_time LIMIT 1) FROM cleanupd.run p WHERE id = $1`, id, refusals, RequestedBySchedule).
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

// SavedPlan returns the results of the dry run by task.
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
