package purge

import (
	"testing"
	"time"
)

// The end of a stretch, shorter than a window, says nothing of how wide the next one may be.
func TestPaceAfterAShortWindow(t *testing.T) {
	t.Parallel()
	p := newPace(5_000, blocks, 50*time.Millisecond)
	const rowsABlock = 40
	for range 20 {
		p.took(3*time.Millisecond, p.width*p.together, p.width*rowsABlock, true)
	}
	if rows := p.width * rowsABlock; rows > 5_000 || rows < 3_000 || p.together != mostBeside {
		t.Fatalf("a window of %d rows, %d together", rows, p.together)
	}
	p.took(time.Millisecond, 24, 24*rowsABlock, true)
	if rows := p.width * rowsABlock; rows > 5_000 {
		t.Errorf("a window of %d rows after a short one", rows)
	}
}

// A batch that may have but one statement never gets more, however quick it is.
func TestPaceOfSingleStatements(t *testing.T) {
	t.Parallel()
	p := newPace(5_000, blocks, 50*time.Millisecond)
	p.atOnce(1)
	for range 20 {
		p.took(time.Millisecond, p.width, 0, true)
	}
	if p.together != 1 || p.width != blocks.most {
		t.Errorf("%d windows of %d blocks", p.together, p.width)
	}
}

// Statements that take too long are first sent one by one, and made smaller then.
func TestPaceShrinks(t *testing.T) {
	t.Parallel()
	p := newPace(5_000, blocks, 50*time.Millisecond)
	p.width, p.together = 100, mostBeside
	p.took(time.Second, 100*mostBeside, 1_000, true)
	if p.together != 1 || p.width != 100 {
		t.Errorf("%d windows of %d blocks after a slow batch", p.together, p.width)
	}
	p.took(250*time.Millisecond, 100, 1_000, true)
	if p.width != 20 {
		t.Errorf("a window of %d blocks after a slow statement", p.width)
	}
}

// What each batch takes however small it is does not make it smaller and smaller; when that is over, it fits the target again.
func TestPaceBesideAFixedCost(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{false, true} {
		p := newPace(5_000, blocks, 50*time.Millisecond)
		batch := func(fixed, row time.Duration) int64 {
			rows := int64(p.limit)
			if direct {
				rows = p.width * p.together * 10
			}
			p.took(fixed+time.Duration(rows)*row, p.width*p.together, rows/p.together, direct)
			return rows
		}
		var rows int64
		for range 100 {
			rows = batch(200*time.Millisecond, 50*time.Microsecond)
		}
		if rows < 500 || rows > 1_500 {
			t.Errorf("direct: %t: %d rows a batch", direct, rows)
		}
		for range 100 {
			rows = batch(0, 250*time.Microsecond)
		}
		if rows < 50 || rows > 250 {
			t.Errorf("direct: %t: %d rows a batch when there is no fixed cost any more", direct, rows)
		}
	}
}
