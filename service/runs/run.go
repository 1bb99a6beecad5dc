package runs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

// State is the state of a run.
type State string

// States of a run.
const (
	Queued    State = "QUEUED"
	Running   State = "RUNNING"
	Succeeded State = "SUCCEEDED"
	Failed    State = "FAILED"
	Cancelled State = "CANCELLED"
)

// Active reports whether the run has not ended yet.
func (s State) Active() bool { return s == Queued || s == Running }

// Cause is the kind of reason for which a run did not succeed.
type Cause string

// Causes.
const (
	CauseCancelled   Cause = "CANCELLED"
	CauseNotCampaign Cause = "NOT_CAMPAIGN"
	CauseUnavailable Cause = "UNAVAILABLE"
	CauseInternal    Cause = "INTERNAL"
	// Those of a task that was refused have its reason.
	CausePlanStale    Cause = refused.PlanStale
	CausePlanExceeded Cause = refused.PlanExceeded
	CauseGuarded      Cause = refused.Guard
)

// Run is one execution of the pipeline.
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
	Plan          string     `json:"Plan"` // the dry run that it does; empty: none
	// values that a dry run supposes to be stored, by the options' names; nil: none
	WhatIf       map[string]int `json:"WhatIf"`
	Accepted     []guard.Trip   `json:"Accepted,omitempty"` // the guards that it may pass
	LastSequence int64          `json:"-"`
	Results      []Result       `json:"Results"`
}

// Result is the account of one task.
type Result struct {
	Task          string         `json:"Task"`
	State         pipeline.State `json:"State"`
	RowsDeleted   int64          `json:"RowsDeleted"`
	RowsUpdated   int64          `json:"RowsUpdated"`
	TablesDropped int64          `json:"TablesDropped"`
	Batches       int64          `json:"Batches"`
	StartTime     *time.Time     `json:"StartTime"`
	EndTime       *time.Time     `json:"EndTime"`
	Error         string         `json:"Error"`
	Space         []Space        `json:"Space,omitempty"`
	// RemoteDeliveriesLeft is how many deliveries stay on mid-sourcing servers that no database is configured for.
	RemoteDeliveriesLeft int64 `json:"RemoteDeliveriesLeft,omitempty"`
	// RowsRefused is how many obsolete rows refused with an error, and RowsLeft how many stay for whatever reason; but
	// for those of TablesLeft tables that could not be done to their end.
	RowsRefused int64 `json:"RowsRefused,omitempty"`
	RowsLeft    int64 `json:"RowsLeft,omitempty"`
	TablesLeft  int64 `json:"TablesLeft,omitempty"`
	// RowsHeld is how many stay since they are held.
	RowsHeld int64 `json:"RowsHeld,omitempty"`
	// Detail says in words what the task left, or why it was not run; empty: neither.
	Detail string `json:"Detail,omitempty"`
	// Reason is why the task was refused, for programs, with Metadata; empty: it was not.
	Reason   string            `json:"Reason,omitempty"`
	Metadata map[string]string `json:"Metadata,omitempty"`
	// Preview is what a dry run foresees, table by table.
	Preview []preview.Table `json:"Preview,omitempty"`
}

// Result is the account of the task of this name; nil when there is none.
func (r *Run) Result(task string) *Result {
	i := slices.IndexFunc(r.Results, func(t Result) bool { return t.Task == task })
	if i < 0 {
		return nil
	}
	return &r.Results[i]
}

// FailedTask is the name of the first task that failed, or was stopped with the run; empty when there is none.
func (r *Run) FailedTask() string {
	for _, t := range r.Results {
		if t.State == pipeline.Failed || t.State == pipeline.Cancelled {
			return t.Task
		}
	}
	return ""
}

// Reason is why the run was refused, for programs; empty: it was not.
func (r *Run) Reason() string {
	switch r.Cause {
	case CausePlanStale, CausePlanExceeded, CauseGuarded:
		return string(r.Cause)
	}
	return ""
}

// refusal is why a task of the run was refused; empty: none was.
func (r *Run) refusal() Cause {
	for _, t := range r.Results {
		if t.Reason != "" {
			return Cause(t.Reason)
		}
	}
	return ""
}

// failures are why tasks failed, a line each; empty when none did.
func (r *Run) failures() string {
	var lines []string
	for _, t := range r.Results {
		if t.State == pipeline.Failed {
			lines = append(lines, fmt.Sprintf("task %s failed: %s", t.Task, t.Error))
		}
	}
	return strings.Join(lines, "\n")
}

