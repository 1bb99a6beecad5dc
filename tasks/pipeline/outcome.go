package pipeline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

// State is the state of a task in a run.
type State string

// States of a task.
const (
	Pending   State = "PENDING"
	Running   State = "RUNNING"
	Succeeded State = "SUCCEEDED"
	Skipped   State = "SKIPPED"
	Failed    State = "FAILED"
	NotRun    State = "NOT_RUN"
	Cancelled State = "CANCELLED"
)

// Outcome is how a task ended.
type Outcome struct {
	State State
	// Problem is why it failed; "" if it did not.
	Problem string
	// Retained is how many obsolete rows were not deleted.
	Retained purge.Retained
	// Detail describes what was retained, or why the task was not run; "" if there is neither.
	Detail string
	// Reason and Metadata come from a refused.Error; "" if the task was not refused. Trips are the guards that refused
	// it.
	Reason   string
	Metadata map[string]string
	Trips    []guard.Trip
	// Options are the effective options that the task reads, and Cutoffs what its rules compare with; nil if the task
	// was not begun.
	Options map[string]string
	Cutoffs map[string]guard.CutoffRecord
	// Preview is what a dry run has found; nil in a run that deletes.
	Preview *preview.Task
}

// fail makes the outcome that of a task that failed.
func (o *Outcome) fail(problem string, err error) {
	o.State, o.Problem = Failed, problem
	if refusal := (*refused.Error)(nil); errors.As(err, &refusal) {
		o.Reason, o.Metadata = refusal.Reason, refusal.Metadata
	}
	if tripped := (*guard.TrippedError)(nil); errors.As(err, &tripped) {
		o.Trips = tripped.Trips
	}
}

// err returns the error of a task that failed.
func (o *Outcome) err(task string) error {
	text := fmt.Sprintf("task %s failed: %s", task, o.Problem)
	if o.Reason != "" {
		return &refused.Error{Reason: o.Reason, Metadata: o.Metadata, Message: text}
	}
	return errors.New(text)
}

// retainedDetail describes what a task retained; "" if it retained nothing.
func retainedDetail(r purge.Retained) string {
	var parts []string
	for _, p := range []struct {
		n         int64
		one, many string
	}{
		{r.Failed, "row failed with an error", "rows failed with an error"},
		{r.Locked, "row was locked by others", "rows were locked by others"},
		{r.Suppressed, "row is kept by a trigger or rule", "rows are kept by a trigger or rule"},
		{r.Dependent, "row is bound to retained rows", "rows are bound to retained rows"},
		{r.OnHold, "row is on hold", "rows are on hold"},
		{r.Tables, "table could not be finished", "tables could not be finished"},
	} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.one)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.many))
		}
	}
	if parts == nil {
		return ""
	}
	return "obsolete rows retained: " + strings.Join(parts, ", ")
}

// vacuumDetail describes on how many tables VACUUM or ANALYZE failed; "" if on none.
func vacuumDetail(tables int64) string {
	switch tables {
	case 0:
		return ""
	case 1:
		return "VACUUM or ANALYZE failed on 1 table"
	}
	return fmt.Sprintf("VACUUM or ANALYZE failed on %d tables", tables)
}
