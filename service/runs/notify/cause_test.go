package notify

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	var (
		works    = store.Result{Task: "works", State: pipeline.Succeeded}
		fails    = store.Result{Task: "fails", State: pipeline.Failed, Error: "no"}
		stale    = store.Result{Task: "stale", State: pipeline.Failed, Reason: refused.PlanStale}
		guarded  = store.Result{Task: "guarded", State: pipeline.Failed, Reason: refused.Guard}
		retains  = store.Result{Task: "retains", State: pipeline.Succeeded, RowsLeft: 5}
		retains2 = store.Result{Task: "retains2", State: pipeline.Succeeded, RowsLeft: 6, TablesLeft: 2}
		held     = store.Result{Task: "held", State: pipeline.Succeeded, RowsHeld: 1000}
	)
	for name, c := range map[string]struct {
		state   store.State
		results []store.Result
		before  []string
		bounds  Bounds
		want    map[Cause][]string
	}{
		"success":           {state: store.Succeeded, results: []store.Result{works}, bounds: Bounds{1, 1}},
		"failed task":       {store.Failed, []store.Result{works, fails}, nil, Bounds{}, map[Cause][]string{RunFailed: {"fails"}}},
		"stale plan":        {store.Failed, []store.Result{stale}, nil, Bounds{}, map[Cause][]string{RunFailed: {"stale"}}},
		"failed as a whole": {store.Failed, nil, nil, Bounds{}, map[Cause][]string{RunFailed: nil}},
		"a guard alone":     {store.Failed, []store.Result{works, guarded}, nil, Bounds{}, map[Cause][]string{GuardRefused: {"guarded"}}},
		"a guard and another failure": {
			store.Failed,
			[]store.Result{guarded, fails},
			nil,
			Bounds{},
			map[Cause][]string{RunFailed: {"fails"}, GuardRefused: {"guarded"}},
		},
		"a guard refuses all":       {store.Failed, nil, nil, Bounds{}, map[Cause][]string{GuardRefused: nil}},
		"a cancelled run":           {state: store.Cancelled, results: []store.Result{works}, before: []string{"works"}},
		"a failure before a cancel": {store.Cancelled, []store.Result{guarded, fails}, nil, Bounds{}, map[Cause][]string{GuardRefused: {"guarded"}}},
		"rows below the bound":      {state: store.Succeeded, results: []store.Result{retains, retains2}, bounds: Bounds{Rows: 12}},
		"rows at the bound": {
			store.Succeeded,
			[]store.Result{works, retains, retains2},
			nil,
			Bounds{Rows: 11},
			map[Cause][]string{RowsRetained: {"retains", "retains2"}},
		},
		"tables at the bound": {store.Succeeded, []store.Result{retains2}, nil, Bounds{Tables: 2}, map[Cause][]string{RowsRetained: {"retains2"}}},
		"no bounds":           {state: store.Succeeded, results: []store.Result{retains2}},
		"rows on hold":        {state: store.Succeeded, results: []store.Result{held}, bounds: Bounds{1, 1}},
		"retained and failed": {
			store.Failed,
			[]store.Result{retains, fails},
			nil,
			Bounds{Rows: 1},
			map[Cause][]string{RunFailed: {"fails"}, RowsRetained: {"retains"}},
		},
		"success after a failure": {store.Succeeded, []store.Result{works, retains}, []string{"works"}, Bounds{}, map[Cause][]string{RunRecovered: {"works"}}},
		"another failure":         {store.Failed, []store.Result{works, fails}, []string{"works"}, Bounds{}, map[Cause][]string{RunFailed: {"fails"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[Cause][]string{}
			run := &store.Run{State: c.state, Results: c.results}
			if strings.HasPrefix(name, "a guard") {
				run.Cause = store.CauseGuarded
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