// Request says what to run.
type Request struct {
	Tasks           []string // empty: all
	SkipTasks       []string
	DryRun          bool
	ContinueOnError bool
	MaxDuration     time.Duration // 0: no limit
	RequestedBy     string
	ByViewer        bool           // the caller may only request dry runs
	Plan            string         // the id of a dry run that is done, in place of tasks; empty: none
	WhatIf          map[string]int // as in Run
	Accepted        []guard.Trip   // the guards that the run of a plan may pass, with the numbers that were accepted
}

// besidePlan are the fields that contradict a plan.
func (r Request) besidePlan() (wrong InvalidError) {
	for field, given := range map[string]bool{
		"tasks":      len(r.Tasks) > 0,
		"skip_tasks": len(r.SkipTasks) > 0,
		"dry_run":    r.DryRun,
	} {
		if given && r.Plan != "" {
			wrong.Add(field, "must not be given beside a plan, which has its tasks")
		}
	}
	slices.SortFunc(wrong, func(a, b Violation) int { return strings.Compare(a.Field, b.Field) })
	return wrong
}

// longest is the greatest time limit of a run: 100 years of 365 days.
const longest = 36_500 * 24 * time.Hour

// outOfRange is what is wrong with the time limit of a run, which the database keeps in microseconds; empty: nothing.
func outOfRange(limit time.Duration) string {
	if limit == 0 || (time.Microsecond <= limit && limit <= longest) {
		return ""
	}
	return "must be from a microsecond to 36500 days"
}

// Violation is a problem of one field of a request.
type Violation = failure.Violation

// InvalidError lists everything that is wrong with a request.
type InvalidError = failure.Violations

// validate returns an InvalidError, or nil.
func (p Pipeline) validate(r Request) error {
	wrong := append(r.besidePlan(), r.wrongAccepted()...)
	if r.WhatIf != nil && !r.DryRun {
		wrong.Add("what_if", "is for dry runs")
	}
	valid := p.names()
	for _, list := range []struct {
		field string
		names []string
	}{{"tasks", r.Tasks}, {"skip_tasks", r.SkipTasks}} {
		if len(list.names) > len(valid) {
			wrong.Addf(list.field, "has %d names; there are %d tasks", len(list.names), len(valid))
			continue
		}
		for i, name := range list.names {
			if !slices.Contains(valid, name) {
				wrong.Addf(
					fmt.Sprintf("%s[%d]", list.field, i),
					"unknown task %.64q; the tasks are %s",
					name,
					strings.Join(valid, ", "),
				)
			} else if p.Outside[name].Disabled && !r.DryRun && list.field == "tasks" {
				wrong.Addf(
					fmt.Sprintf("%s[%d]", list.field, i),
					"the task %s is disabled: a dry run foresees what it would do",
					name,
				)
			}
		}
	}
	if problem := outOfRange(r.MaxDuration); problem != "" {
		wrong.Add("max_duration", problem)
	}
	if wrong == nil && len(p.chosen(r)) == 0 {
		wrong.Add("skip_tasks", "leaves no task to run")
	}
	return wrong.Err()
}

// ErrNotFound says that there is no such run.
var ErrNotFound = failure.New(failure.NotFound, "no such run")

// ErrNoTask says that there is no task of a name.
var ErrNoTask = failure.New(failure.NotFound, "no such task")

// ErrTooManyDryRuns says that no more dry runs may be active.
var ErrTooManyDryRuns = failure.New(failure.Exhausted, "too many dry runs")

// tooManyDryRuns returns an ErrTooManyDryRuns with what a request waits for.
func tooManyDryRuns(req Request) error {
	if req.ByViewer {
		return fmt.Errorf(
			"%w: viewers may have one active, all together, and there is one; wait for it to end",
			ErrTooManyDryRuns,
		)
	}
	return fmt.Errorf("%w: two are active; wait for one to end", ErrTooManyDryRuns)
}

// RunActive is the reason of an ActiveError.
const RunActive = "RUN_ACTIVE"

// ActiveError says that another run is active.
type ActiveError struct{ RunID string }

func (e *ActiveError) Error() string { return fmt.Sprintf("run %s is active", e.RunID) }

// Kind implements failure.Kinded.
func (*ActiveError) Kind() failure.Kind { return failure.Conflict }

// Info implements failure.Informed.
func (e *ActiveError) Info() (reason string, metadata map[string]string) {
	return RunActive, map[string]string{"run_id": e.RunID}
}
