package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

// A batch that a row refuses is rolled back. Smaller ones follow, down to that row alone, which is passed over.

// MaxFailedRows is how many rows of one caller's sweeps may refuse before a sweep gives up: then it is probably not the
// rows.
const MaxFailedRows = 1_000

// FailedRowsLogged is how many rows of a table are named that refuse.
const FailedRowsLogged = 20

// messageShown is how many characters of an error's message are shown.
const messageShown = 300

// try runs a batch, and again after transient errors. It returns apart whether rows refused it, which the same batch
// would meet again. The ids that Also takes may pass.
func (sw *sweep) try(ctx context.Context, batch func() error) (refusal, err error) {
	err = sw.Retry(ctx, sw.Name, func() error {
		err := batch()
		if sqlstate.OfRow(err) && (sw.Companion == nil || !sqlstate.Is(err, pgerrcode.UniqueViolation)) {
			refusal, err = err, nil
		}
		return err
	})
	return refusal, err
}

// narrow makes the next batch smaller after one that was refused.
func (w *worker) narrow(ctx context.Context) error {
	if w.bisect.Narrowing() {
		w.bisect.Failed(w.pickLimit())
		return nil
	}
	var picked int
	err := w.read(
		ctx,
		[]any{&picked},
		"SELECT count(*) FROM ("+w.picking(len(w.Args))+") AS pick",
		slices.Concat(w.Args, []any{w.pickLimit()}, w.boundsAfter(w.behind, w.from, w.next()))...)
	w.bisect.Failed(picked)
	return err
}

// one deletes or updates the next row alone. If it refuses it is passed over, in the transaction that counts it.
func (w *worker) one(ctx context.Context) error {
	var (
		n     = batchResult{}
		begun = time.Now()
		next  = w.next()
		name  *string
		row   pgtype.TID
	)
	tx, err := w.session.begin(ctx, func(b *pgx.Batch) {
		b.Queue(
			"SELECT place, name FROM ("+w.picking(len(w.Args))+") AS pick",
			slices.Concat(w.Args, []any{1}, w.boundsAfter(w.behind, w.from, next))...,
		).
			QueryRow(func(r pgx.Row) error {
				if err := r.Scan(&row, &name); !errors.Is(err, pgx.ErrNoRows) {
					return err
				}
				return nil
			})
		b.Queue(afterSQL, w.Relation).QueryRow(func(r pgx.Row) error { return r.Scan(&n.filenode, nil) })
	})
	defer func() { _ = tx.Rollback(ctx) }()
	if err != nil {
		return err
	}
	if !row.Valid {
		w.bisect.Passed(1, w.Rows)
		return w.commit(ctx, tx, begun, n, next, 0)
	}
	done, behind := w.after(row)
	if w.hasRefused(row) {
		return w.commit(ctx, tx, begun, n, done, behind)
	}
	refusal := w.alone(ctx, tx, row, w.Companion, &n)
	switch {
	case refusal == nil:
		err = w.commit(ctx, tx, begun, n, done, behind)
		w.bisect.Passed(1, w.Rows)
		return err
	case !sqlstate.OfRow(refusal):
		return refusal
	case w.Companion != nil: // which may be what is refused
		if err := w.alone(ctx, tx, row, nil, &batchResult{}); err == nil {
			return refusal
		} else if !sqlstate.OfRow(err) {
			return err
		}
	}
	if err := w.commit(ctx, tx, begun, batchResult{filenode: n.filenode}, done, behind); err != nil {
		return err
	}
	w.bisect.Skipped()
	w.refuse(row, name, refusal)
	return nil
}

// alone deletes or updates one row, in a part of the transaction that is undone if it fails. Deferred constraints are
// checked, too.
func (w *worker) alone(ctx context.Context, tx pgx.Tx, row pgtype.TID, also *Companion, n *batchResult) error {
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		w.picked(also)(b, w.only(row), 1, n)
		b.Queue("SET CONSTRAINTS ALL IMMEDIATE")
		return tx.SendBatch(ctx, b).Close()
	})
}

// refuse records that a row was passed over. name is its key.
func (sw *sweep) refuse(row pgtype.TID, name *string, refusal error) {
	sw.mu.Lock()
	sw.refused[row] = true
	place, counted := sw.place(row), sw.counted
	sw.mu.Unlock()
	if place < counted {
		return
	}
	sw.refuseRows(DescribeRowError(sw.Name, row, name, refusal), 1, place+1, refusal)
}

// DescribeRowError says that a row of a table refuses, and with what error. name is its key; nil: its TID names it.
func DescribeRowError(table string, row pgtype.TID, name *string, refusal error) string {
	what := fmt.Sprintf("at TID (%d,%d)", row.BlockNumber, row.OffsetNumber)
	if name != nil {
		what = *name
	}
	return fmt.Sprintf("%s: row %s refuses and stays: %s", table, what, Message(refusal))
}

// hasRefused reports whether a row was passed over before.
func (sw *sweep) hasRefused(row pgtype.TID) bool {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	return sw.refused[row]
}

// refuseRows counts rows that refused, below a position, and tells of the first ones.
func (sw *sweep) refuseRows(message string, rows, below int64, refusal error) {
	sw.mu.Lock()
	sw.leave(below, Retained{Failed: rows})
	sw.named++
	named := sw.named
	if sw.result.FirstError == nil {
		sw.result.FirstError = refusal
	}
	sw.result.GaveUp = sw.before.Failed+sw.left().Failed > MaxFailedRows
	sw.mu.Unlock()
	if named <= FailedRowsLogged {
		sw.Recorder.Warn(message)
	}
}

// over reports whether the sweep has ended early.
func (sw *sweep) over() bool {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	return sw.result.TableLocked || sw.result.GaveUp
}

// Message returns the message, the SQLSTATE and the hint of an error of PostgreSQL, on one line without control
// characters, and not too long.
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

// oneLine returns the beginning of a server's text, on one line.
func oneLine(text string) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
	if len(runes) > messageShown {
		runes = append(runes[:messageShown], '…')
	}
	return string(runes)
}

// RowError is a row whose deletion refuses, and the error.
type RowError struct {
	Row pgtype.TID
	Err error
}

// FindRowErrors returns which of some rows refuse to be deleted, one more than MostRefused at most. It deletes nothing: what
// it tries in the transaction, it undoes.
func FindRowErrors(
	ctx context.Context,
	tx pgx.Tx,
	relation string,
	rows []pgtype.TID,
) (refusals []RowError, err error) {
	undone := errors.New("undone")
	var bisect pace.Bisection
	for len(rows) > 0 && len(refusals) <= MaxFailedRows {
		some := rows[:bisect.Limit(len(rows))]
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("DELETE FROM "+relation+" WHERE ctid = ANY ($1::tid[])", some)
			b.Queue("SET CONSTRAINTS ALL IMMEDIATE")
			return cmp.Or(tx.SendBatch(ctx, b).Close(), undone)
		})
		switch {
		case errors.Is(err, undone):
			bisect.Passed(len(some), len(rows))
		case !sqlstate.OfRow(err):
			return nil, err
		case len(some) > 1:
			bisect.Failed(len(some))
			continue
		default:
			refusals = append(refusals, RowError{some[0], err})
			bisect.Skipped()
		}
		rows = rows[len(some):]
	}
	return refusals, nil
}
