package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// A batch with a row that fails is rolled back. Smaller batches follow until the row is found; it is then skipped.

// A sweep gives up if more than MaxFailedRows rows failed in all sweeps of its caller, not counting Kept ones; by then
// the rows are probably not the cause.
const MaxFailedRows = 1_000

const FailedRowsLogged = 20

// maxMessage is the maximum length of an error text, in characters.
const maxMessage = 300

// try runs a batch, and retries it after transient errors. failure is the error of a row, which the same batch would
// meet again. A unique violation is not such an error if there is a companion statement: its new ids may be free on the
// next attempt.
func (t *table) try(ctx context.Context, batch func() error) (failure, err error) {
	err = t.engine.Retry(ctx, t.sweep.Name, func() error {
		err := batch()
		if errors.Is(err, ErrTookMore) ||
			sqlstate.OfRow(err) && (t.sweep.Companion == nil || !sqlstate.Is(err, pgerrcode.UniqueViolation)) {
			failure, err = err, nil
		}
		return err
	})
	return failure, err
}

func (w *worker) narrow(ctx context.Context) error {
	if w.bisection.Narrowing() {
		w.bisection.Failed(w.pickLimit())
		return nil
	}
	var picked int
	pick := w.statements.pick(w.window(w.windowEnd()), w.pickLimit(), w.skipsLocked())
	err := w.table.query(ctx, ofPicked("count(*)", pick), &picked)
	w.bisection.Failed(picked)
	return err
}

// singleRow runs a batch of one row. If the row fails, it is skipped, and the same transaction counts it. looked is set
// if the rows of the window to which others refer were found before.
func (w *worker) singleRow(ctx context.Context, looked bool) error {
	var (
		n     = batchResult{begun: time.Now()}
		next  = w.windowEnd()
		key   *string
		row   pgtype.TID
		bound bool
	)
	tx, err := w.table.session.begin(ctx, func(b *pgx.Batch) {
		sql, args := w.table.sweep.pickBound(w.statements.pick(w.window(next), 1, w.skipsLocked())).Build()
		b.Queue(sql, args...).QueryRow(func(r pgx.Row) error {
			if err := r.Scan(&row, &key, &bound); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return nil
		})
		w.queueAfter(b, &n)
	})
	defer func() { _ = tx.Rollback(ctx) }()
	if err != nil {
		return err
	}
	if !row.Valid {
		w.bisection.Passed(1, w.sizer.Rows)
		return w.commit(ctx, tx, n, next, 0)
	}
	done, offset := w.statements.axis.after(row)
	if bound {
		n.picked, n.left = 1, 1
		w.bisection.Passed(1, w.sizer.Rows)
	}
	if bound || w.progress.hasFailed(row) {
		return w.commit(ctx, tx, n, done, offset)
	}
	companion := w.table.sweep.Companion
	failure := w.inSavepoint(ctx, tx, row, companion, &n)
	switch {
	case failure == nil:
		err = w.commit(ctx, tx, n, done, offset)
		w.bisection.Passed(1, w.sizer.Rows)
		return err
	case !sqlstate.OfRow(failure) && !errors.Is(failure, ErrTookMore):
		return failure
	case companion != nil: // the companion may be the cause
		if err := w.inSavepoint(ctx, tx, row, nil, &batchResult{}); err == nil {
			return failure
		} else if !sqlstate.OfRow(err) {
			return err
		}
	case !looked && sqlstate.Is(failure, pgerrcode.ForeignKeyViolation) && w.mayFindKept():
		w.findsKept = true
		return nil
	}
	if err := w.commit(ctx, tx, batchResult{begun: n.begun, filenode: n.filenode}, done, offset); err != nil {
		return err
	}
	w.bisection.Skipped()
	if w.progress.fail(row, w.table.sweep.asFailed(1, failure), failure) {
		w.table.engine.Recorder.Warn(RowFailed(w.table.sweep.Name, row, key, failure))
	}
	return nil
}

