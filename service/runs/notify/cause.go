package notify

import (
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// Cause says what an event is about. The type and the id of the event end with it.
type Cause string

const (
	RunFailed      Cause = "run.failed"
	GuardRefused   Cause = "guard.refused"
	RowsRetained   Cause = "rows.retained"
	RunRecovered   Cause = "run.recovered"
	ScheduleMissed Cause = "schedule.missed"
	TestRequested  Cause = "test"
)

// Bounds say which runs are reported.
type Bounds struct {
	// Rows and Tables are the lowest numbers of retained ones that make an event; 0 means never.
	Rows, Tables int64
	// OnlyScheduled leaves out the runs that callers have started.
	OnlyScheduled bool
}

var DefaultBounds = Bounds{Rows: 1000, Tables: 1}

// occurrence is something to report about a run. It is about the whole run if it has no tasks.
type occurrence struct {
	cause Cause
	tasks []store.Result
}

// judge returns what has to be reported about a run. failedBefore are those of its tasks that failed when they were
// last executed before. A run that failed only because of guards is not reported as failed as well.
func judge(run *store.Run, failedBefore []string, bounds Bounds) (found []occurrence) {
	if bounds.OnlyScheduled && run.RequestedBy != store.RequestedBySchedule {
		return nil
	}
	var failed, refusals, retained, recovered []store.Result
	var rows, tables int64
	for _, r := range run.Results {
		switch {
		case r.State == cleanup.Failed && r.Reason == failure.ReasonGuard:
			refusals = append(refusals, r)
		case r.State == cleanup.Failed:
			failed = append(failed, r)
		}
		if r.RowsRetained > 0 || r.TablesRetained > 0 {
			retained = append(retained, r)
			rows += r.RowsRetained
			tables += r.TablesRetained
		}
	}
	for _, name := range failedBefore {
		if r := run.Result(name); r != nil {
			recovered = append(recovered, *r)
		}
	}
	guarded := len(refusals) > 0 || run.Cause == store.CauseGuarded // some guards refuse the whole run
	if run.State == store.Failed && (len(failed) > 0 || !guarded) {
		found = append(found, occurrence{RunFailed, failed})
	}
	if guarded {
		found = append(found, occurrence{GuardRefused, refusals})
	}
	if reaches(rows, bounds.Rows) || reaches(tables, bounds.Tables) {
		found = append(found, occurrence{RowsRetained, retained})
	}
	if run.State == store.Succeeded && len(recovered) > 0 {
		found = append(found, occurrence{RunRecovered, recovered})
	}
	return found
}

func reaches(n, bound int64) bool { return bound > 0 && n >= bound }
