package runs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// grace is how long a statement may keep running after shutdown begins.
const grace = 10 * time.Second

var (
	// The run continues in a later attempt: the pipeline stops without recording anything, as after a lost lease.
	errStopping = fmt.Errorf("%w: this replica is stopping", cleanup.ErrLost)
	errPaused   = fmt.Errorf("%w: the run is paused", cleanup.ErrLost)
)

type attempt struct {
	m     *Manager
	claim *claim
	// stopping is closed when this replica has to stop after the current batch.
	stopping <-chan struct{}
	pace     *pace.Setting

	// writing allows one transaction with events at a time, so that events are stored in the order in which things
	// happened. Otherwise the progress of a task could follow its end.
	writing sync.Mutex
	task    taskProgress

	existing []int64 // entries of which a restore left only rows whose keys exist again

	mu         sync.Mutex
	stopReason string // "" if the run need not stop
}

func newAttempt(ctx context.Context, m *Manager, c *claim) *attempt {
	return &attempt{m: m, claim: c, stopping: ctx.Done(), pace: pace.NewSetting(c.Pace)}
}

// runAttempt executes the run until it ends, and returns an error if something prevented that.
func (a *attempt) runAttempt(ctx context.Context) error {
	working, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { lose(errStopping) }) })()
	if err := a.m.confirmStart(working, a.claim); err != nil {
		return err
	}
	var wg sync.WaitGroup
	background, stop := context.WithCancel(untraced(working))
	goBackground := func(do func()) {
		wg.Go(func() {
			if err := failure.Catch(func() error { do(); return nil }); err != nil {
				lose(err)
			}
		})
	}
	goBackground(func() { a.m.renewLease(background, a.claim, lose) })
	goBackground(func() { a.writeProgress(background) })
	goBackground(func() { a.watchInstructions(background, lose) })
	err := failure.Catch(func() error { return a.runPipeline(working) })
	failure.LogPanic(a.m.log, "run "+a.claim.RunID.String(), err)
	stop()
	wg.Wait()
	if cause := context.Cause(working); cause != nil {
		return cause
	}
	if errors.Is(err, cleanup.ErrLost) {
		return err
	}
	outcome := outcomeOf(err, a.stopReason)
	if a.claim.gaveUp && outcome.State != store.Cancelled {
		outcome.Cause = store.CauseUnavailable
	}
	var run *store.Run
	err = pgx.BeginFunc(working, a.m.pool, func(tx pgx.Tx) (err error) {
		run, err = a.m.finish(working, tx, a.claim.Epoch, outcome)
		return err
	})
	if err == nil {
		a.m.reportEnd(run)
	}
	return err
}

const (
	// instructionsEvery is how often the instructions are read, in addition to each batch, which also reads them.
	instructionsEvery = 500 * time.Millisecond
	// pauseGrace is how long a statement may keep running after the run was paused.
	pauseGrace = time.Second
)

// watchInstructions interrupts a statement that continues after the run was paused, such as the count of a large table.
// Nothing is lost: the run continues after its last batch.
func (a *attempt) watchInstructions(ctx context.Context, lose context.CancelCauseFunc) {
	ticker := time.NewTicker(instructionsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		i, err := store.ReadInstructions(ctx, a.m.pool, a.claim.Epoch)
		if err == nil && errors.Is(a.follow(i), errPaused) {
			select {
			case <-ctx.Done():
			case <-time.After(pauseGrace):
				lose(errPaused)
			}
			return
		}
	}
}

func (a *attempt) runPipeline(ctx context.Context) error {
	c := a.claim
	if c.FailedAttempts > maxFailedAttempts && len(c.todo) > 0 {
		if err := a.giveUp(ctx); errors.Is(err, cleanup.ErrStopped) {
			return err
		} else if err != nil {
			return lost(err)
		}
	}
	if c.failed && !c.ContinueOnError { // nothing is left to do but end the run
		return nil
	}
	if c.Restore != nil {
		err := a.restore(ctx)
		if sqlstate.Lost(err) {
			return lost(err)
		}
		return err
	}
	chosen, all, err := a.m.Tasks.Resolve(ctx, a.m.pool, c.chosen)
	if err != nil {
		return err
	}
	if c.Resumed {
		if err := a.awaitPredecessor(ctx); err != nil {
			return lost(err)
		}
	}
	config := a.config(chosen, all)
	if c.Plan != uuid.Nil {
		// A scheduled run may start long after its plan was checked, and a run by hand may have ended while it waited for its
		// window.
		maxAge := a.m.config.PlanMaxAge
		if c.Resumed {
			maxAge = math.MaxInt64
		}
		if err := store.CheckPlan(ctx, a.m.pool, c.Plan, maxAge); sqlstate.Lost(err) {
			return lost(err)
		} else if err != nil {
			return err
		}
		if config.SavedPlan, err = store.SavedPlan(ctx, a.m.pool, c.Plan); err != nil {
			return lost(err)
		}
	}
	if slices.ContainsFunc(config.Todo, func(t rules.Task) bool { return *t.Undo > 0 }) {
		if config.TrashMaxBytes, err = a.m.UndoMaxBytes(ctx); err != nil {
			return lost(err)
		}
	}
	if !c.DryRun {
		return cleanup.Execute(ctx, config, a)
	}
	if c.Resumed {
		if config.Done, err = store.SavedPlan(ctx, a.m.pool, c.RunID); err != nil {
			return lost(err)
		}
	}
	return cleanup.DryRun(ctx, config, a)
}

