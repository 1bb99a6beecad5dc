package worker

import (
	"testing"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// A run that another worker continues ends at a failed task, but not at a failed policy.
func TestClaimAfterAFailedTask(t *testing.T) {
	t.Parallel()
	for kind, ends := range map[plan.Kind]bool{plan.BuiltIn: true, plan.Policy: false, plan.External: true} {
		c := newClaim(&store.Claim{}, []store.ClaimedTask{
			{Name: "a", Kind: kind.String(), State: pipeline.Failed},
			{Name: "b", Kind: plan.Policy.String(), State: pipeline.Pending},
		})
		if c.failed != ends || !c.unmet["a"] || len(c.todo) != 1 {
			t.Errorf("%s: failed %t, want %t; unmet %v, to do %q", kind, c.failed, ends, c.unmet, c.todo)
		}
	}
}
