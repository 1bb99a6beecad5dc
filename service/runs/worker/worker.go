package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/rescue"
	"github.com/cleanupd/cleanupd/service/runs/metrics"
	"github.com/cleanupd/cleanupd/service/runs/scheduler"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/runs/tasklist"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

// Config has fields as in runs.Config, and the parts that a worker uses.
type Config struct {
	Pool, Calls *pgxpool.Pool
	Standby     cleanup.Standby
	Lease       time.Duration
	PollEvery   time.Duration
	PlanMaxAge  time.Duration
	Replica     string
	Log         *slog.Logger
	// Base is the configuration of every run, without the tasks.
	Base      cleanup.Config
	Tasks     tasklist.Source
	Owner     *store.Owner
	Scheduler *scheduler.Scheduler
	Metrics   *metrics.Replica
	// OnlyFollowed makes the worker leave all runs alone but those given to Follow.
	OnlyFollowed bool
}

// Worker executes several runs at the same time.
type Worker struct {
	Config
	database *database
	wake     chan struct{} // receives a value when a run may be waiting to be claimed

	mu    sync.Mutex
	waits map[uuid.UUID]string // what each of its runs waits for; "" for a run that does not wait

	followed []uuid.UUID
}

func New(c Config) *Worker {
	return &Worker{
		Config:   c,
		database: newDatabase(c.Pool, c.Lease, c.Log),
		wake:     make(chan struct{}, 1),
		waits:    map[uuid.UUID]string{},
	}
}

func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// Follow is told that a caller follows a run, which may have been interrupted.
func (w *Worker) Follow(run uuid.UUID) {
	w.mu.Lock()
	w.followed = append(w.followed, run)
	w.mu.Unlock()
	w.Wake()
}

// Work claims and executes runs. When the context ends, it lets the current batches finish and releases the runs.
func (w *Worker) Work(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		var c *claim
		err := rescue.Call(func() (err error) { c, err = w.claimWaiting(ctx); return err })
		rescue.Log(w.Log, "take a run", err)
		if err == nil && c != nil {
			w.setWaits(c.RunID, "")
			wg.Go(func() {
				defer w.untrack(c.RunID)
				err := rescue.Call(func() error { w.executeRun(ctx, c); return nil })
				rescue.Log(w.Log, "run "+c.RunID.String(), err)
			})
			continue
		}
		if err != nil && ctx.Err() == nil {
			w.Log.Warn("cannot look for runs", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-time.After(w.PollEvery):
		}
	}
}

// executeRun executes a run. After an interruption, such as a failure of the database or its replacement by another
// server, it claims the run again if no other replica has done so. It then resumes the run after the last committed
// batch, as another replica would. It therefore does not matter whether a batch that was cut off was committed.
func (w *Worker) executeRun(ctx context.Context, c *claim) {
	log := w.Log.With("run_id", c.RunID.String())
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = w.Lease/50, w.Lease, 2
	for c != nil {
		log.Info("working on the run", "dry_run", c.DryRun, "epoch", c.Number)
		err := c.traceRun(ctx, func(ctx context.Context) error {
			return rescue.Call(func() error { return newAttempt(ctx, w, c).runAttempt(ctx) })
		})
		rescue.Log(log, "an attempt at the run", err)
		switch {
		case err == nil:
			return
		case errors.Is(err, errPaused):
			log.Info("stopped working on the run: it is paused")
			w.release(ctx, c)
			return
		case ctx.Err() != nil:
			log.Warn("left the run", "reason", err)
			w.release(ctx, c)
			return
		}
		log.Warn("set back", "reason", err)
		if c.progressed.Load() {
			pause.Reset()
		}
		// Other connections may be broken as well, or lead to a server that has been replaced.
		for _, pool := range []*pgxpool.Pool{w.Pool, w.Calls} {
			pool.Reset()
		}
		c = w.reclaim(ctx, c, err, pause, log)
	}
}

// Ready fails while the database cannot be written, or while a run of this worker waits for that. The error says
// what is awaited, and may be shown to any caller. Ready queries the database at most once a second.
func (w *Worker) Ready(ctx context.Context) error {
	if err := w.database.checkWritable(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, cause := range w.waits {
		if cause != "" {
			return fmt.Errorf("run %s waits: %s", id, cause)
		}
	}
	return nil
}

// setWaits stores what a run waits for; cause is "" if it does not wait.
func (w *Worker) setWaits(id uuid.UUID, cause string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits[id] = cause
}

// startConfirmed records that the run no longer waits, unless it waits for disk space: there may be just enough
// space for the confirmation.
func (w *Worker) startConfirmed(id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waits[id] != awaitedStates[pgerrcode.DiskFull] {
		w.waits[id] = ""
	}
}

func (w *Worker) untrack(id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waits, id)
}

func (w *Worker) tracked() []uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := []uuid.UUID{}
	for id := range w.waits {
		ids = append(ids, id)
	}
	return ids
}
