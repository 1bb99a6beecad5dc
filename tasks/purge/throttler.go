package purge

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Limits are the load above which a batch waits before it begins. Zero is no limit.
type Limits struct {
	// ReplicaLag is how far the slowest standby of the database may be behind.
	ReplicaLag time.Duration
	// LagMustBeSeen makes a lag that the role may not see count as too much; otherwise it is reported once.
	LagMustBeSeen bool
	// LagIgnore are the application names of standbys whose lag does not count.
	LagIgnore []string
	// ActiveSessions is how many other sessions may be active on the server.
	ActiveSessions int
	// WaitingSessions is how many other sessions may wait for a lock of the database's relations or transactions,
	// whoever holds it.
	WaitingSessions int
	// WALPerSecond is how many bytes of WAL the server may write per second.
	WALPerSecond int64
	// RetainedWAL is how many bytes of WAL a replication slot without a reader, or a failing archiver, may keep the
	// server from removing.
	RetainedWAL int64
	// RowsPerSecond is how many rows may be deleted or updated per second.
	RowsPerSecond int
	// MaxWait is how long a batch waits for one reason until that is logged as a warning.
	MaxWait time.Duration
}

// any reports whether there is something that a batch waits for.
func (l Limits) any() bool {
	return l.ReplicaLag > 0 || l.ActiveSessions > 0 || l.WaitingSessions > 0 || l.WALPerSecond > 0 ||
		l.RetainedWAL > 0 ||
		l.RowsPerSecond > 0
}

// A Throttle is why a batch waits.
type Throttle struct {
	Reason string // one of Reasons; empty if the batch does not wait
	Detail string // which standby, or how many sessions; may be empty
}

func (t Throttle) String() string {
	if t.Detail == "" {
		return t.Reason
	}
	return t.Reason + ": " + t.Detail
}

// Why a batch waits, as reported.
const (
	othersWait      = "others wait for our locks"
	hiddenLag       = "replica lag can not be seen: GRANT pg_monitor"
	replicaLag      = "replica lag"
	activeSessions  = "active sessions"
	waitingSessions = "sessions waiting for locks"
	walRate         = "WAL per second"
	walRetained     = "retained WAL"
	rowRate         = "rows per second"
)

// Reasons are all the reasons for which a batch may wait.
var Reasons = []string{
	othersWait,
	hiddenLag,
	replicaLag,
	activeSessions,
	waitingSessions,
	walRate,
	walRetained,
	rowRate,
}

// remedies are the settings that help where batches wait for too long.
var remedies = map[string]string{
	othersWait:      "a lower --batch-target shortens batches",
	hiddenLag:       "GRANT pg_monitor to the role, or set --max-replica-lag=0",
	replicaLag:      "raise --max-replica-lag, or name a standby that does not count with --lag-ignore",
	activeSessions:  "raise --max-active-sessions",
	waitingSessions: "raise --max-waiting-sessions",
	walRate:         "raise --max-wal-rate",
	walRetained:     "drop the replication slot or mend the archiver, or raise --max-retained-wal",
}

// sampleEvery is how often the server's load is sampled: batches in between use the last sample.
const sampleEvery = 250 * time.Millisecond

// throttler is the last sample of the server's load, and what follows from it.
type throttler struct {
	mu       sync.Mutex
	sampled  time.Time
	wal      int64
	throttle Throttle
	since    time.Time // the reason of throttle is the same
	idle     bool      // the server is otherwise idle
	ready    time.Time // when RowsPerSecond allows the next batch
	delays   delays
	retained retainedSample
	warned   map[string]bool // of what
}

// warnOnce warns of something unless that was done before in this run.
func (e *Engine) warnOnce(what, message string) {
	if !e.throttler.warned[what] {
		e.throttler.warned[what] = true
		e.Recorder.Warn(message)
	}
}

