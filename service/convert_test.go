package service

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/throttle"
)

// Each reason to wait has a value of its own in the API.
func TestThrottleReasons(t *testing.T) {
	t.Parallel()
	seen := map[cleanupv1.ThrottleReason]bool{0: true}
	for _, r := range throttle.Reasons {
		if value := throttleReasons[r]; seen[value] {
			t.Errorf("%s has no value of its own: %v", r, value)
		} else {
			seen[value] = true
		}
	}
	if want := len(cleanupv1.ThrottleReason_name); len(seen) != want {
		t.Errorf("%d values are used, want all %d", len(seen), want)
	}
}

// Progress that is stored is read back unchanged.
func TestProgressIsStored(t *testing.T) {
	t.Parallel()
	for _, want := range []store.Progress{
		{},
		{Scan: purge.Scan{Method: purge.PartitionDrop}, Throttle: purge.Throttle{Reason: throttle.RowRate}},
		{
			Scan:     purge.Scan{Method: purge.IndexScan, Index: "a b"},
			Throttle: purge.Throttle{Reason: throttle.RetainedWAL, Detail: "slot: 3 GB"},
		},
	} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got store.Progress
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// Each guard has a value of its own in the API, and is read back from it.
func TestGuardKinds(t *testing.T) {
	t.Parallel()
	for _, name := range []guard.Name{
		guard.Share, guard.Cutoff, guard.Growth, guard.Tables, guard.Bytes, guard.Clock, guard.First, guard.Idle,
	} {
		kind := guardKind(name)
		back := acceptedGuards([]*cleanupv1.TrippedGuard{{Guard: kind}})[0].Guard
		if kind == cleanupv1.GuardKind_GUARD_KIND_UNSPECIFIED || back != name {
			t.Errorf("%s is %s in the API, and %s again", name, kind, back)
		}
	}
}
