package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
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
	// WindowOpenTime is when the window opens for which the schedule has paused the run. It has passed if the run waits
	// for a run by hand in an open window. It is nil without such a pause.
	WindowOpenTime *time.Time `json:"-"`
	// WaitsFor is the id of the run by hand that has to end before this one continues; "" if none.
	WaitsFor string `json:"-"`
	// Interrupted means that the run is RUNNING, and that no replica has it.
	Interrupted bool `json:"-"`
	// PauseStopsClock means that the time limit does not count pauses.
	PauseStopsClock bool     `json:"PauseStopsClock,omitempty"`
	LastSequence    int64    `json:"-"`
	Results         []Result `json:"Results"`
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
	// fields below. It leaves out rows of the TablesRetained tables, whose sweep did not reach the end.
	RowsRetained   int64 `json:"RowsRetained,omitempty"`
	RowsFailed     int64 `json:"RowsFailed,omitempty"`
	RowsLocked     int64 `json:"RowsLocked,omitempty"`
	RowsSuppressed int64 `json:"RowsSuppressed,omitempty"`
	RowsDependent  int64 `json:"RowsDependent,omitempty"`
	RowsOnHold     int64 `json:"RowsOnHold,omitempty"`
	TablesRetained int64 `json:"TablesRetained,omitempty"`
	// Detail says what was retained, or why the task was not run; "" if neither applies. Details has the same messages
	// one by one.
	Detail  string            `json:"Detail,omitempty"`
	Details []message.Message `json:"Details,omitempty"`
	// Reason says for programs why the task was refused; "" if it was not. Metadata has the details.
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

// Reason returns the reason for programs if the run was refused, otherwise "".
func (r *Run) Reason() string {
	switch r.Cause {
	case CausePlanStale, CausePlanExceeded, CauseGuarded:
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
