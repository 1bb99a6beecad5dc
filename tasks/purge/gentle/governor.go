package gentle

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Bounds of the duration of batches, and of the pauses after them as a multiple of that duration.
const (
	shortest  = time.Millisecond
	longest   = 20 * time.Millisecond
	first     = 2 * time.Millisecond
	minRest   = 1
	usualRest = 7
	maxRest   = 20
	firstRest = 2
	maxPause  = time.Second
)

// A commit may take longer during a batch than in a pause, within an allowance: share of its duration in a pause, or
// tolerable if that is more. Batches grow while less than half of the allowance is used. Pauses exceed usualRest only
// if more than twice the allowance is used.
const (
	share     = 0.5
	tolerable = 500 * time.Microsecond
)

const (
	// window is how many of the last commits count. Ordered by duration, the one at quantile is typical.
	window   = 12
	quantile = 0.75
	// quietEvery is how often all batches pause, to measure commits without our load.
	quietEvery = 10 * time.Second
)

// Governor decides how long batches should take, and how long to pause after them. Batches grow slowly and shrink at
// once. The zero Governor is ready to use, and safe for concurrent use.
type Governor struct {
	mu     sync.Mutex
	work   time.Duration // how long a batch should take
	rest   float64       // the pause after a batch, as a multiple of its duration
	quiet  samples       // commits while no batch is open
	during samples       // commits during batches
	reset  time.Time     // when the quiet commits were last measured
}

type samples []time.Duration

func (s *samples) add(d time.Duration) {
	*s = append(*s, d)
	*s = (*s)[max(len(*s)-window, 0):]
}

func (s samples) typical() time.Duration {
	return slices.Sorted(slices.Values(s))[int(quantile*float64(len(s)))]
}

func (g *Governor) Work() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begin()
	return g.work
}

func (g *Governor) begin() {
	if g.work == 0 {
		g.work, g.rest = first, firstRest
	}
}

func (g *Governor) Pause(batch time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begin()
	return min(time.Duration(float64(batch)*g.rest), maxPause)
}

func (g *Governor) NeedsQuiet(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return now.Sub(g.reset) >= quietEvery
}

func (g *Governor) ObserveQuiet(now time.Time, took []time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reset = now
	for _, d := range took {
		g.quiet.add(d)
	}
}

func (g *Governor) Observe(took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begin()
	if len(g.quiet) == 0 {
		return
	}
	if g.during.add(took); len(g.during) < window {
		return
	}
	without := g.quiet.typical()
	switch longer, allowed := g.during.typical()-without, max(time.Duration(share*float64(without)), tolerable); {
	case longer > allowed:
		g.shrink(longer > 2*allowed)
		g.during = nil
	case longer < allowed/2:
		g.grow()
		g.during = g.during[window/2:]
	}
}

// shrink makes batches smaller and, once they are the smallest, pauses longer. much means that commits take far too
// long.
func (g *Governor) shrink(much bool) {
	switch {
	case g.work > shortest:
		g.work = max(g.work/2, shortest)
	case much:
		g.rest = min(g.rest*1.5, maxRest)
	default:
		g.rest = max(min(g.rest*1.5, usualRest), g.rest*0.9)
	}
}

func (g *Governor) grow() {
	if g.rest > minRest {
		g.rest = max(g.rest*0.9, minRest)
		return
	}
	g.work = min(g.work*11/10, longest)
}

func (g *Governor) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.quiet) == 0 || len(g.during) == 0 {
		return "other sessions are active"
	}
	return fmt.Sprintf(
		"commits take %.1f ms, %.1f ms without batches; batches of %.1f ms, then pauses %.1f times as long",
		milliseconds(g.during.typical()), milliseconds(g.quiet.typical()), milliseconds(g.work), g.rest)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
