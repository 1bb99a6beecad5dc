package cleanup_test

import (
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	base := func() cleanup.Basis {
		return cleanup.Basis{Version: "1", Options: map[string]string{"delay": "1"}, Holds: []string{"a"}}
	}
	for name, c := range map[string]struct {
		change func(b *cleanup.Basis)
		want   []string
	}{
		"nothing":   {func(*cleanup.Basis) {}, nil},
		"an option": {func(b *cleanup.Basis) { b.Options["delay"] = "2" }, []string{"option delay was 1, and is 2"}},
		"holds are not named": {
			func(b *cleanup.Basis) { b.Holds = nil },
			[]string{"the holds have changed"},
		},
		"a task on another database": {
			func(b *cleanup.Basis) { b.External = map[string]string{"forms-x": "old"} },
			[]string{"the task forms-x was none, and is old"},
		},
		"a policy": {
			func(b *cleanup.Basis) { b.Policies = map[string]string{"policy/x": "d1b2"} },
			[]string{"the rule of the task policy/x, or what it applies to, has changed"},
		},
		"a setting": {
			func(b *cleanup.Basis) { b.MidSourcing = []string{"a=keep"} },
			[]string{"--mid-sourcing was none, and is a=keep"},
		},
	} {
		now := base()
		c.change(&now)
		if changes := base().Changes(now); !slices.Equal(changes, c.want) {
			t.Errorf("%s: got %q, want %q", name, changes, c.want)
		}
	}
}
