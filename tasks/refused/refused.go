package refused

import (
	"strings"

	"github.com/cleanupd/cleanupd/internal/failure"
)

const (
	Guard = "GUARD"
	// PlanStale and PlanExceeded mean that the run would do something else, or more, than its saved plan.
	PlanStale    = "PLAN_STALE"
	PlanExceeded = "PLAN_EXCEEDED"
	NotCovered   = "NOT_COVERED"
	NoIndex      = "NO_INDEX"
)

// Error is a refusal. Nothing was changed.
type Error struct {
	Reason   string
	Metadata map[string]string
	Message  string
}

func (e *Error) Error() string { return e.Message }

func (*Error) Kind() failure.Kind { return failure.Precondition }

func (e *Error) Info() (reason string, metadata map[string]string) { return e.Reason, e.Metadata }

// StalePlan returns the error for a saved plan that is stale. changes are what has changed since it was made.
func StalePlan(changes ...string) *Error {
	changed := strings.Join(changes, "; ")
	return &Error{
		Reason:   PlanStale,
		Metadata: map[string]string{"changed": changed},
		Message:  "the plan does not hold any longer: " + changed,
	}
}
