package failure

import (
	"strings"
)

const (
	ReasonGuard = "GUARD"
	// PlanStale and PlanExceeded mean that the run would do something else, or more, than its saved plan.
	ReasonPlanStale    = "PLAN_STALE"
	ReasonPlanExceeded = "PLAN_EXCEEDED"
	ReasonNotCovered   = "NOT_COVERED"
	ReasonNoIndex      = "NO_INDEX"
	ReasonNotUndoable  = "NOT_UNDOABLE"
	ReasonTrashFull    = "TRASH_FULL"
	ReasonOnHold       = "ON_HOLD"
)

// Refusal means that a run, task or call was refused before it changed anything.
type Refusal struct {
	Reason   string
	Metadata map[string]string
	Message  string
}

func (e *Refusal) Error() string { return e.Message }

func (*Refusal) Kind() Kind { return Precondition }

func (e *Refusal) Info() (reason string, metadata map[string]string) { return e.Reason, e.Metadata }

// StalePlan returns the error for a saved plan that is stale. changes are what has changed since it was made.
func StalePlan(changes ...string) *Refusal {
	changed := strings.Join(changes, "; ")
	return &Refusal{
		Reason:   ReasonPlanStale,
		Metadata: map[string]string{"changed": changed},
		Message:  "the plan no longer holds: " + changed + "; make a new dry run",
	}
}
