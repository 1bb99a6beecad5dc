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
)

// worker is one of a sweep's workers, with its stretch of the axis.
type worker struct {
	*sweep
	session *session
	pace
	from, to int64 // [from, to) is still to be done
	// skipLocked is the position below which rows that others have locked are skipped.
	skipLocked int64
	behind     uint16    // the offset in the stretch's first block up to which rows were picked already
	refused    bool      // some rows that were picked stay, since the last count of those that do
	narrowed   int       // consecutive batches that had too many rows
	spanned    time.Time // when a batch was last traced
}

// patience is the number of consecutive batches with too many rows after which rows are picked first, until there are fewer.
const patience = 2

// work does one stretch after another, up to the end. The worker has entered the crowd; it opens a session if it has none.
func (w *worker) work(ctx context.Context, end int64) (err error) {
	defer w.crowd.leave()
	w.pace = w.pacing()
	for w.take(w, end) {
		if w.session == nil {
			if w.session, err = w.Engine.session(ctx); err != nil {
				return err
			}
			defer w.session.end(ctx)
		}
		for w.from < w.to {
			w.extend(w, end)
			err := w.traced(ctx, w.step)
			// Skipping locked rows needs the right to lock them (UPDATE), which the role may not have.
			if sqlstate.Is(err, pgerrcode.LockNotAvailable) || w.passesOver() && sqlstate.Is(err, pgerrcode.InsufficientPrivilege) {
				w.endSweep()
				return nil
			}
			if err != nil {
				return err
			}
			if err := w.crowd.stay(ctx); err != nil {
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
func (w *worker) reach() int64 { return min(w.from+w.width*w.together, w.to) }

// step runs one batch, and makes the next one smaller, or skip locked rows, if it ran into a timeout.
func (w *worker) step(ctx context.Context) error {
	if err := w.Polite(ctx); err != nil {
		return err
	}
	w.adapt()
	err := w.Retry(ctx, w.Name, func() error { return w.batch(ctx) })
	switch {
	case sqlstate.Is(err, pgerrcode.QueryCanceled) && !w.smallest():
		w.shrink(0.5, false)
		w.Warn(fmt.Sprintf("%s: a batch took too long; going on with half of it: %d rows at most", w.Name, w.limit))
		return nil
	case sqlstate.Is(err, pgerrcode.LockNotAvailable) && !w.passesOver():
		w.skipLocked = w.reach()
		return nil
	}
	return err
}

// adapt fits the number of workers and statements to whether the server is otherwise idle.
func (w *worker) adapt() {
	quiet := w.quiet()
	w.crowd.see(quiet)
	switch {
	case w.Limits.RowsPerSecond > 0: // which several statements at once would exceed
		w.atOnce(1)
	case quiet:
		w.atOnce(mostAlone)
	default:
		w.atOnce(mostBeside)
	}
}

// went is what the statements of a batch did.
type went struct {
	picked, gone, twins int64      // twins: what Also wrote, if it is given
	statements, largest int64      // those that changed rows, and the most rows of one
	last                pgtype.TID // of the rows picked
	filenode            uint32
	took                time.Duration // on the server
}

// batch deletes or updates rows at the beginning of the stretch, in a transaction, and shortens the stretch.
func (w *worker) batch(ctx context.Context) error {
	begun := time.Now()
	next := min(w.from+w.width, w.to)
	if w.passesOver() {
		next = min(next, w.skipLocked)
	}
	direct := w.simple && !w.passesOver() && w.narrowed < patience && (w.found != nil || next-w.from > 1)
	statements, calls := w.pick, []string(nil)
	switch {
	case direct:
		next = w.reach()
		statements, calls = w.direct, []string{plannedOnce}
	case w.ruled:
		statements = w.pickApart
	}
	var n went
	tx, err := w.session.begin(ctx, func(b *pgx.Batch) {
		statements(b, next, &n)
		b.Queue(afterSQL, w.Relation).QueryRow(func(row pgx.Row) error { return row.Scan(&n.filenode, &n.took) })
	}, calls...)
	defer func() { _ = tx.Rollback(ctx) }()
	if err != nil {
		return err
	}
	if direct && n.largest > int64(w.most) { // rolled back: no statement may touch more
		w.narrowed++
		w.width, w.together = w.room(w.width, n.largest), 1
		return nil
	}
	done, behind, refused := next, uint16(0), w.refused || n.gone < n.picked
	if !direct && w.full(n.picked) {
		done, behind = w.past(n.last)
	}
	var left int64
	if done > w.from && (w.passesOver() || refused) {
		if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM ONLY %s AS r WHERE %s AND (%s) IS TRUE", w.Relation, w.window(len(w.Args)), w.Where),
			slices.Concat(w.Args, w.places(w.from, done))...).Scan(&left); err != nil {
			return err
		}
	}
	d := w.delta(n)
	d.Cursor, d.Begun = w.cursor(w, done, n.filenode), begun
	if err := w.Commit(ctx, tx, d); err != nil {
		return err
	}
	if w.behind, w.refused = behind, refused && behind > 0; direct || !w.full(n.picked) {
		w.narrowed = 0
	}
	w.took(n.took, next-w.from, n.largest, direct)
	w.crowd.took(begun, time.Since(begun), n.gone)
	w.committed(w, done, n.gone, left)
	w.Spend(n.gone + n.twins)
	return nil
}

// delta is the account of what a batch did.
func (sw *sweep) delta(n went) Delta {
	switch {
	case sw.Set != nil:
		return Delta{Updated: n.gone, Statements: n.statements, Largest: n.largest}
	case n.gone == 0:
		return Delta{}
	}
	d := Delta{Deleted: n.gone, Statements: n.statements, Largest: n.largest, Space: []Space{{Relation: sw.Relation, Rows: n.gone}}}
	switch {
	case sw.Also != nil:
		d.Recorded = n.twins
	case n.twins > 0:
		d.Deleted += n.twins
		d.Space = append(d.Space, Space{Relation: sw.Twin.Relation, Rows: n.twins})
	}
	return d
}

// pick queues the statement that picks rows first, up to the limit.
func (w *worker) pick(b *pgx.Batch, next int64, n *went) {
	b.Queue(w.pickSQL(), slices.Concat(w.Args, w.SetArgs, []any{w.limit}, w.placesBehind(w.behind, w.from, next))...).
		QueryRow(func(row pgx.Row) error {
			err := row.Scan(&n.picked, &n.gone, &n.twins, &n.last)
			n.statements, n.largest = 1, n.gone
			return err
		})
}

// pickApart queues a statement that counts the rows to be picked, and then the command, which with a DO ALSO rule cannot be
// part of a WITH query.
func (w *worker) pickApart(b *pgx.Batch, next int64, n *went) {
	picked := append([]any{w.limit}, w.placesBehind(w.behind, w.from, next)...)
	b.Queue("SELECT count(*), max(place) FROM ("+w.picking(len(w.Args))+") AS pick", slices.Concat(w.Args, picked)...).
		QueryRow(func(row pgx.Row) error { return row.Scan(&n.picked, &n.last) })
	b.Queue(w.chosen("SELECT place FROM ("+w.picking(len(w.Args)+len(w.SetArgs))+") AS pick"), slices.Concat(w.Args, w.SetArgs, picked)...).
		Exec(func(tag pgconn.CommandTag) error {
			n.gone, n.statements, n.largest = tag.RowsAffected(), 1, tag.RowsAffected()
			return nil
		})
}

// direct queues the plain statement for one window after another, however many rows each has: this takes half the time, and
// windows are chosen so that they seldom have too many.
func (w *worker) direct(b *pgx.Batch, next int64, n *went) {
	for from := w.from; from < next; from += w.width {
		b.Queue(w.directSQL(), slices.Concat(w.Args, w.SetArgs, w.places(from, min(from+w.width, next)))...).Exec(func(tag pgconn.CommandTag) error {
			if gone := tag.RowsAffected(); gone > 0 {
				n.gone, n.picked, n.statements, n.largest = n.gone+gone, n.picked+gone, n.statements+1, max(n.largest, gone)
			}
			return nil
		})
	}
}
