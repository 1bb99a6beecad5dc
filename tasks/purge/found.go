package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Where an index leads to the rows they are found by it first, within so much time. Where they stand close together, the
// blocks that they are in are swept; else they are deleted in the order of their places, so many at once (16 MB).
const (
	findTimeout = 5 * time.Minute
	foundAtOnce = 2_000_000
)

// dense is the part of the rows of some blocks that is enough to sweep these: to look at a row is ten times as cheap as
// to fetch its place.
const dense = 0.1

// small is the table that is swept whatever index there is: a few batches see all of it.
const small = 1024

// byIndex finds the rows by an index, if the planner would, and deletes them in the order of their places, so that each
// block is visited once. It is not done where the table has to be swept.
func (sw *sweep) byIndex(ctx context.Context) (done bool, err error) {
	index, err := sw.index(ctx)
	if err != nil || index == "" {
		return false, err
	}
	sw.tellWay("index " + index)
	most := int64(cmp.Or(sw.findAtOnce, foundAtOnce))
	// Rows that someone changed meanwhile stand elsewhere now: they are looked for once more.
	for again := true; ; {
		x, err := sw.extent(ctx)
		if err == nil && x.rows > 0 {
			sw.result, sw.gone = Result{}, 0
			err = sw.clear(ctx, x, most)
		}
		switch {
		case errors.Is(err, errSlow):
			return false, nil
		case err != nil || sw.gone == x.rows || sw.result.TableLocked:
			return true, err
		case sw.gone > 0 && x.rows > most: // the next ones
		case again:
			again = false
		default: // those that stay may be in the way of others
			return x.rows <= most, nil
		}
	}
}

// index is the name of the index by which the planner would find the rows; empty: by none.
func (sw *sweep) index(ctx context.Context) (name string, err error) {
	if end, _, err := sw.end(ctx); err != nil || end <= small {
		return "", err
	}
	p, err := sw.explain(ctx)
	if err != nil || len(p.indexes) == 0 {
		return "", err
	}
	err = sw.read(ctx, []any{&name}, `SELECT COALESCE(string_agg(x.relname, ', ' ORDER BY x.relname), '') FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
		WHERE i.indrelid = $1::text::regclass AND x.relname = ANY ($2)`, sw.Relation, p.indexes)
	return name, err
}

// extent is where the rows of a sweep stand.
type extent struct {
	rows        int64
	first, last pgtype.TID
	part        float64 // of the rows between these: about
}

// extent looks where the rows stand.
func (sw *sweep) extent(ctx context.Context) (x extent, err error) {
	err = sw.find(ctx, func(tx pgx.Tx) error {
		var perBlock float64
		err := tx.QueryRow(ctx, fmt.Sprintf(`SELECT count(*), min(r.ctid), max(r.ctid), (SELECT greatest(reltuples, 1) / greatest(relpages, 1) FROM pg_class WHERE oid = $%d::text::regclass)
			FROM ONLY %s AS r WHERE %s`, len(sw.Args)+1, sw.Relation, sw.Where), slices.Concat(sw.Args, []any{sw.Relation})...).Scan(&x.rows, &x.first, &x.last, &perBlock)
		x.part = float64(x.rows) / (float64(x.last.BlockNumber-x.first.BlockNumber+1) * perBlock)
		return err
	})
	return x, err
}

// listed are the places of the rows, so many at most, in order.
func (sw *sweep) listed(ctx context.Context, most int64) ([]pgtype.TID, error) {
	found := make([]pgtype.TID, 0, most) // no larger than it must be, since it may be large
	err := sw.find(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, fmt.Sprintf("SELECT r.ctid FROM ONLY %s AS r WHERE %s LIMIT %d", sw.Relation, sw.Where, most), sw.Args...)
		if err != nil {
			return err
		}
		found, err = pgx.AppendRows(found[:0], rows, pgx.RowTo[pgtype.TID])
		return err
	})
	slices.SortFunc(found, compareTIDs)
	return found, err
}

// find asks where rows are.
func (sw *sweep) find(ctx context.Context, ask func(tx pgx.Tx) error) error {
	return sw.Retry(ctx, sw.Name, func() error {
		tx, err := sw.session.begin(ctx, func(b *pgx.Batch) {
			b.Queue(fmt.Sprintf("SET LOCAL statement_timeout = %d", findTimeout.Milliseconds()))
		})
		defer func() { _ = tx.Rollback(ctx) }()
		if err != nil {
			return err
		}
		if err = ask(tx); hasState(err, queryCanceled) {
			return errSlow
		}
		return err
	})
}

// errSlow says that the rows were not found in time.
var errSlow = errors.New("an index did not find the rows in time")

// clear deletes rows that were found, so many at most.
func (sw *sweep) clear(ctx context.Context, x extent, most int64) error {
	if x.part >= dense {
		sw.axis, sw.next = blocks, int64(x.first.BlockNumber)
		return sw.to(ctx, int64(x.last.BlockNumber)+1)
	}
	found, err := sw.listed(ctx, min(x.rows, most))
	if err != nil {
		return err
	}
	sw.axis, sw.next = rows(found, sw.mostRows), 0
	return sw.to(ctx, int64(len(found)))
}
