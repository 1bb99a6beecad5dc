package purge

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Limits are the load above which a batch waits before it begins. Zero is no limit.
type Limits struct {
	// ReplicaLag is how far the slowest replica of the database may be behind.
	ReplicaLag time.Duration
	// LagMustBeSeen makes a lag that the role may not see count as too much; otherwise it is reported once.
	LagMustBeSeen bool
	// ActiveSessions is how many other sessions may be active on the server.
	ActiveSessions int
	// WaitingSessions is how many other sessions may wait for a lock, whoever holds it.
	WaitingSessions int
	// WALPerSecond is how many bytes of WAL the server may write per second.
	WALPerSecond int64
	// RowsPerSecond is how many rows may be deleted or updated per second.
	RowsPerSecond int
}

// Why a batch waits, as reported.
const (
	othersWait      = "others wait for our locks"
	hiddenLag       = "replica lag can not be seen: GRANT pg_monitor"
	replicaLag      = "replica lag"
	activeSessions  = "active sessions"
	waitingSessions = "sessions waiting for locks"
	walRate         = "WAL per second"
	rowRate         = "rows per second"
)

// Reasons are all the reasons for which a batch may wait.
var Reasons = []string{othersWait, hiddenLag, replicaLag, activeSessions, waitingSessions, walRate, rowRate}

// sampleEvery is how often the server's load is sampled: batches in between go by the last sample.
const sampleEvery = 250 * time.Millisecond

// throttler is the last sample of the server's load, and what follows from it.
type throttler struct {
	mu      sync.Mutex
	sampled time.Time
	wal     int64
	reason  string    // to wait; empty: none
	idle    bool      // the server is otherwise idle
	ready   time.Time // when RowsPerSecond allows the next batch
	warned  bool      // it was reported that the lag cannot be seen
}

// loadSQL samples the server's load; it works for a role that may see little, too. Others are sessions with another
// application_name. The server is otherwise idle if all of them have been inactive for half a second; one that the role may
// not see is taken for active. It calls the functions behind pg_stat_activity and pg_stat_replication, since the views also
// look up names, which takes four times as long.
const loadSQL = `
WITH others AS (SELECT pid, state, state_change, wait_event_type FROM pg_stat_get_activity(NULL)
  WHERE COALESCE(backend_type, 'client backend') = 'client backend' AND datid IS NOT NULL AND usesysid IS NOT NULL AND pid <> pg_backend_pid() AND application_name <> current_setting('application_name'))
SELECT (SELECT count(*) FROM others WHERE state = 'active'),
  NOT EXISTS (SELECT FROM others WHERE (state <> 'active' AND state_change < now() - interval '500 ms') IS NOT TRUE),
  (SELECT count(*) FROM others WHERE wait_event_type = 'Lock'),
  (SELECT count(*) FROM others WHERE wait_event_type = 'Lock' AND pg_blocking_pids(pid) &&
    ARRAY(SELECT pid FROM pg_stat_get_activity(NULL) WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND application_name = current_setting('application_name'))),
  (SELECT COALESCE(extract(epoch FROM max(replay_lag)) * 1000000, 0)::bigint FROM pg_stat_get_wal_senders()),
  (SELECT count(*) FROM pg_stat_get_wal_senders()) > 0 AND NOT pg_has_role('pg_read_all_stats', 'USAGE'),
  (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END - '0/0')::bigint`

// Wait waits while the server's load exceeds the limits. It must be called outside of transactions.
func (e *Engine) Wait(ctx context.Context) error {
	if e.Limits == (Limits{}) {
		return nil
	}
	for waited := false; ; waited = true {
		reason, pause, err := e.sample(ctx)
		if err != nil {
			return err
		}
		if reason == "" && !waited {
			return nil
		}
		e.Recorder.Throttled(reason)
		if reason == "" {
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
func (e *Engine) sample(ctx context.Context) (reason string, pause time.Duration, err error) {
	t := e.throttler
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait := time.Until(t.ready); wait > 0 {
		return rowRate, min(wait, time.Second), nil
	}
	if time.Since(t.sampled) < sampleEvery {
		return t.reason, sampleEvery, nil
	}
	var (
		active, waiting, forUs, wal, lag int64
		idle, hidden                     bool
	)
	if err := e.Pool.QueryRow(ctx, loadSQL).Scan(&active, &idle, &waiting, &forUs, &lag, &hidden, &wal); err != nil {
		return "", 0, fmt.Errorf("look at the server: %w", err)
	}
	elapsed := time.Since(t.sampled).Seconds()
	first := t.sampled.IsZero()
	written := float64(wal-t.wal) / elapsed
	t.sampled, t.wal, t.reason, t.idle = time.Now(), wal, "", idle
	l := e.Limits
	if hidden && l.ReplicaLag > 0 && !l.LagMustBeSeen && !t.warned {
		t.warned = true
		e.Recorder.Warn("there are replicas, whose lag this role may not see: it is not waited for (GRANT pg_monitor would let it)")
	}
	switch {
	case forUs > 0:
		t.reason = othersWait
	case l.ReplicaLag > 0 && hidden && l.LagMustBeSeen:
		t.reason = hiddenLag
	case l.ReplicaLag > 0 && time.Duration(lag)*time.Microsecond > l.ReplicaLag:
		t.reason = replicaLag
	case l.ActiveSessions > 0 && active > int64(l.ActiveSessions):
		t.reason = activeSessions
	case l.WaitingSessions > 0 && waiting > int64(l.WaitingSessions):
		t.reason = waitingSessions
	case l.WALPerSecond > 0 && !first && written > float64(l.WALPerSecond):
		t.reason = walRate
	}
	return t.reason, sampleEvery, nil
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
