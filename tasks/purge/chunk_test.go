package purge

import (
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// A chunk too short for a batch takes in what comes next, unless that is another worker's, or the end has come.
func TestStretchIsExtended(t *testing.T) {
	t.Parallel()
	const end = 2_500
	sw := &sweep{axis: blocks, limiter: pace.NewLimiter(2), undone: map[*worker]int64{}}
	w, other := &worker{sweep: sw}, &worker{sweep: sw}
	w.Sizer = pace.Sizer{Width: 100, Statements: 4}
	if !sw.take(w, end) || w.to != blocks.chunk {
		t.Fatalf("the first chunk ends at %d", w.to)
	}
	for _, step := range []struct{ from, to int64 }{{600, 1024}, {800, 2048}, {1900, end}, {2400, end}} {
		w.from = step.from
		if sw.extend(w, end); w.to != step.to || sw.next != step.to {
			t.Errorf("at %d: the chunk ends at %d, the next one begins at %d", step.from, w.to, sw.next)
		}
	}
	sw.next = 0
	sw.take(w, end)
	sw.take(other, end)
	w.from = 1000
	if sw.extend(w, end); w.to != other.from {
		t.Errorf("a chunk up to %d meets the other one at %d", w.to, other.from)
	}
}

// Several workers take less and less near the end, but never less than a first window; one alone has nobody to wait
// for.
func TestStretchesNearTheEnd(t *testing.T) {
	t.Parallel()
	const end = 5_000
	for _, test := range []struct {
		idle bool
		want []int64
	}{
		{false, []int64{1024, 1024, 1024, 1024, 904}},
		{true, []int64{1024, 994, 745, 559, 419, 314, 236, 177, 133, 99, 75, 56, 42, 32, 32, 32, 31}},
	} {
		sw := &sweep{axis: blocks, limiter: pace.NewLimiter(2), undone: map[*worker]int64{}}
		sw.limiter.SetIdle(test.idle)
		var took []int64
		for w := (&worker{sweep: sw}); sw.take(w, end); {
			took = append(took, w.to-w.from)
		}
		if !slices.Equal(took, test.want) {
			t.Errorf("nobody else at work: %t: chunks of %d blocks, want %d", test.idle, took, test.want)
		}
	}
}