// Wait waits while the server's load exceeds the limits. It must be called outside of transactions.
func (e *Engine) Wait(ctx context.Context) error {
	if !e.Limits.any() {
		return nil
	}
	for waited := false; ; waited = true {
		throttle, pause, err := e.sample(ctx)
		if err != nil {
			return err
		}
		if throttle.Reason == "" && !waited {
			return nil
		}
		e.Recorder.Throttled(throttle)
		if throttle.Reason == "" {
			return nil
		}
		if err := e.Recorder.Proceed(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sample returns why a batch should wait, and for how long at least. It samples the load if the last sample is too old.
func (e *Engine) sample(ctx context.Context) (throttle Throttle, pause time.Duration, err error) {
	t := e.throttler
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if wait := t.ready.Sub(now); wait > 0 {
		return Throttle{Reason: rowRate}, min(wait, time.Second), nil
	}
	if now.Sub(t.sampled) < sampleEvery {
		return t.throttle, sampleEvery, nil
	}
	l, err := sampleLoad(ctx, e.Pool, e.Limits.LagIgnore)
	if err != nil {
		return Throttle{}, 0, err
	}
	if !l.recovery { // retained WAL is measured on the primary only
		if err := t.retained.refresh(ctx, e.Pool, now); err != nil {
			return Throttle{}, 0, err
		}
	}
	var written float64 // bytes of WAL per second
	if !t.sampled.IsZero() {
		written = float64(l.wal-t.wal) / now.Sub(t.sampled).Seconds()
	}
	t.sampled, t.wal, t.idle = now, l.wal, l.idle
	last := t.throttle.Reason
	t.throttle = e.exceeded(l, written)
	switch waits := now.Sub(t.since); {
	case t.throttle.Reason != last:
		t.since = now
	case last != "" && e.Limits.MaxWait > 0 && waits >= e.Limits.MaxWait:
		e.Recorder.Warn(
			fmt.Sprintf("batches have waited for %s: %s; %s", waits.Round(time.Second), t.throttle, remedies[last]),
		)
		t.since = now
	}
	return t.throttle, sampleEvery, nil
}

// exceeded returns which limit the server's load exceeds. written is how many bytes of WAL the server writes per
// second.
func (e *Engine) exceeded(l load, written float64) Throttle {
	limits := e.Limits
	if l.forUs > 0 {
		return Throttle{othersWait, fmt.Sprintf("%d sessions", l.forUs)}
	}
	if limits.ReplicaLag > 0 && l.hidden && limits.LagMustBeSeen {
		return Throttle{Reason: hiddenLag}
	}
	lag := e.lag(l)
	retained := e.retainedTooMuch()
	switch {
	case lag.Reason != "":
		return lag
	case limits.ActiveSessions > 0 && l.active > int64(limits.ActiveSessions):
		return Throttle{activeSessions, fmt.Sprint(l.active)}
	case limits.WaitingSessions > 0 && l.waiting > int64(limits.WaitingSessions):
		return Throttle{
			waitingSessions,
			fmt.Sprintf("%d in the database %s", l.waiting, e.Pool.Config().ConnConfig.Database),
		}
	case limits.WALPerSecond > 0 && written > float64(limits.WALPerSecond):
		return Throttle{Reason: walRate}
	}
	return retained
}

// lag returns a throttle if a standby is too far behind.
func (e *Engine) lag(l load) Throttle {
	limit := e.Limits.ReplicaLag
	if limit == 0 {
		return Throttle{}
	}
	if l.hidden {
		e.warnOnce(
			hiddenLag,
			"there are replicas, whose lag this role may not see: it is not waited for (GRANT pg_monitor would let it)",
		)
	}
	var worst Throttle
	for _, s := range l.standbys {
		lag, found := e.throttler.delays.lag(s, limit, time.Now())
		if found {
			e.Recorder.Warn(
				fmt.Sprintf(
					"the standby %s stays %s behind, as recovery_min_apply_delay makes it: batches do not wait for "+
						"that delay (--lag-ignore %[1]s would ignore it from the start)",
					s.name,
					s.replay.Round(time.Second),
				),
			)
		}
		if lag > limit && worst.Reason == "" { // the first one is the slowest
			worst = Throttle{replicaLag, fmt.Sprintf("%s is %s behind", s.name, s.replay.Round(time.Second))}
		}
	}
	return worst
}

// idle reports whether the server was otherwise idle in the last sample.
func (e *Engine) idle() bool {
	e.throttler.mu.Lock()
	defer e.throttler.mu.Unlock()
	return e.throttler.idle
}

// Spend counts deleted or updated rows towards RowsPerSecond.
func (e *Engine) Spend(rows int64) {
	if e.Limits.RowsPerSecond == 0 {
		return
	}
	t := e.throttler
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); t.ready.Before(now) {
		t.ready = now
	}
	t.ready = t.ready.Add(time.Duration(float64(rows) / float64(e.Limits.RowsPerSecond) * float64(time.Second)))
}
