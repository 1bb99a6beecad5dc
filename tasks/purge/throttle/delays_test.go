package throttle

import (
	"testing"
	"time"
)

// A constant delay of a standby does not count as lag, nor does the lag of one that replays nothing; all other lags do.
func TestDelays(t *testing.T) {
	t.Parallel()
	const second = time.Second
	minute := func(int) time.Duration { return time.Minute }
	for name, c := range map[string]struct {
		lag     func(i int) time.Duration // after i seconds
		flush   time.Duration
		stuck   func(i int) bool // whether it replays nothing in the second
		waits   int              // for how many seconds at least, of 180
		ignored kind
	}{
		"not behind":          {lag: func(int) time.Duration { return second }},
		"delayed by a minute": {lag: minute, waits: 10, ignored: delayed},
		"delayed, nearly": {
			lag:     func(i int) time.Duration { return time.Minute + time.Duration(i%5)*second },
			waits:   40,
			ignored: delayed,
		},
		"falling behind slowly": {
			lag:   func(i int) time.Duration { return time.Minute + time.Duration(300*i)*time.Millisecond },
			waits: 180,
		},
		"catching up slowly": {
			lag:   func(i int) time.Duration { return 2*time.Minute - time.Duration(300*i)*time.Millisecond },
			waits: 180,
		},
		"falling behind":   {lag: func(i int) time.Duration { return time.Duration(10+2*i) * second }, waits: 180},
		"catching up":      {lag: func(i int) time.Duration { return time.Duration(200-i) * second }, waits: 180},
		"receives nothing": {lag: minute, flush: time.Minute, waits: 180},
		"delayed, then overload": {
			lag:     func(i int) time.Duration { return time.Duration(60+3*max(0, i-20)) * second },
			waits:   168,
			ignored: delayed,
		},
		"delayed by two, no more": {lag: func(int) time.Duration { return 2 * second }},
		"stuck": {
			lag:     func(i int) time.Duration { return time.Duration(3+i) * second },
			stuck:   func(int) bool { return true },
			waits:   60,
			ignored: stuck,
		},
		"stuck for long": {
			lag:     func(i int) time.Duration { return time.Duration(3_000+i) * second },
			stuck:   func(int) bool { return true },
			waits:   60,
			ignored: stuck,
		},
		"stuck by a query, then catching up": {
			lag: func(i int) time.Duration {
				return max(time.Duration(30+i)*second-time.Duration(max(0, i-30))*3*second, 0)
			},
			stuck: func(i int) bool { return i < 30 },
			waits: 55,
		},
		"stuck, then overload": {
			lag:     func(i int) time.Duration { return time.Duration(3+2*i) * second },
			stuck:   func(i int) bool { return i < 90 },
			waits:   150,
			ignored: stuck,
		},
	} {
		var (
			d                delays
			begin, waited    = time.Now(), 0
			position         int64
			ignored, another kind
		)
		for i := range 180 {
			if c.stuck == nil || !c.stuck(i) {
				position++
			}
			s := standbyLoad{PID: 1, Name: "a", Replay: c.lag(i), Flush: c.flush, Position: position}
			lag, k := d.lag(s, 2*second, begin.Add(time.Duration(i)*second))
			if lag > 2*second {
				waited++
			}
			if k == delayed && ignored == k {
				t.Errorf("%s: the delay was recognized twice", name)
			}
			if k != counts && ignored != counts && ignored != k {
				another = k
			}
			if k != counts {
				ignored = k
			}
		}
		if ignored != c.ignored || another != counts {
			t.Errorf("%s: the lag was ignored for %v and %v, want %v", name, ignored, another, c.ignored)
		}
		if waited < c.waits || waited > c.waits+5 {
			t.Errorf("%s: batches waited for %d seconds, want at least %d", name, waited, c.waits)
		}
	}
}

// Two standbys may have the same name.
func TestDelaysOfTheSameName(t *testing.T) {
	t.Parallel()
	var d delays
	begin := time.Now()
	for i := range 30 {
		now := begin.Add(time.Duration(i) * time.Second)
		delayed, _ := d.lag(standbyLoad{PID: 1, Replay: time.Hour, Position: int64(i)}, time.Second, now)
		behind, _ := d.lag(standbyLoad{PID: 2, Replay: time.Duration(10+2*i) * time.Second, Position: int64(i)},
			time.Second, now)
		if i > 15 && delayed > 0 {
			t.Errorf("after %d seconds the delay counts as a lag of %s", i, delayed)
		}
		if behind < 10*time.Second {
			t.Errorf("after %d seconds the lag is %s", i, behind)
		}
	}
}
