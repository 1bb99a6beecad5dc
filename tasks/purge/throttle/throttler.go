package throttle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/message"
)

// sampleEvery is how often the server's load is sampled. Batches in between use the last sample.
const sampleEvery = 250 * time.Millisecond

// Recorder receives why batches wait, and may stop them.
type Recorder interface {
	// Throttled reports why the next batch waits; the cause is empty when it no longer does.
	Throttled(c Cause)
	Warn(m message.Message)
	// Proceed returns an error if the batch must not wait any longer. It is called while a batch waits.
	Proceed(ctx context.Context) error
}

// Throttler makes batches wait. All of them share the last sample of the server's load. The zero Throttler is ready
// to use.
type Throttler struct {
	mu        sync.Mutex
	sampledAt time.Time
	wal       int64
	cause     Cause
	since     time.Time // when the reason last changed
	idle      bool      // the server is otherwise idle
	standby   bool      // the server is a standby, where nothing commits
	nextBatch time.Time // when RowsPerSecond allows the next batch
	restUntil time.Time // when the pause after the last batch ends
	governor  governor
	probedAt  time.Time // when a commit was last measured during a batch
	phase     float64   // the part of the batch, from 0 to 1, after which the last commit was measured
	reported  time.Time // when the governor was last reported; zero while batches need not give way
	delays    delays
	retained  retainedSample
	warned    map[string]bool // subjects of earlier warnings
}

// Wait waits while the load exceeds the limits, and then for the rest of the pause after the last batch. It must
// not be called in a transaction.
func (t *Throttler) Wait(ctx context.Context, pool *pgxpool.Pool, limits Limits, r Recorder) error {
	if !limits.enabled() {
		t.assumeBusy()
		return t.rest(ctx, pool, false, r)
	}
	for waited := false; ; waited = true {
		cause, pause, err := t.check(ctx, pool, limits, r)
		if err != nil {
			return err
		}
		if cause.Reason != "" || waited {
			r.Throttled(cause)
		}
		if cause.Reason == "" {
			return t.rest(ctx, pool, limits.Gentle, r)
		}
		if err := r.Proceed(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// assumeBusy makes Idle return false until the load is sampled again.
func (t *Throttler) assumeBusy() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = false
}

// check returns why a batch has to wait, and how long to wait before the next check. It samples the load if the
// last sample is too old.
func (t *Throttler) check(
	ctx context.Context, pool *pgxpool.Pool, limits Limits, r Recorder,
) (cause Cause, pause time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if wait := t.nextBatch.Sub(now); wait > 0 {
		return Cause{Reason: RowRate}, min(wait, time.Second), nil
	}
	if now.Sub(t.sampledAt) < sampleEvery {
		return t.cause, sampleEvery, nil
	}
	l, err := sampleLoad(ctx, pool, limits.LagIgnore)
	if err != nil {
		return Cause{}, 0, err
	}
	if !l.recovery { // retained WAL is measured on the primary only
		if err := t.retained.refresh(ctx, pool, now); err != nil {
			return Cause{}, 0, err
		}
	}
	var written float64 // bytes of WAL per second
	if !t.sampledAt.IsZero() {
		written = float64(l.wal-t.wal) / now.Sub(t.sampledAt).Seconds()
	}
	t.sampledAt, t.wal, t.idle, t.standby = now, l.wal, l.idle, l.recovery
	last := t.cause.Reason
	t.cause = t.exceeded(l, written, limits, r)
	switch waits := now.Sub(t.since); {
	case t.cause.Reason != last:
		t.since = now
	case last != "" && limits.MaxWait > 0 && waits >= limits.MaxWait:
		r.Warn(
			message.BatchesWait.With("duration", waits.Round(time.Second), "cause", t.cause, "remedy", remedies[last]))
		t.since = now
	}
	return t.cause, sampleEvery, nil
}

// exceeded returns which limit the load exceeds. written is the rate of WAL in bytes per second.
func (t *Throttler) exceeded(l load, written float64, limits Limits, r Recorder) Cause {
	if l.blocked > 0 {
		return Cause{Blocking, fmt.Sprintf("%d sessions", l.blocked)}
	}
	if limits.ReplicaLag > 0 && l.hidden && limits.LagMustBeSeen {
		return Cause{Reason: HiddenLag}
	}
	lag := t.lagExceeded(l, limits.ReplicaLag, r)
	retained := t.retainedExceeded(limits.RetainedWAL, r)
	switch {
	case lag.Reason != "":
		return lag
	case limits.ActiveSessions > 0 && l.active > int64(limits.ActiveSessions):
		return Cause{ActiveSessions, fmt.Sprint(l.active)}
	case limits.WaitingSessions > 0 && l.waiting > int64(limits.WaitingSessions):
		return Cause{WaitingSessions, fmt.Sprintf("%d in the database %s", l.waiting, l.database)}
	case limits.WALPerSecond > 0 && written > float64(limits.WALPerSecond):
		return Cause{Reason: WALRate}
	}
	return retained
}

// lagExceeded returns a cause if a standby is too far behind.
func (t *Throttler) lagExceeded(l load, limit time.Duration, r Recorder) Cause {
	if limit == 0 {
		return Cause{}
	}
	if l.hidden {
		t.warnOnce(r, string(HiddenLag), message.ReplicaLagHidden.With())
	}
	var worst Cause
	for _, s := range l.standbys {
		behind := s.Replay.Round(time.Second)
		lag, kind := t.delays.lag(s, limit, time.Now())
		switch subject := fmt.Sprint(kind, s.PID); kind {
		case delayed:
			t.warnOnce(r, subject, message.StandbyDelayed.With("standby", s.Name, "lag", behind))
		case stuck:
			t.warnOnce(r, subject, message.StandbyStuck.With("standby", s.Name, "lag", behind))
		}
		if lag > limit && worst.Reason == "" { // the first one is the slowest
			worst = Cause{ReplicaLag, fmt.Sprintf("%s is %s behind", s.Name, behind)}
		}
	}
	return worst
}

func (t *Throttler) warnOnce(r Recorder, subject string, m message.Message) {
	if t.warned[subject] {
		return
	}
	if t.warned == nil {
		t.warned = map[string]bool{}
	}
	t.warned[subject] = true
	r.Warn(m)
}

func (t *Throttler) Idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.idle
}

// Spend counts rows towards a rate limit, which 0 disables, and the time of a batch towards the pause after it.
func (t *Throttler) Spend(rows int64, perSecond int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.restUntil = now.Add(t.governor.pause(took))
	if perSecond == 0 {
		return
	}
	if t.nextBatch.Before(now) {
		t.nextBatch = now
	}
	t.nextBatch = t.nextBatch.Add(time.Duration(float64(rows) / float64(perSecond) * float64(time.Second)))
}
