package purge

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgtype"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

type worker struct {
	table      *table // its session is nil until the worker starts
	statements *statements
	progress   *progress
	limiter    *pace.Limiter
	info       tableInfo
	maxRows    int // the most rows of a statement

	sizer       pace.Sizer
	bisection   pace.Bisection
	chunk       chunk
	offset      uint16       // rows up to this offset in the chunk's first block were already picked
	skipLocked  int64        // below this position, rows that other sessions have locked are skipped
	suppressing bool         // since retained rows were last counted, some picked rows were not deleted
	overfull    int          // how many batches in a row touched too many rows
	family      float64      // how many rows are deleted for each picked row, including itself
	traced      time.Time    // when a batch was last traced
	findsKept   bool         // whether to look for rows of the next window to which others refer
	kept        []pgtype.TID // those rows
}

// After maxOverfull batches in a row with too many rows, the worker picks rows first, until a batch has fewer.
const maxOverfull = 2

// sweepChunks sweeps one chunk after another. The limiter has already admitted the worker, which opens a session if
// it has none.
func (w *worker) sweepChunks(ctx context.Context) (err error) {
	defer w.limiter.Release()
	w.sizer = w.progress.lastSizer()
	for w.progress.take(&w.chunk) {
		if w.table.session == nil {
			if w.table.session, err = w.table.engine.session(ctx); err != nil {
				return err
			}
			defer w.table.session.end(ctx)
		}
		for w.chunk.from < w.chunk.to && !w.progress.ended() {
			w.progress.extend(&w.chunk, w.sizer.Span())
			err := w.traceBatch(ctx, w.step)
			if sqlstate.Is(err, pgerrcode.InsufficientPrivilege) && w.skipsLocked() && !w.statements.mayNotLock {
				w.statements.mayNotLock, err = true, nil
			}
			if sqlstate.Is(err, pgerrcode.LockNotAvailable) {
				w.progress.lockTable()
				return nil
			}
			if err != nil {
				return err
			}
			if err := w.limiter.Reacquire(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *worker) skipsLocked() bool { return w.chunk.from < w.skipLocked }

func (w *worker) batchEnd() int64 { return min(w.chunk.from+w.sizer.Span(), w.chunk.to) }

func (w *worker) windowEnd() int64 {
	width := w.sizer.Width
	if w.statements.axis.windows().Exact { // the picked rows may be any of the window
		width = min(width, int64(w.pickLimit()))
	}
	end := min(w.chunk.from+width, w.chunk.to)
	if w.skipsLocked() {
		end = min(end, w.skipLocked)
	}
	return end
}

// forgetting is the share of the expected size of families that remains after a batch with smaller ones.
const forgetting = 0.9

// pickLimit is the most rows that a statement of the next batch picks.
func (w *worker) pickLimit() int {
	limit := w.bisection.Limit(w.sizer.Rows)
	if w.family > 1 {
		limit = min(limit, max(int(float64(w.maxRows)/w.family), 1))
	}
	return limit
}

// step runs one batch. After a timeout or a failing row the next batch is smaller, and after a lock timeout it
// skips locked rows.
func (w *worker) step(ctx context.Context) error {
	e, name := w.table.engine, w.table.sweep.Name
	if err := e.Wait(ctx); err != nil {
		return err
	}
	if w.adapt() {
		defer e.throttler.ProbeDuring(ctx, e.Pool)()
	}
	var failure, err error
	looks := w.findsKept
	if looks {
		err = w.findKept(ctx)
	}
	switch {
	case err != nil:
	case w.bisection.Active() && w.pickLimit() == 1:
		err = e.Retry(ctx, name, func() error { return w.singleRow(ctx, looks) })
	default:
		failure, err = w.table.try(ctx, func() error { return w.batch(ctx) })
	}
	switch {
	case failure != nil:
		return w.narrow(ctx)
	case sqlstate.Is(err, pgerrcode.QueryCanceled) && !w.sizer.Smallest():
		w.sizer.Shrink(0.5, false)
		e.Recorder.Warn(message.BatchHalved.With("table", name, "rows", w.sizer.Rows))
		return nil
	case sqlstate.Is(err, pgerrcode.LockNotAvailable) && !w.skipsLocked():
		w.skipLocked = w.batchEnd()
		return nil
	case sqlstate.Is(err, pgerrcode.QueryCanceled) && w.info.slow != "":
		err = fmt.Errorf("a single row takes too long, look for %s: %w", w.info.slow, err)
	}
	return err
}

// adapt fits the number of workers, the number of statements and the duration of batches to the pace and to whether
// the server is otherwise idle. It reports whether batches give way to other sessions.
func (w *worker) adapt() (givesWay bool) {
	e := w.table.engine
	p, idle := e.Pace.Get(), e.throttler.Idle()
	givesWay = p == pace.Gentle && !idle
	w.limiter.SetMode(idle || p == pace.Fast, givesWay)
	target := cmp.Or(e.Target, DefaultTarget)
	switch {
	case givesWay:
		target = min(target, e.throttler.BatchTarget())
		w.sizer.LimitStatements(1)
	case e.Limits.RowsPerSecond > 0: // several statements at once could exceed the rate
		w.sizer.LimitStatements(1)
	case w.table.sweep.Cascade != nil: // rows that foreign keys delete are counted once per batch
		w.sizer.LimitStatements(1)
	case idle || p == pace.Fast:
		w.sizer.LimitStatements(pace.MaxStatementsIdle)
	default:
		w.sizer.LimitStatements(pace.MaxStatementsBusy)
	}
	w.sizer.SetTarget(target)
	return givesWay
}

var tracer = otel.Tracer("github.com/cleanupd/cleanupd/tasks/purge")

// traceEvery is how often a batch is traced: a large table has thousands of batches.
const traceEvery = time.Second

// traceBatch runs a batch, in a span if the last traced batch was long enough ago.
func (w *worker) traceBatch(ctx context.Context, batch func(context.Context) error) error {
	if time.Since(w.traced) < traceEvery {
		return batch(trace.ContextWithSpan(ctx, noop.Span{}))
	}
	w.traced = time.Now()
	ctx, span := tracer.Start(ctx, "batch",
		trace.WithAttributes(attribute.String("cleanupd.table", w.table.sweep.Name),
			attribute.Int64("cleanupd.from", w.chunk.from)))
	defer span.End()
	err := batch(ctx)
	if err != nil {
		span.SetStatus(codes.Error, sqlstate.Text(err))
	}
	return err
}
