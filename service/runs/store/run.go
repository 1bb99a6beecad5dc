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

var ErrNotFound = failure.New(failure.NotFound, "no such run")

// ParseID fails with ErrNotFound for any text but a UUID.
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

// Active runs have not ended.
func (s State) Active() bool { return s == Queued || s == Running || s == Paused }

// SQL for State.Active.
const active = "state IN ('QUEUED', 'RUNNING', 'PAUSED')"

// Why a run did not succeed. A run whose task was refused has the task's reason.
type Cause string

const (
	CauseCancelled    Cause = "CANCELLED"
	CauseNotCampaign  Cause = "NOT_CAMPAIGN"
	CauseUnavailable  Cause = "UNAVAILABLE"
	CauseInternal     Cause = "INTERNAL"
	CausePlanStale    Cause = refused.PlanStale
	CausePlanExceeded Cause = refused.PlanExceeded
	CauseGuarded      Cause = refused.Guard
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
	// The dry run that it follows; "": none.
	Plan string `json:"Plan"`
	// Options that a dry run replaces, by name; nil: none.
	WhatIf map[string]int `json:"WhatIf"`
	// Guards that do not refuse it.
	Accepted []guard.Trip `json:"Accepted,omitempty"`
	Pace     pace.Pace    `json:"Pace,omitempty"`
	// Since when the run is paused, and by whom; nil: it is not.
	PauseTime *time.Time `json:"PauseTime,omitempty"`
	PausedBy  string     `json:"PausedBy,omitempty"`
	// The time limit does not count pauses.
	PauseStopsClock bool     `json:"PauseStopsClock,omitempty"`
	LastSequence    int64    `json:"-"`
	Results         []Result `json:"Results"`
}

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
	// Deliveries that remain on mid-sourcing servers that no database is configured for.
	RemoteDeliveriesRetained int64 `json:"RemoteDeliveriesRetained,omitempty"`
	// RowsRetained are the obsolete rows that were retained for any reason except a hold: the sum of the four below. Rows
	// of the TablesRetained tables whose sweep did not reach the end are not in it.
	RowsRetained   int64 `json:"RowsRetained,omitempty"`
	RowsFailed     int64 `json:"RowsFailed,omitempty"`
	RowsLocked     int64 `json:"RowsLocked,omitempty"`
	RowsSuppressed int64 `json:"RowsSuppressed,omitempty"`
	RowsDependent  int64 `json:"RowsDependent,omitempty"`
	RowsOnHold     int64 `json:"RowsOnHold,omitempty"`
	TablesRetained int64 `json:"TablesRetained,omitempty"`
	// What was retained, or why the task was not run; "" if neither. Details are the messages in it.
	Detail  string            `json:"Detail,omitempty"`
	Details []message.Message `json:"Details,omitempty"`
	// Why the task was refused, for programs, with Metadata; "" if it was not.
	Reason   string            `json:"Reason,omitempty"`
	Metadata map[string]string `json:"Metadata,omitempty"`
	Preview  []preview.Table   `json:"Preview,omitempty"`
}

func (r *Run) UUID() uuid.UUID { return uuid.MustParse(r.ID) }

// nil: no such task.
func (r *Run) Result(task string) *Result {
	i := slices.IndexFunc(r.Results, func(t Result) bool { return t.Task == task })
	if i < 0 {
		return nil
	}
	return &r.Results[i]
}

// FailedTask returns the first task that failed, or else one that was stopped, or "".
func (r *Run) FailedTask() string {
	for _, state := range []pipeline.State{pipeline.Failed, pipeline.Cancelled} {
		if i := slices.IndexFunc(r.Results, func(t Result) bool { return t.State == state }); i >= 0 {
			return r.Results[i].Task
		}
	}
	return ""
}

// Reason is for programs; "" if the run was not refused.
func (r *Run) Reason() string {
	switch r.Cause {
	case CausePlanStale, CausePlanExceeded, CauseGuarded:
		return string(r.Cause)
	}
	return ""
}

// "": no task was refused.
func (r *Run) RefusedTask() Cause {
	for _, t := range r.Results {
		if t.Reason != "" {
			return Cause(t.Reason)
		}
	}
	return ""
}

// One line per failed task.
func (r *Run) Failures() string {
	var lines []string
	for _, t := range r.Results {
		if t.State == pipeline.Failed {
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
