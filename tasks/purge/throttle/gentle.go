package throttle

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

const (
	probeEvery = 25 * time.Millisecond
	// quietProbes is how many commits are measured while no batch is open.
	quietProbes     = 8
	quietProbeEvery = 10 * time.Millisecond
	// goldenRatio spreads the measured commits evenly over the time of batches.
	goldenRatio = 0.618034
	// reportEvery is how often the state of the governor is reported.
	reportEvery = 500 * time.Millisecond
)

func (t *Throttler) BatchTarget() time.Duration { return t.governor.target() }

// rest pauses if the pace is gentle and other sessions are active. From time to time it measures how long commits
// take without batches. On a standby it does nothing: what a run reads there delays no commit.
func (t *Throttler) rest(ctx context.Context, pool *pgxpool.Pool, isGentle bool, r Recorder) error {
	now := time.Now()
	t.mu.Lock()
	givesWay, reported, pause := isGentle && !t.idle && !t.standby, t.reported, t.restUntil.Sub(now)
	switch {
	case !givesWay:
		t.reported = time.Time{}
	case now.Sub(reported) >= reportEvery:
		t.reported = now
	}
	t.mu.Unlock()
	if !givesWay {
		if !reported.IsZero() {
			r.Throttled(Cause{})
		}
		return nil
	}
	if now.Sub(reported) >= reportEvery {
		r.Throttled(Cause{Gentle, t.governor.String()})
	}
	if err := sleep(ctx, pause); err != nil || !t.governor.needsQuiet(now) {
		return err
	}
	return t.measureQuiet(ctx, pool, r)
}

func (t *Throttler) measureQuiet(ctx context.Context, pool *pgxpool.Pool, r Recorder) error {
	var took []time.Duration
	for range quietProbes {
		if err := sleep(ctx, quietProbeEvery); err != nil {
			return err
		}
		d, err := probe(ctx, pool)
		if err != nil {
			if ctx.Err() == nil && !sqlstate.Lost(err) {
				t.mu.Lock()
				t.warnOnce(r, "probe", message.CommitsNotMeasured.With("error", sqlstate.Explain(err)))
				t.mu.Unlock()
			}
			break
		}
		took = append(took, d)
	}
	t.governor.observeQuiet(time.Now(), took)
	return ctx.Err()
}

// ProbeDuring measures a commit during the batch that begins now, unless one was measured just before. The caller
// must call end after the batch.
func (t *Throttler) ProbeDuring(ctx context.Context, pool *pgxpool.Pool) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.idle || now.Sub(t.probedAt) < probeEvery {
		return func() {}
	}
	t.probedAt = now
	t.phase = math.Mod(t.phase+goldenRatio, 1)
	phase := t.phase
	done := make(chan struct{})
	go func() {
		defer close(done)
		if sleep(ctx, time.Duration(phase*float64(t.governor.target()))) != nil {
			return
		}
		if took, err := probe(ctx, pool); err == nil {
			t.governor.observe(took)
		}
	}()
	return func() { <-done }
}

// probeSQL commits a transaction that changes no table and waits until it is durable, as the application's commits do.
const probeSQL = "SELECT pg_logical_emit_message(true, 'cleanupd', '')"

func probe(ctx context.Context, pool *pgxpool.Pool) (time.Duration, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	begun := time.Now()
	_, err = conn.Exec(ctx, probeSQL)
	return time.Since(begun), err
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