// giveUp makes the current task, or else the next one, fail after too many failed attempts.
func (a *attempt) giveUp(ctx context.Context) error {
	c := a.claim
	if err := a.TaskStarted(ctx, c.todo[0]); err != nil {
		return err
	}
	if err := a.TaskFinished(ctx, cleanup.Outcome{
		State:    cleanup.Failed,
		Retained: c.cursor.TotalRetained(),
		Problem: fmt.Sprintf("given up after %d failed attempts without progress, the last one: %s", c.FailedAttempts,
			c.reason),
	}); err != nil {
		return err
	}
	c.unmet[c.todo[0]] = true
	c.failed = c.failed || !c.policies[c.todo[0]]
	c.gaveUp, c.todo, c.cursor = true, c.todo[1:], purge.Cursor{}
	return nil
}

// config returns the configuration of the run's tasks, without the results of dry runs.
func (a *attempt) config(chosen []rules.Task, all TaskList) cleanup.Config {
	c, config := a.claim, a.m.configure(all)
	config.ID = c.RunID.String()
	config.Lock = advisoryLock(c.RunID)
	config.Log = a.m.log.With("run_id", config.ID)
	config.Now = c.ReferenceTime
	config.DryRun = c.DryRun
	config.ContinueOnError = c.ContinueOnError
	config.WhatIf = c.WhatIf
	config.Settings.Pace = a.pace
	config.Standby = a.m.config.Standby
	config.Chosen = chosen
	for _, t := range chosen {
		if slices.Contains(c.todo, t.Name) {
			t.Undo = new(c.undo[t.Name])
			config.Todo = append(config.Todo, t)
		}
	}
	config.Cursor = c.cursor
	config.Succeeded = c.succeeded
	config.Failed = c.unmet
	return config
}

// awaitPredecessor ends the batch of the previous worker and waits until it has ended. Otherwise the next batch would
// mistake the locks of the previous one for those of other sessions.
func (a *attempt) awaitPredecessor(ctx context.Context) error {
	a.m.endBatch(ctx, a.claim.RunID)
	lock := advisoryLock(a.claim.RunID)
	if err := advisory.Squatted(ctx, a.m.pool, lock, false); err != nil {
		a.m.log.Warn("a run waits for its previous worker", "run_id", a.claim.RunID.String(), "error", err)
	}
	return pgx.BeginFunc(ctx, a.m.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(%d)", lock))
		return err
	})
}

// endBatch terminates a batch that the previous worker of the run may still have open. Otherwise the server would
// notice a cut connection only after the current statement, and the batch of a frozen worker would last until its idle
// timeout. If the role cannot terminate the batch, it ends at its statement timeout.
func (m *Manager) endBatch(ctx context.Context, id uuid.UUID) {
	_, err := m.pool.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM ("+advisory.Holders+") AS h", advisoryLock(id))
	if err != nil {
		m.log.Warn("could not terminate the previous replica's batch", "run_id", id.String(), "error", err)
	}
}

// advisoryLock returns the key of the advisory lock that all batches of a run share. It is the random part of the
// run's id.
func advisoryLock(id uuid.UUID) int64 { return int64(binary.BigEndian.Uint64(id[8:])) }

// lost makes an error interrupt the attempt instead of failing the run.
func lost(err error) error { return fmt.Errorf("%w: %w", cleanup.ErrLost, err) }

var tracer = otel.Tracer("github.com/cleanupd/cleanupd/service/runs")

// traceRun runs an attempt in a span whose parent is the call that requested the run.
func (c *claim) traceRun(ctx context.Context, run func(context.Context) error) error {
	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier{store.TraceHeader: c.TraceParent})
	ctx, span := tracer.Start(ctx, "run",
		trace.WithAttributes(attribute.String("cleanupd.run_id", c.RunID.String()),
			attribute.Int64("cleanupd.epoch", c.Number), attribute.Bool("cleanupd.dry_run", c.DryRun)))
	defer span.End()
	err := run(ctx)
	if err != nil {
		span.SetStatus(codes.Error, sqlstate.Text(err))
	}
	return err
}

func untraced(ctx context.Context) context.Context { return trace.ContextWithSpan(ctx, noop.Span{}) }
