package purge

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The end of a chunk, shorter than a window, says nothing about how wide the next one may be.
func TestPaceAfterAShortWindow(t *testing.T) {
	t.Parallel()
	p := newBatchSizer(5_000, blocks, 50*time.Millisecond)
	const rowsABlock = 40
	for range 20 {
		p.observe(3*time.Millisecond, p.width*p.statements, p.width*rowsABlock, true)
	}
	if rows := p.width * rowsABlock; rows > 5_000 || rows < 3_000 || p.statements != mostBeside {
		t.Fatalf("a window of %d rows, %d together", rows, p.statements)
	}
	p.observe(time.Millisecond, 24, 24*rowsABlock, true)
	if rows := p.width * rowsABlock; rows > 5_000 {
		t.Errorf("a window of %d rows after a short one", rows)
	}
}

// A batch that may have only one statement never gets more, however fast it is.
func TestPaceOfSingleStatements(t *testing.T) {
	t.Parallel()
	p := newBatchSizer(5_000, blocks, 50*time.Millisecond)
	p.limitStatements(1)
	for range 20 {
		p.observe(time.Millisecond, p.width, 0, true)
	}
	if p.statements != 1 || p.width != blocks.most {
		t.Errorf("%d windows of %d blocks", p.statements, p.width)
	}
}

// Statements that take too long are first sent one by one, and only then made smaller.
func TestPaceShrinks(t *testing.T) {
	t.Parallel()
	p := newBatchSizer(5_000, blocks, 50*time.Millisecond)
	p.width, p.statements = 100, mostBeside
	p.observe(time.Second, 100*mostBeside, 1_000, true)
	if p.statements != 1 || p.width != 100 {
		t.Errorf("%d windows of %d blocks after a slow batch", p.statements, p.width)
	}
	p.observe(250*time.Millisecond, 100, 1_000, true)
	if p.width != 20 {
		t.Errorf("a window of %d blocks after a slow statement", p.width)
	}
}

// A fixed cost does not make statements smaller and smaller, nor keep them small; once it is gone, they fit the target
// again.
func TestPaceBesideAFixedCost(t *testing.T) {
	t.Parallel()
	const target, row = 50 * time.Millisecond, 50 * time.Microsecond
	for _, fixed := range []time.Duration{
		30 * time.Millisecond,
		48 * time.Millisecond,
		60 * time.Millisecond,
		200 * time.Millisecond,
	} {
		for _, direct := range []bool{false, true} {
			p := newBatchSizer(5_000, blocks, target)
			batch := func(fixed, row time.Duration) int64 {
				rows := int64(p.limit)
				if direct {
					rows = p.width * p.statements * 10
				}
				p.observe(
					time.Duration(p.statements)*fixed+time.Duration(rows)*row,
					p.width*p.statements,
					rows/p.statements,
					direct,
				)
				return rows
			}
			var sum int64
			for i := range 100 {
				if rows := batch(fixed, row); i >= 50 {
					sum += rows
				}
			}
			if rows, most := sum/50, int64(max(fixed, target)/row); rows < most*2/5 || rows > most*3/2 {
				t.Errorf("fixed: %v, direct: %t: %d rows a batch", fixed, direct, rows)
			}
			var rows int64
			for range 100 {
				rows = batch(0, 250*time.Microsecond)
			}
			if rows < 50 || rows > 250 {
				t.Errorf(
					"fixed: %v, direct: %t: %d rows a batch when there is no fixed cost any more",
					fixed,
					direct,
					rows,
				)
			}
		}
	}
}

// Times that vary, as on a busy machine, are not mistaken for a fixed cost for long.
func TestPaceAmongNoise(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	p := newBatchSizer(5_000, blocks, 50*time.Millisecond)
	var took []time.Duration
	for range 1_000 {
		d := time.Duration(float64(p.limit) * float64(100*time.Microsecond) * (0.7 + 0.6*random.Float64()))
		p.observe(d, p.width, int64(p.limit), false)
		took = append(took, d)
	}
	slices.Sort(took)
	if median, p99 := took[500], took[990]; median < 20*time.Millisecond || median > 60*time.Millisecond ||
		p99 > 100*time.Millisecond {
		t.Errorf("a batch takes %v, %v at the 99th percentile", median, p99)
	}
}
