package throttle

import "time"

// minSteady is how long a standby's lag must be constant before the standby counts as delayed on purpose. minStuck
// is how long it must have replayed nothing before batches no longer wait for it: longer than queries on the
// standby may delay its replay by default (max_standby_streaming_delay).
const (
	minSteady = 10 * time.Second
	minStuck  = time.Minute
)

// delays recognizes standbys whose lag does not depend on batches. A standby that is delayed on purpose
// (recovery_min_apply_delay) has received all WAL and replays it a fixed time later, however long batches wait. A
// standby whose replay is stuck (because of pg_wal_replay_pause, a query there, or the delay of the only transaction)
// replays nothing. An overloaded standby falls further behind, or catches up while batches wait. The primary does not
// have the settings of its standbys.
type delays struct {
	known    map[int32]time.Duration // the delays of standbys that are delayed on purpose, by PID
	observed map[int32]*observation  // standbys that are too far behind
}

// observation is the range of a standby's lag since a time, and when the standby last replayed something.
type observation struct {
	since    time.Time
	min, max time.Duration
	position int64
	moved    time.Time
}

// kind says whether the lag of a standby depends on batches.
type kind int

const (
	counts  kind = iota // the lag depends on batches
	delayed             // the standby is delayed on purpose
	stuck               // its replay is stuck
)

func (d *delays) lag(s standbyLoad, limit time.Duration, now time.Time) (lag time.Duration, k kind) {
	lag = s.Replay - d.known[s.PID]
	if lag <= limit || s.Flush > limit {
		delete(d.observed, s.PID)
		return max(lag, 0), counts
	}
	o := d.observed[s.PID]
	if o == nil {
		o = &observation{since: now, min: s.Replay, max: s.Replay, position: s.Position, moved: now}
		if d.observed == nil {
			d.known, d.observed = map[int32]time.Duration{}, map[int32]*observation{}
		}
		d.observed[s.PID] = o
	}
	if s.Position != o.position {
		o.position, o.moved = s.Position, now
	}
	o.min, o.max = min(o.min, s.Replay), max(o.max, s.Replay)
	elapsed, spread := now.Sub(o.since), o.max-o.min
	switch {
	case now.Sub(o.moved) >= minStuck:
		return 0, stuck
	case spread > max(o.max/10, time.Second):
		o.since, o.min, o.max = now, s.Replay, s.Replay
	case elapsed >= minSteady && spread <= elapsed/10 && o.moved.After(
		o.since): // a slow drift spreads little for a while
		d.known[s.PID] = o.max
		delete(d.observed, s.PID)
		return 0, delayed
	}
	return lag, counts
}
