package throttle

import "time"

// minSteady is the time for which a standby's lag must be constant before it counts as delayed on purpose.
const minSteady = 10 * time.Second

// delays recognizes standbys that are delayed on purpose. Such a standby (recovery_min_apply_delay) has received all
// WAL and replays it a fixed time later, however long batches wait. An overloaded standby falls further behind, or
// catches up while batches wait. The server does not know the setting of its standbys.
type delays struct {
	known    map[string]time.Duration // the delays of standbys that are delayed on purpose, by name
	observed map[string]*observation  // standbys that are too far behind
}

// observation records the range of a standby's lag since a moment.
type observation struct {
	since    time.Time
	min, max time.Duration
}

// lag returns how far a standby is behind, in addition to the delay that it has on purpose. found reports whether that
// delay was recognized just now.
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
	o.min, o.max = min(o.min, s.replay), max(o.max, s.replay)
	switch {
	case o.max-o.min > max(o.max/10, time.Second):
		*o = observation{now, s.replay, s.replay}
	case now.Sub(o.since) >= minSteady:
		d.known[s.name] = o.max
		delete(d.observed, s.name)
		return 0, true
	}
	return lag, false
}
