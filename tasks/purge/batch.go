package purge

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// batchResult is the result of a batch's statements.
type batchResult struct {
	begun               time.Time
	picked, changed     int64 // rows that the sweep picked, and that it deleted or updated
	restored            int64 // updated rows that still match, because a trigger changed their new values
	inserted, updated   int64 // rows of the table written by the sweep or by triggers; read only if it has triggers
	paired              int64 // paired rows deleted, or rows written by the companion statement
	left                int64 // picked rows that a circular sweep did not delete
	cascaded            int64 // rows that foreign keys deleted or changed; affected has them by relation
	affected            []Affected
	kept                []int64    // how many rows that foreign keys deleted went to the trash, by table
	moved               bool       // a foreign key has changed rows of the relation
	statements, largest int64      // how many statements changed rows, and the most rows that one changed
	last                pgtype.TID // the last row picked
	filenode            uint32
	took                time.Duration // the batch's time on the server
}

// batch deletes or updates the rows at the beginning of the worker's chunk in one transaction, and moves the
// beginning of the chunk forward.
func (w *worker) batch(ctx context.Context) error {
	n := batchResult{begun: time.Now()}
	next, limit, s := w.windowEnd(), w.pickLimit(), w.table.sweep
	direct := w.info.plain && !w.skipsLocked() && !w.bisection.Active() && w.overfull < maxOverfull &&
		!w.findsKept && !s.Trash.follows() && (w.statements.axis.windows().Exact || next-w.chunk.from > 1)
	var calls []string
	if direct {
		next, calls = w.batchEnd(), []string{genericPlans}
	}
	var before, after counters
	tx, err := w.table.session.begin(ctx, func(b *pgx.Batch) {
		before = s.queueCounters(b)
		if direct {
			w.queueAsOwner(b, &n, func() { w.queueDirect(b, next, &n) })
		} else {
			w.queueWritten(b, -1, &n)
			w.queueAsOwner(b, &n, func() {
				w.queuePicked(b, s.Companion, w.window(next), limit, &n)
				if !w.bisection.Active() { // whose batches are too small for one more statement
					b.Queue("SELECT " + genericPlans) // for the statements that end the batch
				}
			})
			w.queueWritten(b, 1, &n)
		}
		after = s.queueCounters(b)
		w.queueAfter(b, &n)
	}, calls...)
	defer func() { _ = tx.Rollback(ctx) }()
	if err == nil && s.Cascade != nil {
		err = s.settle(before, after, &n)
	}
	if err != nil {
		return err
	}
	switch tooMany := n.largest > int64(w.maxRows); { // no statement may touch more: the batch is rolled back
	case tooMany && direct:
		w.overfull++
		w.sizer.Narrow(n.largest)
		return nil
	case tooMany && n.picked > 1:
		w.family = float64(n.largest) / float64(n.picked)
		return nil
	}
	w.family = max(float64(n.largest)/float64(max(n.picked, 1)), w.family*forgetting)
	done, offset := next, uint16(0)
	all := direct || n.picked < int64(limit) || w.statements.axis.windows().Exact
	if !all {
		done, offset = w.statements.axis.after(n.last)
	}
	span, bisected := next-w.chunk.from, w.bisection.Active()
	if err := w.commit(ctx, tx, n, done, offset); err != nil {
		return err
	}
	if w.bisection.Passed(int(n.picked), w.sizer.Rows); bisected {
		return nil
	}
	if all && (direct || s.Cascade == nil) {
		w.overfull = 0
	}
	w.sizer.Observe(n.took, span, n.largest, direct)
	w.limiter.Observe(n.begun, time.Since(n.begun), n.changed+n.cascaded)
	return nil
}

// window is the condition on the rows from the beginning of the chunk to a position. Once triggers have written to the
// table, it leaves out rows that were written since the sweep began, so that each row is picked only once. It also
// leaves out the rows in kept.
func (w *worker) window(end int64) sqlexpr.Expr {
	window := w.statements.axis.window(w.offset, w.chunk.from, end)
	if len(w.kept) > 0 {
		window = sqlexpr.Format("%s AND (r.ctid IN (SELECT unnest(%s))) IS NOT TRUE", window, sqlexpr.Arg(w.kept, "tid[]"))
	}
	if !w.progress.isRewritten() {
		return window
	}
	return sqlexpr.Format(
		"%s AND (r.xmin::text::bigint - %[2]d) & 4294967295 >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint - %[2]d",
		window, w.info.begun)
}

// rewrites reports whether triggers of the table wrote rows to it in a batch: instead of a deletion, after it, or
// with other values than the sweep's. An update of other rows, for example by a foreign key, does not count.
func (w *worker) rewrites(n batchResult) bool {
	if w.table.sweep.Set != nil {
		return n.inserted > 0 || n.restored > 0 || n.updated > n.changed+n.restored
	}
	return n.inserted > 0 || (n.updated > 0 && n.changed < n.picked)
}

// queueWritten counts the rows that the session has written to a table with triggers, multiplied by sign. Called
// with -1 before the statements of a batch and with 1 after them, it counts what these statements wrote. It does
// nothing during the search for a failing row, which takes many small batches.
func (w *worker) queueWritten(b *pgx.Batch, sign int64, n *batchResult) {
	if !w.info.triggers || w.bisection.Active() {
		return
	}
	const written = "SELECT pg_stat_get_xact_tuples_inserted(c), pg_stat_get_xact_tuples_updated(c) " +
		"FROM CAST($1::text AS regclass) AS c"
	b.Queue(written, w.table.sweep.Relation).QueryRow(func(row pgx.Row) error {
		var inserted, updated int64
		err := row.Scan(&inserted, &updated)
		n.inserted, n.updated = n.inserted+sign*inserted, n.updated+sign*updated
		return err
	})
}