// mayFindKept reports whether rows to which others refer can be found by a condition. The statement of a circular sweep
// leaves them out itself.
func (w *worker) mayFindKept() bool {
	return !w.table.sweep.Refused.IsZero() && !w.table.sweep.Cascade.Circular()
}

// findKept retains the rows of the next window to which others still refer: finding one of them by trying takes several
// batches that fail. The worker looks for such rows from the start, unless triggers or rules may delete the referring
// rows first, and again after one has failed, until a window has none.
func (w *worker) findKept(ctx context.Context) error {
	window := sqlexpr.Format("%s AND (%s) IS TRUE", w.statements.axis.window(w.offset, w.chunk.from, w.windowEnd()),
		w.table.sweep.Refused)
	query := ofPicked("place", w.statements.pick(window, math.MaxInt32, false))
	return w.table.engine.Retry(ctx, w.table.sweep.Name, func() error {
		w.kept = nil
		var row pgtype.TID
		_, err := pgx.ForEachRow(query.Query(ctx, w.table.session.conn), []any{&row}, func() error {
			w.kept = append(w.kept, row)
			w.progress.keep(row)
			return nil
		})
		w.findsKept = len(w.kept) > 0
		return err
	})
}

// inSavepoint deletes or updates a single row, and undoes only this part of the transaction if it fails. It also checks
// deferred constraints.
func (w *worker) inSavepoint(ctx context.Context, tx pgx.Tx, row pgtype.TID, c *Companion, n *batchResult) error {
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		b, s := &pgx.Batch{}, w.table.sweep
		before := s.queueCounters(b)
		w.queueAsOwner(b, n, func() { w.queuePicked(b, c, w.statements.axis.rowWindow(row), 1, n) })
		b.Queue("SET CONSTRAINTS ALL IMMEDIATE")
		after := s.queueCounters(b)
		if err := tx.SendBatch(ctx, b).Close(); err != nil || s.Cascade == nil {
			return err
		}
		return s.settle(before, after, n)
	})
}

// RowFailed is the message for a row that failed. It names the row by its key, or by its TID if key is nil.
func RowFailed(table string, row pgtype.TID, key *string, err error) message.Message {
	name := fmt.Sprintf("at TID (%d,%d)", row.BlockNumber, row.OffsetNumber)
	if key != nil {
		name = *key
	}
	return message.RowFailed.With("table", table, "row", name, "error", Message(err))
}

// Message returns the text, the SQLSTATE and the hint of an error of PostgreSQL on one line, without control
// characters and of limited length.
func Message(err error) string {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err.Error()
	}
	text := fmt.Sprintf("%s (SQLSTATE %s)", oneLine(pgErr.Message), pgErr.Code)
	if pgErr.Hint != "" {
		text += "; hint: " + oneLine(pgErr.Hint)
	}
	return text
}

func oneLine(text string) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
	if len(runes) > maxMessage {
		runes = append(runes[:maxMessage], '…')
	}
	return string(runes)
}

type RowError struct {
	Row pgtype.TID
	Err error
}

// FindRowErrors returns rows that cannot be deleted, with their errors, and stops after MaxFailedRows + 1. The
// transaction keeps none of its attempts.
func FindRowErrors(ctx context.Context, tx pgx.Tx, relation string, rows []pgtype.TID) (failed []RowError, err error) {
	undone := errors.New("undone")
	var bisection pace.Bisection
	for len(rows) > 0 && len(failed) <= MaxFailedRows {
		some := rows[:bisection.Limit(len(rows))]
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("DELETE FROM "+relation+" WHERE ctid = ANY ($1::tid[])", some)
			b.Queue("SET CONSTRAINTS ALL IMMEDIATE")
			return cmp.Or(tx.SendBatch(ctx, b).Close(), undone)
		})
		switch {
		case errors.Is(err, undone):
			bisection.Passed(len(some), len(rows))
		case !sqlstate.OfRow(err):
			return nil, err
		case len(some) > 1:
			bisection.Failed(len(some))
			continue
		default:
			failed = append(failed, RowError{some[0], err})
			bisection.Skipped()
		}
		rows = rows[len(some):]
	}
	return failed, nil
}
