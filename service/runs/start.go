package runs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

var ErrNoTasks = failure.New(
	failure.Precondition,
	"there is nothing to run: no policy is set (cleanupd tables --suggest prints some); if this is a database of Adobe "+
		"Campaign, check its name, --profile, and that the role may use the schema that holds NmsDelivery",
)

var ErrTooManyDryRuns = failure.New(failure.Exhausted, "too many dry runs")

type Request struct {
	Tasks           []string // empty for all that are enabled
	SkipTasks       []string
	DryRun          bool
	ContinueOnError bool
	MaxDuration     time.Duration  // 0 for no limit
	PauseStopsClock bool           `json:",omitempty"` // whether MaxDuration leaves out pauses
	Pace            pace.Pace      `json:",omitempty"` // "" for the default of the service
	Undo            *time.Duration `json:",omitempty"` // nil for the default of the service
	RequestedBy     string
	ByViewer        bool           // the caller may only request dry runs
	Plan            string         // the id of a dry run to follow, instead of Tasks; "" for none
	WhatIf          map[string]int // as in store.Run
	Accepted        []guard.Trip   // the guards that the run of a plan may pass, with the numbers that were accepted
	// ID makes the request idempotent for 24 hours: a repeated request returns the run of the first one. With uuid.Nil
	// each request starts a run.
	ID uuid.UUID `json:"-"`
}

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
	digest, err := req.digest() // of the original request: insert replaces its tasks by those of the plan
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

// validate fails with failure.Violations.
func (r Request) validate(list TaskList) error {
	wrong := append(r.contradictsPlan(), r.wrongAccepted()...)
	if r.WhatIf != nil && !r.DryRun {
		wrong.Add("what_if", "is for dry runs")
	}
	valid := list.Names()
	for _, given := range []struct {
		field string
		names []string
	}{{"tasks", r.Tasks}, {"skip_tasks", r.SkipTasks}} {
		if len(given.names) > len(valid)+1 {
			wrong.Addf(given.field, "has %d names; there are %d tasks", len(given.names), len(valid))
			continue
		}
		for i, name := range given.names {
			field := fmt.Sprintf("%s[%d]", given.field, i)
			if given.field == "skip_tasks" && name == policy.All {
				continue
			}
			if !slices.Contains(valid, name) {
				wrong.Addf(field, "%s; the tasks are %s", list.Unknown(name), strings.Join(valid, ", "))
			} else if list.Disabled(name) && !r.DryRun && given.field == "tasks" {
				wrong.Addf(field, "the task %s is disabled: a dry run foresees what it would do", name)
			}
		}
	}
	if problem := schedule.TimeLimitProblem(r.MaxDuration); problem != "" {
		wrong.Add("max_duration", problem)
	}
	if problem := trash.KeepProblem(r.Undo); problem != "" {
		wrong.Add("undo", problem)
	}
	if wrong == nil && len(list.Choose(r.Tasks, r.SkipTasks)) == 0 {
		wrong.Add("skip_tasks", "leaves no task to run")
	}
	return wrong.Err()
}

func (r Request) contradictsPlan() (wrong failure.Violations) {
	for field, given := range map[string]bool{
		"tasks":      len(r.Tasks) > 0,
		"skip_tasks": len(r.SkipTasks) > 0,
		"dry_run":    r.DryRun,
	} {
		if given && r.Plan != "" {
			wrong.Add(field, "must not be given with a plan, which has its own tasks")
		}
	}
	slices.SortFunc(wrong, func(a, b failure.Violation) int { return strings.Compare(a.Field, b.Field) })
	return wrong
}

var acceptable = []guard.Name{guard.Share, guard.Cutoff, guard.Growth, guard.Tables, guard.Bytes}