// commit counts the rows of the batch that are retained, writes the ledger and ends the transaction. The batch is
// done up to a position, and up to an offset in the block there.
func (w *worker) commit(ctx context.Context, tx pgx.Tx, n batchResult, done int64, offset uint16) error {
	e, s := w.table.engine, w.table.sweep
	if w.info.triggers && w.rewrites(n) {
		w.progress.rewrite()
	}
	suppressing := w.suppressing || n.changed < n.picked || n.left > 0
	var retained Retained
	if from := w.progress.uncounted(w.chunk.from); done > from && (w.skipsLocked() || suppressing) {
		var err error
		if retained, err = w.retained(ctx, tx, from, done); err != nil {
			return err
		}
	}
	d := s.delta(n)
	d.Cursor = w.progress.cursor(&w.chunk, done, n.filenode)
	if err := e.Commit(ctx, tx, d); err != nil {
		return err
	}
	w.offset, w.suppressing = offset, suppressing && offset > 0
	w.progress.committed(&w.chunk, done, n, retained, w.sizer)
	e.Spend(n.changed+n.paired+n.cascaded, n.begun)
	return nil
}

// retained counts the rows that are still there between two positions by their reason, apart from those that failed.
// In a circular sweep they are locked, or rows that are retained refer to them.
func (w *worker) retained(ctx context.Context, tx pgx.Tx, from, to int64) (r Retained, err error) {
	window, failed := w.statements.axis.window(0, from, to), w.progress.failedBetween(from, to)
	var rows, unlocked int64
	if err := w.statements.remaining(window).QueryRow(ctx, tx).Scan(&rows); err != nil {
		return r, err
	}
	switch circular := w.table.sweep.Cascade.Circular(); {
	case circular && w.skipsLocked():
		err = w.statements.unlocked(window).QueryRow(ctx, tx).Scan(&unlocked)
		r.Dependent, r.Locked = max(unlocked-failed, 0), rows-unlocked
	case circular:
		r.Dependent = max(rows-failed, 0)
	case w.skipsLocked():
		r.Locked = max(rows-failed, 0)
	default:
		r.Suppressed = max(rows-failed, 0)
	}
	return r, err
}

// queueAsOwner runs the statements as the table's owner if that is allowed. Triggers then also run as the owner;
// deferred triggers are fired before the role is reset, since before PostgreSQL 18 they run as the role that commits.
// The relations are checked again as the owner, because row security may hide rows from that role by now. This is not a
// security boundary: a trigger may run RESET ROLE.
func (w *worker) queueAsOwner(b *pgx.Batch, n *batchResult, queue func()) {
	if w.info.owner == "" {
		queue()
		return
	}
	b.Queue("SET LOCAL ROLE " + w.info.owner)
	queue()
	b.Queue("SET CONSTRAINTS ALL IMMEDIATE")
	w.queueAfter(b, n)
	b.Queue("RESET ROLE")
}

// queueDirect queues the plain statement for each window, however many rows it has. This takes half the time of
// picking rows first, and the windows are sized so that they seldom have too many rows.
func (w *worker) queueDirect(b *pgx.Batch, end int64, n *batchResult) {
	sql, _ := w.statements.direct(w.window(end)).Build() // built once, since it is long where many ids are on hold
	for from := w.chunk.from; from < end; from += w.sizer.Width {
		window := w.statements.axis.window(0, from, min(from+w.sizer.Width, end))
		b.Queue(sql, w.statements.direct(window).Args()...).Exec(func(tag pgconn.CommandTag) error {
			if rows := tag.RowsAffected(); rows > 0 {
				n.changed, n.picked = n.changed+rows, n.picked+rows
				n.statements, n.largest = n.statements+1, max(n.largest, rows)
			}
			return nil
		})
	}
}

// queuePicked queues a statement that first picks rows of a window, up to a limit, and then changes them.
func (w *worker) queuePicked(b *pgx.Batch, c *Companion, window sqlexpr.Expr, limit int, n *batchResult) {
	pick := w.statements.pick(window, limit, w.skipsLocked())
	if w.info.also {
		w.queuePickedApart(b, pick, n)
		return
	}
	sql, args := w.statements.pickAndChange(c, pick, w.skipsLocked()).Build()
	b.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&n.picked, &n.changed, &n.restored, &n.paired, &n.last, &n.left, &n.kept)
		n.statements, n.largest = 1, n.changed
		return err
	})
}

// queuePickedApart counts the picked rows in a separate statement, because a command with a DO ALSO rule cannot be
// part of a WITH query.
func (w *worker) queuePickedApart(b *pgx.Batch, pick sqlexpr.Expr, n *batchResult) {
	count, args := ofPicked("count(*), max(place)", pick).Build()
	b.Queue(count, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&n.picked, &n.last) })
	change, args := w.statements.onRows(ofPicked("place", pick)).Build()
	b.Queue(change, args...).Exec(func(tag pgconn.CommandTag) error {
		n.changed, n.statements, n.largest = tag.RowsAffected(), 1, tag.RowsAffected()
		return nil
	})
}

// queueAfter queues the last statement of a batch. It fails with the errors of requireUnchanged, and the batch is then
// rolled back.
func (w *worker) queueAfter(b *pgx.Batch, n *batchResult) {
	s := w.table.sweep
	s.Trash.queueColumns(b)
	b.Queue(afterSQL, s.afterArgs()...).QueryRow(func(row pgx.Row) error {
		var (
			attached bool
			changed  string
		)
		if err := row.Scan(&n.filenode, &n.took, &attached, &changed); err != nil {
			return err
		}
		return check(attached, changed)
	})
}
