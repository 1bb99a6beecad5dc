package purge

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// worker is one of a sweep's workers, with its chunk of the axis.
type worker struct {
	*sweep
	session *session
	pace.Sizer
	from, to int64 // [from, to) is still to be done
	// skipLocked is the position below which rows that others have locked are skipped.
	skipLocked int64
	behind     uint16 // the offset in the chunk's first block up to which rows were picked already
	keeps      bool   // some rows that were picked stay, since the last count of those that do
	bisect     pace.Bisection
	narrowed   int       // consecutive batches that had too many rows
	spanned    time.Time // when a batch was last traced
}

// mostNarrowed is the number of consecutive batches with too many rows after which rows are picked first, until there
// are fewer.
const mostNarrowed = 2

// work does one chunk after another, up to the end. The limiter has let the worker in; it opens a session if it has
// none.
func (w *worker) work(ctx context.Context, end int64) (err error) {
	defer w.limiter.Release()
	w.Sizer = w.newSizer()
	for w.take(w, end) {
		if w.session == nil {
			if w.session, err = w.Engine.session(ctx); err != nil {
				return err
			}
			defer w.session.end(ctx)
		}
		for w.from < w.to && !w.over() {
			w.extend(w, end)
			err := w.traced(ctx, w.step)
			// Skipping locked rows needs the right to lock them (UPDATE), which the role may not have.
			if sqlstate.Is(err, pgerrcode.LockNotAvailable) ||
				(w.passesOver() && sqlstate.Is(err, pgerrcode.InsufficientPrivilege)) {
				w.endSweep()
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

// endSweep ends the sweep: there is a lock that cannot be skipped.
func (w *worker) endSweep() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.TableLocked = true
}

func (w *worker) passesOver() bool { return w.from < w.skipLocked }

// reach is where the windows of a batch end.
func (w *worker) reach() int64 { return min(w.from+w.Span(), w.to) }

// next is where the first window of a batch ends.
func (w *worker) next() int64 {
	next := min(w.from+w.Width, w.to)
	if w.passesOver() {
		next = min(next, w.skipLocked)
	}
	return next
}

// pickLimit returns the maximum number of rows that a statement of the next batch picks.
func (w *worker) pickLimit() int { return w.bisect.Limit(w.Rows) }

// step runs one batch, and makes the next one smaller, or skip locked rows, if it ran into a timeout or rows refused
// it.
func (w *worker) step(ctx context.Context) error {
	if err := w.Wait(ctx); err != nil {
		return err
	}
	w.adapt()
	var refusal, err error
	if w.bisect.Limit(w.Rows) == 1 && w.bisect.Active() {
		err = w.Retry(ctx, w.Name, func() error { return w.one(ctx) })
	} else {
		refusal, err = w.try(ctx, func() error { return w.batch(ctx) })
	}
	switch {
	case refusal != nil:
		return w.narrow(ctx)
	case sqlstate.Is(err, pgerrcode.QueryCanceled) && !w.Smallest():
		w.Shrink(0.5, false)
		w.Recorder.Warn(
			fmt.Sprintf("%s: a batch took too long; going on with half of it: %d rows at most", w.Name, w.Rows),
		)
		return nil
	case sqlstate.Is(err, pgerrcode.LockNotAvailable) && !w.passesOver():
		w.skipLocked = w.reach()
		return nil
	case sqlstate.Is(err, pgerrcode.QueryCanceled) && w.slow != "":
		err = fmt.Errorf("not even one row is done within the time, look for %s: %w", w.slow, err)
	}
	return err
}

// adapt fits the number of workers and statements to whether the server is otherwise idle.
func (w *worker) adapt() {
	idle := w.throttler.Idle()
	w.limiter.SetIdle(idle)
	switch {
	case w.Limits.RowsPerSecond > 0: // which several statements at once would exceed
		w.LimitStatements(1)
	case idle:
		w.LimitStatements(pace.MaxStatementsIdle)
	default:
		w.LimitStatements(pace.MaxStatementsBusy)
	}
}

// batchResult is what the statements of a batch did.
type batchResult struct {
	picked, gone, paired int64      // paired: what Also wrote, if it is given
	statements, largest  int64      // those that changed rows, and the most rows of one
	last                 pgtype.TID // of the rows picked
	filenode             uint32
	took                 time.Duration // on the server
}

// batch deletes or updates rows at the beginning of the chunk, in a transaction, and shortens the chunk.
func (w *worker) batch(ctx context.Context) error {
	begun := time.Now()
	next, limit := w.next(), w.pickLimit()
	direct := w.simple && !w.passesOver() && !w.bisect.Active() && w.narrowed < mostNarrowed &&
		(w.found != nil || next-w.from > 1)
	var calls []string
	if direct {
		next, calls = w.reach(), []string{plannedOnce}
	}
	var n batchResult
	tx, err := w.session.begin(ctx, func(b *pgx.Batch) {
		if direct {
			w.direct(b, next, &n)
		} else {
			w.picked(w.Companion)(b, w.boundsAfter(w.behind, w.from, next), limit, &n)
		}
		b.Queue(afterSQL, w.Relation).QueryRow(func(row pgx.Row) error { return row.Scan(&n.filenode, &n.took) })
	}, calls...)
	defer func() { _ = tx.Rollback(ctx) }()
	if err != nil {
		return err
	}
	if direct && n.largest > int64(w.mostRows) { // rolled back: no statement may touch more
		w.narrowed++
		w.Narrow(n.largest)
		return nil
	}
	done, behind, all := next, uint16(0), direct || n.picked < int64(limit)
	if !all {
		done, behind = w.after(n.last)
	}
	width, bisected := next-w.from, w.bisect.Active()
	if err := w.commit(ctx, tx, begun, n, done, behind); err != nil {
		return err
	}
	if w.bisect.Passed(int(n.picked), w.Rows); bisected {
		return nil
	}
	if all {
		w.narrowed = 0
	}
	w.Sizer.Observe(n.took, width, n.largest, direct)
	w.limiter.Observe(begun, time.Since(begun), n.gone)
	return nil
}

// commit commits a batch, with its account, after which the chunk is done up to a position and some rows behind it.
func (w *worker) commit(
	ctx context.Context,
	tx pgx.Tx,
	begun time.Time,
	n batchResult,
	done int64,
	behind uint16,
) error {
	keeps := w.keeps || n.gone < n.picked
	var left int64
	if from := w.uncounted(w.from); done > from && (w.passesOver() || keeps) {
		if err := tx.QueryRow(ctx, fmt.Sprintf(
			"SELECT count(*) FROM ONLY %s AS r WHERE %s AND (%s) IS TRUE",
			w.Relation,
			w.window(len(w.Args)),
			w.Where,
		),
			slices.Concat(w.Args, w.bounds(from, done))...).
			Scan(&left); err != nil {
			return err
		}
		left = max(left-w.refusedIn(from, done), 0)
	}
	d := w.delta(n)
	d.Cursor, d.Begun = w.cursor(w, done, n.filenode), begun
	if err := w.Commit(ctx, tx, d); err != nil {
		return err
	}
	w.behind, w.keeps = behind, keeps && behind > 0
	w.committed(w, done, n.gone, left)
	w.Spend(n.gone + n.paired)
	return nil
}

// delta is the account of what a batch did.
func (sw *sweep) delta(n batchResult) Delta {
	switch {
	case n.gone == 0:
		return Delta{}
	case sw.Set != nil:
		return Delta{
			Updated:    n.gone,
			Statements: n.statements,
			Largest:    n.largest,
			Space:      []Space{{Relation: sw.Relation, Root: sw.Root, Updated: n.gone}},
		}
	}
	d := Delta{
		Deleted:    n.gone,
		Statements: n.statements,
		Largest:    n.largest,
		Space:      []Space{{Relation: sw.Relation, Root: sw.Root, Rows: n.gone}},
	}
	switch {
	case sw.Companion != nil:
		d.Recorded = n.paired
	case n.paired > 0:
		d.Deleted += n.paired
		d.Space = append(d.Space, Space{Relation: sw.Paired.Relation, Root: sw.Paired.Relation, Rows: n.paired})
	}
	return d
}

// picked is what queues the statements that pick rows first, up to a limit, within some bounds.
func (w *worker) picked(also *Companion) func(b *pgx.Batch, bounds []any, limit int, n *batchResult) {
	if w.ruled {
		return w.pickApart
	}
	args := slices.Concat(w.Args, w.SetArgs)
	if also != nil {
		args = append(args, also.Args...)
	}
	return func(b *pgx.Batch, bounds []any, limit int, n *batchResult) {
		b.Queue(w.pickSQL(also, len(args)), slices.Concat(args, []any{limit}, bounds)...).
			QueryRow(func(row pgx.Row) error {
				err := row.Scan(&n.picked, &n.gone, &n.paired, &n.last)
				n.statements, n.largest = 1, n.gone
				return err
			})
	}
}

// pickApart queues a statement that counts the rows to be picked, and then the command, which with a DO ALSO rule
// cannot be part of a WITH query.
func (w *worker) pickApart(b *pgx.Batch, bounds []any, limit int, n *batchResult) {
	picked := append([]any{limit}, bounds...)
	b.Queue("SELECT count(*), max(place) FROM ("+w.picking(len(w.Args))+") AS pick", slices.Concat(w.Args, picked)...).
		QueryRow(func(row pgx.Row) error { return row.Scan(&n.picked, &n.last) })
	b.Queue(
		w.chosen("SELECT place FROM ("+w.picking(len(w.Args)+len(w.SetArgs))+") AS pick"),
		slices.Concat(w.Args, w.SetArgs, picked)...,
	).
		Exec(func(tag pgconn.CommandTag) error {
			n.gone, n.statements, n.largest = tag.RowsAffected(), 1, tag.RowsAffected()
			return nil
		})
}

// direct queues the plain statement for one window after another, however many rows each has: this takes half the time,
// and windows are chosen so that they seldom have too many.
func (w *worker) direct(b *pgx.Batch, next int64, n *batchResult) {
	sql := w.directSQL() // long where many ids are on hold
	for from := w.from; from < next; from += w.Width {
		b.Queue(sql, slices.Concat(w.Args, w.SetArgs, w.bounds(from, min(from+w.Width, next)))...).
			Exec(func(tag pgconn.CommandTag) error {
				if gone := tag.RowsAffected(); gone > 0 {
					n.gone, n.picked = n.gone+gone, n.picked+gone
					n.statements, n.largest = n.statements+1, max(n.largest, gone)
				}
				return nil
			})
	}
}
