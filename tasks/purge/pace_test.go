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
	p.took(time.Second, 100, 1_000, true)
	if p.width != 10 {
		t.Errorf("a window of %d blocks after a slow statement", p.width)
	}
}
