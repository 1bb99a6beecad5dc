package pipeline

import (
	"errors"
	"fmt"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

type State string

const (
	Pending   State = "PENDING"
	Running   State = "RUNNING"
	Succeeded State = "SUCCEEDED"
	Skipped   State = "SKIPPED"
	Failed    State = "FAILED"
	NotRun    State = "NOT_RUN"
	Cancelled State = "CANCELLED"
)

type Outcome struct {
	State State
	// Problem is why the task failed; "" if it did not.
	Problem  string
	Retained purge.Retained
	// Details say what was retained, or why the task was not run.
	Details []message.Message
	// Reason and Metadata are those of a refused.Error; empty if the task was not refused. Trips are the guards that
	// refused it.
	Reason   string
	Metadata map[string]string
	Trips    []guard.Trip
	// Options are the effective options that the task reads, and Cutoffs the times that its rules compare with; nil if
	// the task did not begin.
	Options map[string]string
	Cutoffs map[string]guard.CutoffRecord
	// Preview is what a dry run found; nil in a run that deletes.
	Preview *preview.Task
}

func (o *Outcome) fail(problem string, err error) {
	o.State, o.Problem = Failed, problem
	if refusal := (*refused.Error)(nil); errors.As(err, &refusal) {
		o.Reason, o.Metadata = refusal.Reason, refusal.Metadata
	}
	if tripped := (*guard.TrippedError)(nil); errors.As(err, &tripped) {
		o.Trips = tripped.Trips
	}
}

func (o *Outcome) err(task string) error {
	text := fmt.Sprintf("task %s failed: %s", task, o.Problem)
	if o.Reason != "" {
		return &refused.Error{Reason: o.Reason, Metadata: o.Metadata, Message: text}
	}
	return errors.New(text)
}

func retainedDetails(r purge.Retained) (details []message.Message) {
	add := func(n int64, m message.Message) {
		if n > 0 {
			details = append(details, m)
		}
	}
	add(r.Failed, message.ResultFailed.With("rows", r.Failed))
	add(r.Locked, message.ResultLocked.With("rows", r.Locked))
	add(r.Suppressed, message.ResultSuppressed.With("rows", r.Suppressed))
	add(r.Dependent, message.ResultDependent.With("rows", r.Dependent))
	add(r.OnHold, message.ResultOnHold.With("rows", r.OnHold))
	add(r.Tables, message.ResultTables.With("tables", r.Tables))
	return details
}
