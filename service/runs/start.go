package runs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/tasklist"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
)

var ErrTooManyDryRuns = failure.New(failure.Exhausted, "too many dry runs")

func tooManyDryRuns(req Request) error {
	if req.ByViewer {
		return fmt.Errorf("%w: viewers may have one active, all together, and there is one; wait for it to end",
			ErrTooManyDryRuns)
	}
	return fmt.Errorf("%w: two are active; wait for one to end", ErrTooManyDryRuns)
}

var ErrNoTasks = failure.New(
	failure.Precondition,
	"there is nothing to run: no policy is set (cleanupd tables --suggest prints some); if this is a database of Adobe "+
		"Campaign, check its name, --profile, and that the role may use the schema that holds NmsDelivery",
)

// Start stores a run for any replica to claim. If the request id was used before, it returns the run of that
// request, even if that run has ended. It fails with ErrNoTasks, failure.Violations, a store.ActiveError,
// ErrTooManyDryRuns, store.ErrRequestReused, or a failure.Refusal.
func (m *Manager) Start(ctx context.Context, req Request) (*store.Run, error) {
	list, err := m.Tasks.Read(ctx, m.calls)
	if err != nil {
		return nil, err
	}
	if len(list.Tasks) == 0 {
		return nil, ErrNoTasks
	}
	if err := req.validate(list); err != nil {
		return nil, err
	}
	digest, err := req.digest() // of the request as it came, before the tasks of a plan replace its tasks
	if err != nil {
		return nil, err
	}
	for {
		run, err := findRequested(ctx, m.calls, req.ID, digest)
		if err != nil || run != nil {
			return run, err
		}
		err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) (err error) {
			run, err = m.insert(ctx, tx, list, req, digest)
			return err
		})
		if err != nil || run != nil {
			return run, err
		}
		if run, err = findRequested(ctx, m.calls, req.ID, digest); err != nil || run != nil {
			return run, err
		}
		active, err := store.ActiveRuns(ctx, m.calls, req.slots())
		if err != nil {
			return nil, err
		}
		switch {
		case req.DryRun && len(active) == len(req.slots()):
			return nil, tooManyDryRuns(req)
		case !req.DryRun && len(active) == 1:
			return nil, &store.ActiveError{RunID: active[0].ID}
		}
		// The run that was active has just ended: try again.
	}
}

// Follow lets this replica execute a run if it executes only those that are followed; see Config.OnlyFollowed.
func (m *Manager) Follow(run string) {
	if id, err := uuid.Parse(run); err == nil && m.config.OnlyFollowed {
		m.worker.Follow(id)
	}
}

// findRequested returns nil if no earlier call used this request id.
func findRequested(ctx context.Context, db campaign.Querier, id uuid.UUID, digest []byte) (*store.Run, error) {
	if id == uuid.Nil {
		return nil, nil
	}
	return store.FindRequested(ctx, db, id, digest)
}

// insert returns nil if the slots are taken, or if another call stores the same request.
func (m *Manager) insert(
	ctx context.Context, tx pgx.Tx, list tasklist.List, req Request, digest []byte,
) (*store.Run, error) {
	if !req.DryRun {
		if err := m.owner.Lock(ctx, tx); err != nil {
			return nil, err
		}
	}
	var planID uuid.UUID
	if req.Plan != "" {
		plan, err := m.checkPlan(ctx, tx, list, req)
		if err != nil {
			return nil, err
		}
		planID, req.Plan, req.Tasks = plan.UUID(), plan.ID, plan.Started()
	}
	run, err := store.InsertRun(ctx, tx, store.NewRun{
		Slots:           req.slots(),
		DryRun:          req.DryRun,
		ContinueOnError: req.ContinueOnError,
		MaxDuration:     req.MaxDuration,
		PauseStopsClock: req.PauseStopsClock,
		Pace:            cmp.Or(req.Pace, m.config.DefaultPace),
		RequestedBy:     req.RequestedBy,
		Plan:            planID,
		WhatIf:          req.WhatIf,
		Accepted:        req.Accepted,
		Pipeline:        list.Tasks,
		Chosen:          list.Choose(req.Tasks, req.SkipTasks),
		RequestID:       req.ID,
		RequestDigest:   digest,
	})
	if err != nil || run == nil {
		return nil, err
	}
	return run, audit.Note(ctx, tx, audit.Details{
		"run_id":               run.ID,
		"tasks":                req.Tasks,
		"skip_tasks":           req.SkipTasks,
		"dry_run":              req.DryRun,
		"continue_on_error":    req.ContinueOnError,
		"max_duration_seconds": req.MaxDuration.Seconds(),
		"pause_stops_clock":    req.PauseStopsClock,
		"pace":                 req.Pace,
		"plan":                 req.Plan,
		"what_if":              req.WhatIf,
		"accept_guards":        req.Accepted,
	})
}

// checkPlan returns the dry run that the request names as its plan. It fails with store.ErrNotFound,
// failure.Violations, a failure.FieldError, or a failure.Refusal if the plan is stale.
func (m *Manager) checkPlan(ctx context.Context, tx pgx.Tx, list tasklist.List, req Request) (*store.Run, error) {
	plan, err := store.FindPlan(ctx, tx, req.Plan, "plan")
	if err != nil {
		return nil, err
	}
	if err := store.CheckPlan(ctx, tx, plan.UUID(), m.config.PlanMaxAge); err != nil {
		return nil, err
	}
	found, err := store.SavedPlan(ctx, tx, plan.UUID())
	if err != nil {
		return nil, err
	}
	holds, _, err := store.EffectiveHolds(ctx, tx, *plan.ReferenceTime)
	if err != nil {
		return nil, err
	}
	if err := checkShown(req.Accepted, found); err != nil {
		return nil, err
	}
	tasks := plan.Started()
	for _, name := range tasks {
		if list.Disabled(name) {
			return nil, failure.Field("plan", fmt.Sprintf("has the task %s, which is disabled", name))
		}
	}
	return plan, cleanup.ConfirmPlan(ctx, m.configure(list), holds, found[tasks[0]]) // all tasks have the same basis
}

// checkShown fails with failure.Violations if a guard was accepted that the plan's preview does not show.
func checkShown(accepted []guard.Trip, found map[string]cleanup.SavedTask) error {
	shown := map[string]bool{}
	for _, task := range found {
		for _, table := range task.Tables {
			for _, trip := range table.Guards {
				shown[fmt.Sprintf("%s of %s", trip.Guard, trip.Table)] = true
			}
		}
	}
	var wrong failure.Violations
	for i, a := range accepted {
		if name := fmt.Sprintf("%s of %s", a.Guard, a.Table); !shown[name] {
			wrong.Addf(fmt.Sprintf("accept_guards[%d]", i), "the plan does not show the guard %.200s; it shows %s",
				name, cmp.Or(strings.Join(slices.Sorted(maps.Keys(shown)), ", "), "none"))
		}
	}
	return wrong.Err()
}
