package throttle

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Bounds of the duration of batches, and of the pauses after them as a multiple of that duration.
const (
	shortestWork = time.Millisecond
	longestWork  = 20 * time.Millisecond
	firstWork    = 2 * time.Millisecond
	minRest      = 1
	usualRest    = 7
	maxRest      = 20
	firstRest    = 2
	maxPause     = time.Second
)

// A commit may take longer during a batch than in a pause, within an allowance: allowedShare of its duration in a
// pause, or alwaysAllowed if that is more. Batches grow while less than half of the allowance is used. Pauses exceed
// usualRest only if more than twice the allowance is used.
const (
	allowedShare  = 0.5
	alwaysAllowed = 500 * time.Microsecond
)

const (
	// sampleWindow is how many of the last commits count. Ordered by duration, the one at typicalQuantile is typical.
	sampleWindow    = 12
	typicalQuantile = 0.75
	// quietEvery is how often all batches pause, to measure commits without our load.
	quietEvery = 10 * time.Second
)

// governor decides how long batches should take while other sessions use the server, and how long to pause after them:
// it compares how long a small commit takes during batches and while no batch is open. Batches grow slowly and shrink
// at once. It needs no database. The zero governor is ready to use, and safe for concurrent use.
type governor struct {
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
	*s = (*s)[max(len(*s)-sampleWindow, 0):]
}

func (s samples) typical() time.Duration {
	return slices.Sorted(slices.Values(s))[int(typicalQuantile*float64(len(s)))]
}

func (g *governor) target() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begin()
	return g.work
}

func (g *governor) begin() {
	if g.work == 0 {
		g.work, g.rest = firstWork, firstRest
	}
}

func (g *governor) pause(batch time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begin()
	return min(time.Duration(float64(batch)*g.rest), maxPause)
}

func (g *governor) needsQuiet(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return now.Sub(g.reset) >= quietEvery
}

func (g *governor) observeQuiet(now time.Time, took []time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reset = now
	for _, d := range took {
		g.quiet.add(d)
	}
}

func (g *governor) observe(took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begin()
	if len(g.quiet) == 0 {
		return
	}
	if g.during.add(took); len(g.during) < sampleWindow {
		return
	}
	without := g.quiet.typical()
	allowed := max(time.Duration(allowedShare*float64(without)), alwaysAllowed)
	switch longer := g.during.typical() - without; {
	case longer > allowed:
		g.shrink(longer > 2*allowed)
		g.during = nil
	case longer < allowed/2:
		g.grow()
		g.during = g.during[sampleWindow/2:]
	}
}

// shrink makes batches smaller and, once they are the smallest, pauses longer. much means that commits take far too
// long.
func (g *governor) shrink(much bool) {
	switch {
	case g.work > shortestWork:
		g.work = max(g.work/2, shortestWork)
	case much:
		g.rest = min(g.rest*1.5, maxRest)
	default:
		g.rest = max(min(g.rest*1.5, usualRest), g.rest*0.9)
	}
}

func (g *governor) grow() {
	if g.rest > minRest {
		g.rest = max(g.rest*0.9, minRest)
		return
	}
	g.work = min(g.work*11/10, longestWork)
}

func (g *governor) String() string {
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
