package gentle

import (
	"testing"
	"time"
)

func quiet(g *Governor, took time.Duration) {
	for range window {
		g.ObserveQuiet(time.Now(), []time.Duration{took})
	}
}

// While commits take no longer during batches, batches grow and pauses shrink, up to a bound.
func TestGovernorGrows(t *testing.T) {
	t.Parallel()
	g := &Governor{}
	quiet(g, time.Millisecond)
	before, pause := g.Work(), g.Pause(time.Millisecond)
	for range 20 * window {
		g.Observe(time.Millisecond)
		if now := g.Work(); now < before || now > longest {
			t.Fatalf("batches of %s after %s", now, before)
		}
	}
	if now := g.Work(); now != longest {
		t.Errorf("batches of %s in the end, want %s", now, longest)
	}
	if now := g.Pause(time.Millisecond); now >= pause {
		t.Errorf("a pause of %s, after %s before", now, pause)
	}
}

// Batches shrink at once when commits take longer during them, and grow again slowly. Pauses grow if that is not
// enough.
func TestGovernorShrinks(t *testing.T) {
	t.Parallel()
	g := &Governor{}
	quiet(g, time.Millisecond)
	for range 20 * window {
		g.Observe(time.Millisecond)
	}
	full, pause := g.Work(), g.Pause(time.Millisecond)
	for range window {
		g.Observe(3 * time.Millisecond)
	}
	small := g.Work()
	if small > full/2 {
		t.Errorf("batches of %s after slow commits, %s before", small, full)
	}
	for range window {
		g.Observe(time.Millisecond)
	}
	if now := g.Work(); now > small*2 {
		t.Errorf("batches of %s right after some of %s", now, small)
	}
	for range 100 * window {
		g.Observe(time.Second)
	}
	if now := g.Work(); now != shortest {
		t.Errorf("batches of %s on a server that is overloaded, want %s", now, shortest)
	}
	if now := g.Pause(time.Millisecond); now <= pause {
		t.Errorf("a pause of %s on a server that is overloaded, %s before", now, pause)
	}
}

// A few commits that happen to be slow change nothing, nor do commits that cannot be compared yet.
func TestGovernorIgnoresOutliers(t *testing.T) {
	t.Parallel()
	g := &Governor{}
	for range 10 * window {
		g.Observe(time.Second)
	}
	if now := g.Work(); now != first {
		t.Errorf("batches of %s before there is anything to compare with", now)
	}
	quiet(g, time.Millisecond)
	for i := range 10 * window {
		took := 1400 * time.Microsecond // neither fine nor slow
		if i%window == 0 {
			took = time.Second
		}
		g.Observe(took)
	}
	if now := g.Work(); now != first {
		t.Errorf("batches of %s after outliers, want %s", now, first)
	}
}

// Commits are measured without batches at first and again after a while, and no pause is endless.
func TestGovernorNeedsQuiet(t *testing.T) {
	t.Parallel()
	g := &Governor{}
	now := time.Now()
	if !g.NeedsQuiet(now) {
		t.Error("nothing is measured at first")
	}
	g.ObserveQuiet(now, nil)
	if g.NeedsQuiet(now.Add(quietEvery - 1)) {
		t.Error("it is measured again too early")
	}
	if !g.NeedsQuiet(now.Add(quietEvery)) {
		t.Error("it is not measured again")
	}
	if pause := g.Pause(time.Hour); pause != maxPause {
		t.Errorf("a pause of %s after an hour, want %s", pause, maxPause)
	}
}

// Pauses become far longer than batches only if commits take far too long.
func TestGovernorPauses(t *testing.T) {
	t.Parallel()
	for took, most := range map[time.Duration]time.Duration{
		1600 * time.Microsecond: usualRest * time.Millisecond, 3 * time.Millisecond: maxRest * time.Millisecond,
	} {
		g := &Governor{}
		quiet(g, time.Millisecond)
		for range 100 * window {
			g.Observe(took)
		}
		if now := g.Pause(time.Millisecond); now != most {
			t.Errorf("commits of %s: a pause of %s after a millisecond, want %s", took, now, most)
		}
	}
}
