package refused

import (
	"strings"

	"github.com/cleanupd/cleanupd/internal/failure"
)

const (
	Guard = "GUARD"
	// The run would do something else, or more, than its saved plan.
	PlanStale    = "PLAN_STALE"
	PlanExceeded = "PLAN_EXCEEDED"
	NotCovered   = "NOT_COVERED"
	NoIndex      = "NO_INDEX"
)

// Nothing was changed.
type Error struct {
	Reason   string
	Metadata map[string]string
	Message  string
}

func (e *Error) Error() string { return e.Message }

func (*Error) Kind() failure.Kind { return failure.Precondition }

func (e *Error) Info() (reason string, metadata map[string]string) { return e.Reason, e.Metadata }

// changes is what has changed since the saved plan was made.
func StalePlan(changes ...string) *Error {
	changed := strings.Join(changes, "; ")
	return &Error{
		Reason:   PlanStale,
		Metadata: map[string]string{"changed": changed},
		Message:  "the plan does not hold any longer: " + changed,
	}
}
