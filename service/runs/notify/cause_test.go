package notify

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

type (
	causes  = map[Cause][]string
	results = []store.Result
)

func TestJudge(t *testing.T) {
	t.Parallel()
	var (
		works    = store.Result{Task: "works", State: cleanup.Succeeded}
		fails    = store.Result{Task: "fails", State: cleanup.Failed, Error: "no"}
		stale    = store.Result{Task: "stale", State: cleanup.Failed, Reason: failure.ReasonPlanStale}
		guarded  = store.Result{Task: "guarded", State: cleanup.Failed, Reason: failure.ReasonGuard}
		retains  = store.Result{Task: "retains", State: cleanup.Succeeded, RowsRetained: 5}
		retains2 = store.Result{Task: "retains2", State: cleanup.Succeeded, RowsRetained: 6, TablesRetained: 2}
		held     = store.Result{Task: "held", State: cleanup.Succeeded, RowsOnHold: 1000}
	)
	for name, c := range map[string]struct {
		state   store.State
		results []store.Result
		before  []string
		bounds  Bounds
		want    map[Cause][]string
	}{
		"success":           {state: store.Succeeded, results: results{works}, bounds: Bounds{Rows: 1, Tables: 1}},
		"failed task":       {store.Failed, results{works, fails}, nil, Bounds{}, causes{RunFailed: {"fails"}}},
		"stale plan":        {store.Failed, results{stale}, nil, Bounds{}, causes{RunFailed: {"stale"}}},
		"by hand":           {state: store.Failed, bounds: Bounds{OnlyScheduled: true}},
		"scheduled":         {store.Failed, nil, nil, Bounds{OnlyScheduled: true}, causes{RunFailed: nil}},
		"failed as a whole": {store.Failed, nil, nil, Bounds{}, causes{RunFailed: nil}},
		"a guard alone":     {store.Failed, results{works, guarded}, nil, Bounds{}, causes{GuardRefused: {"guarded"}}},
		"a guard and another failure": {
			store.Failed,
			results{guarded, fails},
			nil,
			Bounds{},
			causes{RunFailed: {"fails"}, GuardRefused: {"guarded"}},
		},
		"a guard refuses all": {store.Failed, nil, nil, Bounds{}, causes{GuardRefused: nil}},
		"a cancelled run":     {state: store.Cancelled, results: results{works}, before: []string{"works"}},
		"a failure before a cancel": {store.Cancelled, results{guarded, fails}, nil, Bounds{}, causes{GuardRefused: {
			"guarded",
		}}},
		"rows below the bound": {state: store.Succeeded, results: results{retains, retains2}, bounds: Bounds{Rows: 12}},
		"rows at the bound": {
			store.Succeeded,
			results{works, retains, retains2},
			nil,
			Bounds{Rows: 11},
			causes{RowsRetained: {"retains", "retains2"}},
		},
		"tables at the bound": {store.Succeeded, results{retains2}, nil, Bounds{Tables: 2}, causes{RowsRetained: {
			"retains2",
		}}},
		"no bounds":    {state: store.Succeeded, results: results{retains2}},
		"rows on hold": {state: store.Succeeded, results: results{held}, bounds: Bounds{Rows: 1, Tables: 1}},
		"retained and failed": {
			store.Failed,
			results{retains, fails},
			nil,
			Bounds{Rows: 1},
			causes{RunFailed: {"fails"}, RowsRetained: {"retains"}},
		},
		"success after a failure": {store.Succeeded, results{
			works, retains,
		}, []string{"works"}, Bounds{}, causes{RunRecovered: {"works"}}},
		"another failure": {store.Failed, results{works, fails}, []string{"works"}, Bounds{}, causes{RunFailed: {
			"fails",
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := causes{}
			run := &store.Run{State: c.state, Results: c.results}
			if strings.HasPrefix(name, "a guard") {
				run.Cause = store.CauseGuarded
			}
			if name == "scheduled" {
				run.RequestedBy = store.RequestedBySchedule
			}
			for _, o := range judge(run, c.before, c.bounds) {
				var tasks []string
				for _, r := range o.tasks {
					tasks = append(tasks, r.Task)
				}
				got[o.cause] = tasks
			}
			if len(got) != len(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			for cause, tasks := range c.want {
				if have, ok := got[cause]; !ok || !slices.Equal(have, tasks) {
					t.Errorf("%s: got %v, want %v", cause, got, c.want)
				}
			}
		})
	}
}

// The pause doubles with each attempt, up to half an hour, however many attempts there were.
func TestBackoff(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int]time.Duration{
		1:    10 * time.Second,
		2:    20 * time.Second,
		5:    160 * time.Second,
		8:    1280 * time.Second,
		9:    30 * time.Minute,
		1000: 30 * time.Minute,
	} {
		if got := backoff(attempts); got != want {
			t.Errorf("after %d attempts: got %v, want %v", attempts, got, want)
		}
	}
}
