package throttle

import (
	"testing"
	"time"
)

// A constant delay of a standby does not count as lag; all other lags do.
func TestDelays(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, c := range map[string]struct {
		lag     func(i int) time.Duration // after i seconds
		flush   time.Duration
		waits   int // for how many seconds at least, of 60
		ignored bool
	}{
		"not behind":          {lag: func(int) time.Duration { return second }},
		"delayed by a minute": {lag: func(int) time.Duration { return time.Minute }, waits: 10, ignored: true},
		"delayed, nearly": {
			lag:     func(i int) time.Duration { return time.Minute + time.Duration(i%5)*second },
			waits:   10,
			ignored: true,
		},
		"falling behind": {
			lag:   func(i int) time.Duration { return time.Duration(10+2*i) * second },
			waits: 60,
		},
		"catching up": {
			lag:   func(i int) time.Duration { return time.Duration(90-2*i) * second },
			waits: 40,
		},
		"receives nothing": {lag: func(int) time.Duration { return time.Minute }, flush: time.Minute, waits: 60},
		"delayed, then overload": {
			lag:     func(i int) time.Duration { return time.Duration(60+3*max(0, i-20)) * second },
			waits:   47,
			ignored: true,
		},
		"delayed by two, no more": {lag: func(int) time.Duration { return 2 * second }},
	} {
		var d delays
		begin, waited, ignored := time.Now(), 0, false
		for i := range 60 {
			lag, found := d.lag(standbyLoad{"a", c.lag(i), c.flush}, 2*second, begin.Add(time.Duration(i)*second))
			if lag > 2*second {
				waited++
			}
			if found && ignored {
				t.Errorf("%s: the delay was recognized twice", name)
			}
			ignored = ignored || found
		}
		if ignored != c.ignored || waited < c.waits || waited > c.waits+5 {
			t.Errorf(
				"%s: batches waited for %d seconds, want at least %d; the delay is ignored: %t",
				name,
				waited,
				c.waits,
				ignored,
			)
		}
	}
}
