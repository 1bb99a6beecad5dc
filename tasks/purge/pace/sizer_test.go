package pace

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var blocks = Windows{First: 32, Max: 256}

// A short window at the end of a chunk does not widen the next one.
func TestSizerAfterAShortWindow(t *testing.T) {
	t.Parallel()
	s := NewSizer(5_000, blocks, 50*time.Millisecond)
	const rowsPerBlock = 40
	for range 20 {
		s.Observe(3*time.Millisecond, s.Span(), s.Width*rowsPerBlock, true)
	}
	if rows := s.Width * rowsPerBlock; rows > 5_000 || rows < 3_000 || s.Statements != MaxStatementsBusy {
		t.Fatalf("a window of %d rows, %d statements", rows, s.Statements)
	}
	s.Observe(time.Millisecond, 24, 24*rowsPerBlock, true)
	if rows := s.Width * rowsPerBlock; rows > 5_000 {
		t.Errorf("a window of %d rows after a short one", rows)
	}
}

// A batch that is limited to one statement never gets more, however fast it is.
func TestSizerOfSingleStatements(t *testing.T) {
	t.Parallel()
	s := NewSizer(5_000, blocks, 50*time.Millisecond)
	s.LimitStatements(1)
	for range 20 {
		s.Observe(time.Millisecond, s.Width, 0, true)
	}
	if s.Statements != 1 || s.Width != blocks.Max {
		t.Errorf("%d windows of %d blocks", s.Statements, s.Width)
	}
}

// Statements that take too long are first sent one by one, and only then made smaller.
func TestSizerShrinks(t *testing.T) {
	t.Parallel()
	s := NewSizer(5_000, blocks, 50*time.Millisecond)
	s.Width, s.Statements = 100, MaxStatementsBusy
	s.Observe(time.Second, 100*MaxStatementsBusy, 1_000, true)
	if s.Statements != 1 || s.Width != 100 {
		t.Errorf("%d windows of %d blocks after a slow batch", s.Statements, s.Width)
	}
	s.Observe(250*time.Millisecond, 100, 1_000, true)
	if s.Width != 20 {
		t.Errorf("a window of %d blocks after a slow statement", s.Width)
	}
}

// A fixed cost does not make statements smaller and smaller, nor keep them small; once it is gone, they fit the target
// again.
func TestSizerWithAFixedCost(t *testing.T) {
	t.Parallel()
	const target, row = 50 * time.Millisecond, 50 * time.Microsecond
	for _, fixed := range []time.Duration{
		30 * time.Millisecond,
		48 * time.Millisecond,
		60 * time.Millisecond,
		200 * time.Millisecond,
	} {
		for _, direct := range []bool{false, true} {
			s := NewSizer(5_000, blocks, target)
			batch := func(fixed, row time.Duration) int64 {
				rows := int64(s.Rows)
				if direct {
					rows = s.Width * s.Statements * 10
				}
				s.Observe(time.Duration(s.Statements)*fixed+time.Duration(rows)*row, s.Span(), rows/s.Statements,
					direct)
				return rows
			}
			var sum int64
			for i := range 100 {
				if rows := batch(fixed, row); i >= 50 {
					sum += rows
				}
			}
			if rows, full := sum/50, int64(max(fixed, target)/row); rows < full*2/5 || rows > full*3/2 {
				t.Errorf("fixed: %v, direct: %t: %d rows a batch", fixed, direct, rows)
			}
			var rows int64
			for range 100 {
				rows = batch(0, 250*time.Microsecond)
			}
			if rows < 50 || rows > 250 {
				t.Errorf("fixed: %v, direct: %t: %d rows a batch after the fixed cost has ended", fixed, direct, rows)
			}
		}
	}
}

// Times that vary, as on a busy machine, are not mistaken for a fixed cost for long.
func TestSizerWithNoise(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	s := NewSizer(5_000, blocks, 50*time.Millisecond)
	var took []time.Duration
	for range 1_000 {
		d := time.Duration(float64(s.Rows) * float64(100*time.Microsecond) * (0.7 + 0.6*random.Float64()))
		s.Observe(d, s.Width, int64(s.Rows), false)
		took = append(took, d)
	}
	slices.Sort(took)
	if median, p99 := took[500], took[990]; median < 20*time.Millisecond || median > 60*time.Millisecond ||
		p99 > 100*time.Millisecond {
		t.Errorf("a batch takes %v, %v at the 99th percentile", median, p99)
	}
}
