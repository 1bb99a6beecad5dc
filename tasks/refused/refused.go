package refused

import (
	"strings"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// Reasons of an Error.
const (
	// Guard is the reason of a task that a guard refused.
	Guard = "GUARD"
	// PlanStale and PlanExceeded are the reasons of a run that would do something else, or more, than its saved plan.
	PlanStale    = "PLAN_STALE"
	PlanExceeded = "PLAN_EXCEEDED"
	// NotCovered and NoIndex are the reasons for which a row is not explained.
	NotCovered = "NOT_COVERED"
	NoIndex    = "NO_INDEX"
)

// Error is a refusal. Nothing was changed.
type Error struct {
	// Reason is one of the constants of this package.
	Reason string
	// Metadata has details for programs, by their names.
	Metadata map[string]string
	Message  string
}

func (e *Error) Error() string { return e.Message }

// Kind implements failure.Kinded.
func (*Error) Kind() failure.Kind { return failure.Precondition }

// Info implements failure.Informed.
func (e *Error) Info() (reason string, metadata map[string]string) { return e.Reason, e.Metadata }

// StalePlan returns the refusal of a saved plan, with what has changed since it was made.
func StalePlan(changes ...string) *Error {
	changed := strings.Join(changes, "; ")
	return &Error{
		Reason:   PlanStale,
		Metadata: map[string]string{"changed": changed},
		Message:  "the plan does not hold any longer: " + changed,
	}
}
