package throttle

import (
	"testing"
	"time"
)

func quiet(g *governor, took time.Duration) {
	for range sampleWindow {
		g.observeQuiet(time.Now(), []time.Duration{took})
	}
}

// While commits take no longer during batches, batches grow and pauses shrink, up to a bound.
func TestGovernorGrows(t *testing.T) {
	t.Parallel()
	g := &governor{}
	quiet(g, time.Millisecond)
	before, pause := g.target(), g.pause(time.Millisecond)
	for range 20 * sampleWindow {
		g.observe(time.Millisecond)
		if now := g.target(); now < before || now > longestWork {
			t.Fatalf("batches of %s after %s", now, before)
		}
	}
	if now := g.target(); now != longestWork {
		t.Errorf("batches of %s in the end, want %s", now, longestWork)
	}
	if now := g.pause(time.Millisecond); now >= pause {
		t.Errorf("a pause of %s, after %s before", now, pause)
	}
}

// Batches shrink at once when commits take longer during them, and grow again slowly. Pauses grow if that is not
// enough.
func TestGovernorShrinks(t *testing.T) {
	t.Parallel()
	g := &governor{}
	quiet(g, time.Millisecond)
	for range 20 * sampleWindow {
		g.observe(time.Millisecond)
	}
	full, pause := g.target(), g.pause(time.Millisecond)
	for range sampleWindow {
		g.observe(3 * time.Millisecond)
	}
	small := g.target()
	if small > full/2 {
		t.Errorf("batches of %s after slow commits, %s before", small, full)
	}
	for range sampleWindow {
		g.observe(time.Millisecond)
	}
	if now := g.target(); now > small*2 {
		t.Errorf("batches of %s right after some of %s", now, small)
	}
	for range 100 * sampleWindow {
		g.observe(time.Second)
	}
	if now := g.target(); now != shortestWork {
		t.Errorf("batches of %s on a server that is overloaded, want %s", now, shortestWork)
	}
	if now := g.pause(time.Millisecond); now <= pause {
		t.Errorf("a pause of %s on a server that is overloaded, %s before", now, pause)
	}
}

// A few commits that happen to be slow change nothing, nor do commits that cannot be compared yet.
func TestGovernorIgnoresOutliers(t *testing.T) {
	t.Parallel()
	g := &governor{}
	for range 10 * sampleWindow {
		g.observe(time.Second)
	}
	if now := g.target(); now != firstWork {
		t.Errorf("batches of %s before there is anything to compare with", now)
	}
	quiet(g, time.Millisecond)
	for i := range 10 * sampleWindow {
		took := 1400 * time.Microsecond // neither fine nor slow
		if i%sampleWindow == 0 {
			took = time.Second
		}
		g.observe(took)
	}
	if now := g.target(); now != firstWork {
		t.Errorf("batches of %s after outliers, want %s", now, firstWork)
	}
}

// Commits are measured without batches at first and again after a while, and no pause is endless.
func TestGovernorNeedsQuiet(t *testing.T) {
	t.Parallel()
	g := &governor{}
	now := time.Now()
	if !g.needsQuiet(now) {
		t.Error("nothing is measured at first")
	}
	g.observeQuiet(now, nil)
	if g.needsQuiet(now.Add(quietEvery - 1)) {
		t.Error("it is measured again too early")
	}
	if !g.needsQuiet(now.Add(quietEvery)) {
		t.Error("it is not measured again")
	}
	if pause := g.pause(time.Hour); pause != maxPause {
		t.Errorf("a pause of %s after an hour, want %s", pause, maxPause)
	}
}

// Pauses become far longer than batches only if commits take far too long.
func TestGovernorPauses(t *testing.T) {
	t.Parallel()
	for took, most := range map[time.Duration]time.Duration{
		1600 * time.Microsecond: usualRest * time.Millisecond, 3 * time.Millisecond: maxRest * time.Millisecond,
	} {
		g := &governor{}
		quiet(g, time.Millisecond)
		for range 100 * sampleWindow {
			g.observe(took)
		}
		if now := g.pause(time.Millisecond); now != most {
			t.Errorf("commits of %s: a pause of %s after a millisecond, want %s", took, now, most)
		}
	}
}
