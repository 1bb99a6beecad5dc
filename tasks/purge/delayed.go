package purge

import "time"

// steady is how long a standby must be the same time behind until it is taken for one that is delayed on purpose.
const steady = 10 * time.Second

// A delayed standby (recovery_min_apply_delay) has received all WAL and replays it a fixed time later, which no waiting
// changes. A standby that is overloaded falls further behind, or catches up while batches wait. The server does not
// know the setting of its standbys.
type delays struct {
	known    map[string]time.Duration // the delays of standbys that are delayed on purpose, by their names
	observed map[string]*observation  // standbys that are too far behind
}

// observation is a range in which a standby's lag has stayed for a while.
type observation struct {
	since     time.Time
	low, high time.Duration
}

// lag returns how far a standby is behind, in addition to the delay that it has on purpose. found reports whether it
// was just found to have one.
func (d *delays) lag(s standbyLoad, limit time.Duration, now time.Time) (lag time.Duration, found bool) {
	lag = s.replay - d.known[s.name]
	if lag <= limit || s.flush > limit {
		delete(d.observed, s.name)
		return max(lag, 0), false
	}
	o := d.observed[s.name]
	if o == nil {
		o = &observation{now, s.replay, s.replay}
		if d.observed == nil {
			d.known, d.observed = map[string]time.Duration{}, map[string]*observation{}
		}
		d.observed[s.name] = o
	}
	o.low, o.high = min(o.low, s.replay), max(o.high, s.replay)
	switch {
	case o.high-o.low > max(o.high/10, time.Second):
		*o = observation{now, s.replay, s.replay}
	case now.Sub(o.since) >= steady:
		d.known[s.name] = o.high
		delete(d.observed, s.name)
		return 0, true
	}
	return lag, false
}