func (r Request) wrongAccepted() (wrong failure.Violations) {
	if len(r.Accepted) > 0 && r.Plan == "" {
		wrong.Add("accept_guards", "is for the run of a plan, whose preview shows the numbers")
	}
	for i, a := range r.Accepted {
		field := fmt.Sprintf("accept_guards[%d].", i)
		switch {
		case a.Guard == guard.Clock || a.Guard == guard.First || a.Guard == guard.Idle:
			wrong.Addf(field+"guard", "%s cannot be accepted, only set", a.Guard)
		case a.Guard == guard.Policy:
			wrong.Add(field+"guard", "need not be accepted: a run that follows a saved plan passes it")
		case !slices.Contains(acceptable, a.Guard):
			wrong.Addf(field+"guard", "is missing or unknown; the guards that can be accepted are %v", acceptable)
		case a.Table == "":
			wrong.Add(field+"table", "is missing: the table as the preview shows it")
		case a.Number < 0:
			wrong.Add(field+"number", "must not be negative")
		}
	}
	return wrong
}

// digest returns a digest of everything but the id, or nil if the request has no id.
func (r Request) digest() ([]byte, error) {
	if r.ID == uuid.Nil {
		return nil, nil
	}
	text, err := json.Marshal(r)
	sum := sha256.Sum256(text)
	return sum[:], err
}

// findRequested returns nil if no earlier call used this request id.
func findRequested(ctx context.Context, db campaign.Querier, id uuid.UUID, digest []byte) (*store.Run, error) {
	if id == uuid.Nil {
		return nil, nil
	}
	return store.FindRequested(ctx, db, id, digest)
}

// insert returns nil if the slots are taken, or if another call has stored the same request.
func (m *Manager) insert(
	ctx context.Context, tx pgx.Tx, list TaskList, req Request, digest []byte,
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
		KeepAsPlanned:   req.Undo == nil,
		WhatIf:          req.WhatIf,
		Accepted:        req.Accepted,
		Pipeline:        m.withUndo(list.Tasks, req.Undo, nil),
		Chosen:          list.Choose(req.Tasks, req.SkipTasks),
		RequestID:       req.ID,
		RequestDigest:   digest,
	})
	if err != nil || run == nil {
		return nil, err
	}
	details := audit.Details{
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
	}
	if req.Undo != nil {
		details["undo_seconds"] = req.Undo.Seconds()
	}
	return run, audit.Note(ctx, tx, details)
}

// checkPlan returns the dry run that the request names as its plan. It fails with store.ErrNotFound,
// failure.Violations, a failure.FieldError, or a failure.Refusal if the plan is stale.
func (m *Manager) checkPlan(ctx context.Context, tx pgx.Tx, list TaskList, req Request) (*store.Run, error) {
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

// checkShown fails with failure.Violations if a guard was accepted that the plan's preview does not show. It quotes the
// names of tables as the preview does.
func checkShown(accepted []guard.Trip, found map[string]cleanup.SavedTask) error {
	shown := map[string]bool{}
	for _, task := range found {
		for _, table := range task.Tables {
			for _, trip := range table.Guards {
				shown[fmt.Sprintf("%s of %s", trip.Guard, trip.Table)] = true
				for i, a := range accepted {
					schema, name, quoted := campaign.SplitQuoted(trip.Table)
					if quoted && a.Guard == trip.Guard && a.Table == schema+"."+name {
						accepted[i].Table = trip.Table
					}
				}
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

func (r Request) slots() []int16 {
	switch {
	case !r.DryRun:
		return store.DeletingSlots
	case r.ByViewer:
		return store.ViewerRunSlots
	}
	return store.DryRunSlots
}

func tooManyDryRuns(req Request) error {
	if req.ByViewer {
		return fmt.Errorf("%w: viewers may have one active, all together, and there is one; wait for it to end",
			ErrTooManyDryRuns)
	}
	return fmt.Errorf("%w: two are active; wait for one to end", ErrTooManyDryRuns)
}

// Follow lets a replica with Config.OnlyFollowed execute the run. Other replicas need not call it.
func (m *Manager) Follow(run string) {
	id, err := uuid.Parse(run)
	if err != nil || !m.config.OnlyFollowed {
		return
	}
	m.mu.Lock()
	m.followed = append(m.followed, id)
	m.mu.Unlock()
	m.wakeWorker()
}
