package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

// ErrNotFound reports that a run does not exist.
var ErrNotFound = failure.New(failure.NotFound, "no such run")

// ParseID returns the id of a run. It fails with ErrNotFound for any other text than a UUID.
func ParseID(id string) (uuid.UUID, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return uuid.Nil, ErrNotFound
	}
	return parsed, nil
}

// State is the state of a run.
type State string

// States of a run.
const (
	Queued    State = "QUEUED"
	Running   State = "RUNNING"
	Paused    State = "PAUSED"
	Succeeded State = "SUCCEEDED"
	Failed    State = "FAILED"
	Cancelled State = "CANCELLED"
)

// Active reports whether the run has not ended yet.
func (s State) Active() bool { return s == Queued || s == Running || s == Paused }

// active is the SQL condition that a run has not ended yet.
const active = "state IN ('QUEUED', 'RUNNING', 'PAUSED')"

// Cause is the kind of reason why a run did not succeed.
type Cause string

// Causes. A run whose task was refused has the task's reason.
const (
	CauseCancelled    Cause = "CANCELLED"
	CauseNotCampaign  Cause = "NOT_CAMPAIGN"
	CauseUnavailable  Cause = "UNAVAILABLE"
	CauseInternal     Cause = "INTERNAL"
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
	// Plan is the id of the dry run that it follows; "" for none.
	Plan string `json:"Plan"`
	// WhatIf has options that a dry run replaces, by name; nil if there are none.
	WhatIf map[string]int `json:"WhatIf"`
	// Accepted are the guards that do not refuse it.
	Accepted []guard.Trip `json:"Accepted,omitempty"`
	Pace     pace.Pace    `json:"Pace,omitempty"`
	// PauseTime is since when the run is paused, nil if it is not, and PausedBy who paused it.
	PauseTime *time.Time `json:"PauseTime,omitempty"`
	PausedBy  string     `json:"PausedBy,omitempty"`
	// PauseStopsClock says that the time limit does not count pauses.
	PauseStopsClock bool     `json:"PauseStopsClock,omitempty"`
	LastSequence    int64    `json:"-"`
	Results         []Result `json:"Results"`
}

// Result has the exact counts of one task.
type Result struct {
	Task          string         `json:"Task"`
	State         pipeline.State `json:"State"`
	RowsDeleted   int64          `json:"RowsDeleted"`
	RowsUpdated   int64          `json:"RowsUpdated"`
	RowsCascaded  int64          `json:"RowsCascaded,omitempty"`
	TablesDropped int64          `json:"TablesDropped"`
	Batches       int64          `json:"Batches"`
	StartTime     *time.Time     `json:"StartTime"`
	EndTime       *time.Time     `json:"EndTime"`
	Error         string         `json:"Error"`
	Space         []Space        `json:"Space,omitempty"`
	// RemoteDeliveriesRetained is how many deliveries remain on mid-sourcing servers that no database is configured for.
	RemoteDeliveriesRetained int64 `json:"RemoteDeliveriesRetained,omitempty"`
	// RowsRetained is how many obsolete rows were retained for any reason except a hold: the sum of the four below. They
	// are without the rows of TablesRetained tables whose sweep did not reach the end.
	RowsRetained   int64 `json:"RowsRetained,omitempty"`
	RowsFailed     int64 `json:"RowsFailed,omitempty"`
	RowsLocked     int64 `json:"RowsLocked,omitempty"`
	RowsSuppressed int64 `json:"RowsSuppressed,omitempty"`
	RowsDependent  int64 `json:"RowsDependent,omitempty"`
	RowsOnHold     int64 `json:"RowsOnHold,omitempty"`
	TablesRetained int64 `json:"TablesRetained,omitempty"`
	// Detail describes what was retained, or why the task was not run; "" if there is neither. Details are the messages
	// in it.
	Detail  string            `json:"Detail,omitempty"`
	Details []message.Message `json:"Details,omitempty"`
	// Reason is why the task was refused, for programs, with Metadata; "" if it was not.
	Reason   string            `json:"Reason,omitempty"`
	Metadata map[string]string `json:"Metadata,omitempty"`
	// Preview has what a dry run has found, table by table.
	Preview []preview.Table `json:"Preview,omitempty"`
}

// UUID returns the id of a run that was read.
func (r *Run) UUID() uuid.UUID { return uuid.MustParse(r.ID) }

// Result returns the result of the task with this name, or nil.
func (r *Run) Result(task string) *Result {
	i := slices.IndexFunc(r.Results, func(t Result) bool { return t.Task == task })
	if i < 0 {
		return nil
	}
	return &r.Results[i]
}

// FailedTask returns the name of the first task that failed, or else of one that was stopped, or "".
func (r *Run) FailedTask() string {
	for _, state := range []pipeline.State{pipeline.Failed, pipeline.Cancelled} {
		if i := slices.IndexFunc(r.Results, func(t Result) bool { return t.State == state }); i >= 0 {
			return r.Results[i].Task
		}
	}
	return ""
}

// Reason returns why the run was refused, for programs; "" if it was not.
func (r *Run) Reason() string {
	switch r.Cause {
	case CausePlanStale, CausePlanExceeded, CauseGuarded:
		return string(r.Cause)
	}
	return ""
}

// RefusedTask returns the reason of the first task that was refused, or "".
func (r *Run) RefusedTask() Cause {
	for _, t := range r.Results {
		if t.Reason != "" {
			return Cause(t.Reason)
		}
	}
	return ""
}

// Failures returns why tasks failed, a line each.
func (r *Run) Failures() string {
	var lines []string
	for _, t := range r.Results {
		if t.State == pipeline.Failed {
			lines = append(lines, fmt.Sprintf("task %s failed: %s", t.Task, t.Error))
		}
	}
	return strings.Join(lines, "\n")
}

// Started returns the names of the tasks that were started.
func (r *Run) Started() (names []string) {
	for _, t := range r.Results {
		if t.StartTime != nil {
			names = append(names, t.Task)
		}
	}
	return names
}
