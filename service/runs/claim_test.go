package runs

import (
	"testing"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// A run that another worker continues ends at a failed task, but not at a failed policy.
func TestClaimAfterAFailedTask(t *testing.T) {
	t.Parallel()
	for kind, ends := range map[rules.Kind]bool{rules.BuiltIn: true, rules.Policy: false, rules.External: true} {
		c := newClaim(&store.Claim{}, []store.ClaimedTask{
			{Name: "a", Kind: kind.String(), State: cleanup.Failed},
			{Name: "b", Kind: rules.Policy.String(), State: cleanup.Pending},
		})
		if c.failed != ends || !c.unmet["a"] || len(c.todo) != 1 {
			t.Errorf("%s: failed %t, want %t; unmet %v, to do %q", kind, c.failed, ends, c.unmet, c.todo)
		}
	}
}
