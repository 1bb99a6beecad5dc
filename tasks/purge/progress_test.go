package purge

import (
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

func newTestProgress(end int64) *progress {
	p := newProgress("", &outcome{})
	p.begin(blockAxis{}, 0, end, true, pace.NewLimiter(2), pace.Sizer{})
	return p
}

// A chunk too short for a batch is extended, unless the next one is another worker's, or the table ends.
func TestChunkIsExtended(t *testing.T) {
	t.Parallel()
	const end, span = 2_500, 400
	p := newTestProgress(end)
	var c, other chunk
	if !p.take(&c) || c.to != 1024 {
		t.Fatalf("the first chunk ends at %d", c.to)
	}
	for _, step := range []struct{ from, to int64 }{{600, 1024}, {800, 2048}, {1900, end}, {2400, end}} {
		c.from = step.from
		if p.extend(&c, span); c.to != step.to || p.next != step.to {
			t.Errorf("at %d: the chunk ends at %d, the next one begins at %d", step.from, c.to, p.next)
		}
	}
	p.next = 0
	p.take(&c)
	p.take(&other)
	c.from = 1000
	if p.extend(&c, span); c.to != other.from {
		t.Errorf("a chunk up to %d meets the other one at %d", c.to, other.from)
	}
}

// Several workers take less and less near the end, but never less than a first window; a single one never waits for
// others.
func TestChunksNearTheEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		idle bool
		want []int64
	}{
		{false, []int64{1024, 1024, 1024, 1024, 904}},
		{true, []int64{1024, 994, 745, 559, 419, 314, 236, 177, 133, 99, 75, 56, 42, 32, 32, 32, 31}},
	} {
		p := newTestProgress(5_000)
		p.limiter.SetMode(test.idle, false)
		var took []int64
		for c := (chunk{}); p.take(&c); {
			took = append(took, c.to-c.from)
		}
		if !slices.Equal(took, test.want) {
			t.Errorf("idle: %t: chunks of %d blocks, want %d", test.idle, took, test.want)
		}
	}
}

// The cursor is the lowest position that some worker has not done, with the rows retained below it.
func TestCursorOfSeveralWorkers(t *testing.T) {
	t.Parallel()
	p := newTestProgress(5_000)
	var first, second chunk
	p.take(&first)
	p.take(&second)
	p.committed(&second, second.to, batchResult{changed: 7}, Retained{Locked: 2}, pace.Sizer{})
	if c := p.cursor(&first, 100, 1); c.Place != 100 || c.Retained != (Retained{}) {
		t.Errorf("the cursor is %+v while the first chunk is not done", c)
	}
	p.committed(&first, first.to, batchResult{changed: 1}, Retained{Suppressed: 1}, pace.Sizer{})
	if c := p.cursor(&first, first.to, 1); c.Place != 2048 || c.Retained != (Retained{Locked: 2, Suppressed: 1}) {
		t.Errorf("the cursor is %+v after both chunks", c)
	}
	if c := p.cursor(&first, first.to, 2); c.Place != 0 || c.Retained != (Retained{}) {
		t.Errorf("the cursor is %+v after a rewrite of the table", c)
	}
}

// Failed rows count as retained below the position after them, and too many of them end the sweep.
func TestOutcomeOfFailedRows(t *testing.T) {
	t.Parallel()
	o := &outcome{before: Retained{Failed: 3*MaxFailedRows - 1, Kept: 2 * MaxFailedRows}}
	o.fail(Retained{Failed: 1}, 11, nil)
	if o.below(10) != (Retained{}) || o.below(11) != (Retained{Failed: 1}) || o.ended() {
		t.Errorf("after %d failed rows: %+v", MaxFailedRows, o)
	}
	o.fail(Retained{Failed: 1}, 12, nil)
	if !o.ended() {
		t.Error("the sweep continues after more failed rows than allowed")
	}
}
