package pace

import "testing"

// A bisection finds the only row of a batch that fails, and then no longer limits batches.
func TestBisection(t *testing.T) {
	t.Parallel()
	const rows, failing = 1_000, 617
	var b Bisection
	position, batches, skipped := 0, 0, -1
	for ; position < rows; batches++ {
		n := b.Limit(rows - position)
		switch contains := position <= failing && failing < position+n && skipped < 0; {
		case contains && n == 1:
			skipped = position
			b.Skipped()
		case contains:
			b.Failed(n)
			continue
		default:
			b.Passed(n, rows)
		}
		position += n
	}
	if skipped != failing {
		t.Errorf("row %d was skipped, want row %d", skipped, failing)
	}
	if batches > 40 {
		t.Errorf("%d batches for %d rows", batches, rows)
	}
}

// A bisection does not limit batches while no row has failed.
func TestBisectionWithoutFailures(t *testing.T) {
	t.Parallel()
	var b Bisection
	b.Passed(10, 100)
	if n := b.Limit(100); n != 100 || b.Active() || b.Narrowing() {
		t.Errorf("%d of 100 rows: %+v", n, b)
	}
}
