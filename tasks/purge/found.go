package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Where the planner would use an index, the rows are found by it first, within findTimeout. If they are close together,
// their blocks are swept; otherwise they are deleted in TID order, foundAtOnce at a time (16 MB of TIDs).
const (
	findTimeout = 5 * time.Minute
	foundAtOnce = 2_000_000
)

// small is up to how many blocks a table is swept whatever index there is: a few batches cover all of it.
const small = 1024

// byIndex finds the rows by an index, if the planner would, and deletes them in TID order, so that each block is
// visited once. done is false if the table has to be swept instead.
func (sw *sweep) byIndex(ctx context.Context, t tableInfo) (done bool, err error) {
	index, about, err := sw.choose(ctx, t)
	if err != nil || index == "" {
		return false, err
	}
	sw.Recorder.ScanMethod("index " + index)
	// If as many rows are deleted as there were, none has to be looked for elsewhere. They are counted beforehand,
	// since an index keeps the entries of deleted rows for a while, and skipping them takes longer.
	if about.many(t.enough) && !sw.Narrowed {
		there, err := sw.countOlder(ctx)
		if err == nil {
			err = sw.visit(ctx, about)
		}
		if err != nil || sw.gone+int64(len(sw.refused)) == there || sw.over() {
			return true, err
		}
	}
	most := int64(cmp.Or(sw.findAtOnce, foundAtOnce))
	// Rows that others changed in the meantime are elsewhere now: they are looked for once more.
	for again := true; ; {
		sw.gone = 0
		x, err := sw.extent(ctx)
		sw.again()
		if err == nil && x.rows > 0 {
			err = sw.clear(ctx, x, t.enough, most)
		}
		switch {
		case errors.Is(err, errSlow):
			return false, nil
		case err != nil || sw.gone+int64(len(sw.refused)) == x.rows || sw.over():
			return true, err
		case sw.gone > 0 && x.rows > most: // the next ones
		case again:
			again = false
		default: // if x.rows exceeds most, the rows that stay may hide others
			return x.rows <= most, nil
		}
	}
}

// choose is the name of the index by which the rows are to be found, and about where they are; empty: all of the table
// is to be read.
func (sw *sweep) choose(ctx context.Context, t tableInfo) (index string, about extent, err error) {
	if t.blocks <= small {
		return "", about, nil
	}
	index, guess, err := sw.index(ctx)
	if err != nil || index == "" {
		return "", about, err
	}
	if about, err = sw.sample(ctx, guess); err != nil || (about.many(t.enough) && 2*about.blocks() > t.blocks) {
		return "", about, err
	}
	return index, about, nil
}

// index is the name of the index by which the planner would find the rows, and how many it expects; empty: by none.
func (sw *sweep) index(ctx context.Context) (name string, guess int64, err error) {
	p, err := sw.explain(ctx)
	if err != nil || len(p.indexes) == 0 {
		return "", 0, err
	}
	err = sw.read(
		ctx,
		[]any{&name},
		`SELECT COALESCE(string_agg(x.relname, ', ' ORDER BY x.relname), '') FROM pg_index i
			JOIN pg_class x ON x.oid = i.indexrelid
		WHERE i.indrelid = $1::text::regclass AND x.relname = ANY ($2)`,
		sw.Relation,
		p.indexes,
	)
	return name, p.rows, err
}

// matching is the FROM and WHERE of a query for the rows, with the keys that they may have, for an index on these.
func (sw *sweep) matching() string {
	among := ""
	if sw.Keys != nil {
		among = fmt.Sprintf("r.%s = ANY ($%d::bigint[]) AND ", sw.ByKey, len(sw.Args)+1)
	}
	return fmt.Sprintf("ONLY %s AS r WHERE %s%s", sw.Relation, among, sw.Where)
}

func (sw *sweep) matchingArgs() []any {
	if sw.Keys == nil {
		return sw.Args
	}
	return append(slices.Clone(sw.Args), sw.Keys)
}

// extent is where in the table the rows of a sweep are.
type extent struct {
	rows        int64
	first, last pgtype.TID
}

// blocks is the number of blocks from the first row to the last.
func (x extent) blocks() int64 { return int64(x.last.BlockNumber) - int64(x.first.BlockNumber) + 1 }

// many reports whether there are enough rows per block to visit all blocks rather than single rows.
func (x extent) many(enough float64) bool { return float64(x.rows) >= enough*float64(x.blocks()) }

// sampleSize is how many of the oldest obsolete rows, and of the youngest, are read to estimate where all of them are.
const sampleSize = 500

// sampleMargin is the number of blocks in a sample per block that is added on both sides, since a sample seldom has the
// very first and the very last row.
const sampleMargin = 100

// sample estimates where the rows are, about guess of them; x has no rows if they are not chosen by age, or too few for
// a sample.
func (sw *sweep) sample(ctx context.Context, guess int64) (x extent, err error) {
	if sw.Older == nil {
		return x, nil
	}
	ordered := fmt.Sprintf(
		"SELECT r.ctid AS place FROM ONLY %s AS r WHERE %s ORDER BY r.%s",
		sw.Relation,
		sw.Where,
		pgx.Identifier{sw.Older.Column}.Sanitize(),
	)
	err = sw.read(
		ctx,
		[]any{&x.rows, &x.first, &x.last},
		fmt.Sprintf(
			"SELECT count(*), min(place), max(place) FROM ((%[1]s LIMIT %[2]d) UNION ALL (%[1]s DESC LIMIT %[2]d)) "+
				"AS sample",
			ordered,
			sampleSize,
		),
		sw.Args...)
	switch {
	case sqlstate.Is(err, pgerrcode.QueryCanceled):
		return extent{}, nil
	case err != nil || x.rows < 2*sampleSize:
		return extent{}, err
	}
	x.rows = guess
	margin := uint32(x.blocks()/sampleMargin) + 1
	x.first.BlockNumber -= min(margin, x.first.BlockNumber)
	x.last.BlockNumber += margin
	return x, nil
}

// countOlder is how many rows there are, counted in an index on the date alone, less the zero record; negative if that
// takes too long.
func (sw *sweep) countOlder(ctx context.Context) (rows int64, err error) {
	older := fmt.Sprintf(
		"SELECT count(*) FROM ONLY %s AS r WHERE r.%s < $1::timestamptz",
		sw.Relation,
		pgx.Identifier{sw.Older.Column}.Sanitize(),
	)
	sql := older
	if key := sw.Older.Key; key != "" {
		sql = fmt.Sprintf("SELECT (%s) - (%s AND r.%s = 0)", older, older, pgx.Identifier{key}.Sanitize())
	}
	if err = sw.read(ctx, []any{&rows}, sql, sw.Older.Than); sqlstate.Is(err, pgerrcode.QueryCanceled) {
		return -1, nil
	}
	return rows, err
}

// extent finds out where the rows are.
func (sw *sweep) extent(ctx context.Context) (x extent, err error) {
	err = sw.find(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT count(*), min(r.ctid), max(r.ctid) FROM "+sw.matching(), sw.matchingArgs()...).
			Scan(&x.rows, &x.first, &x.last)
	})
	return x, err
}

// listed returns the TIDs of the rows, no more than most, in order.
func (sw *sweep) listed(ctx context.Context, most int64) ([]pgtype.TID, error) {
	found := make([]pgtype.TID, 0, most) // never grown, since it may be large
	err := sw.find(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(
			ctx,
			fmt.Sprintf("SELECT r.ctid FROM %s LIMIT %d", sw.matching(), most),
			sw.matchingArgs()...)
		if err != nil {
			return err
		}
		found, err = pgx.AppendRows(found[:0], rows, pgx.RowTo[pgtype.TID])
		return err
	})
	found = slices.DeleteFunc(found, func(row pgtype.TID) bool { return sw.refused[row] })
	slices.SortFunc(found, compareTIDs)
	return found, err
}

// find runs a query for rows, with findTimeout.
func (sw *sweep) find(ctx context.Context, ask func(tx pgx.Tx) error) error {
	return sw.Retry(ctx, sw.Name, func() error {
		tx, err := sw.session.begin(ctx, func(b *pgx.Batch) {
			b.Queue(fmt.Sprintf("SET LOCAL statement_timeout = %d", findTimeout.Milliseconds()))
		})
		defer func() { _ = tx.Rollback(ctx) }()
		if err != nil {
			return err
		}
		if err = ask(tx); sqlstate.Is(err, pgerrcode.QueryCanceled) {
			return errSlow
		}
		return err
	})
}

// errSlow says that the rows were not found in time.
var errSlow = errors.New("an index did not find the rows in time")

// clear sweeps the blocks of an extent, or deletes its rows, no more than most, in TID order.
func (sw *sweep) clear(ctx context.Context, x extent, enough float64, most int64) error {
	if x.many(enough) {
		return sw.visit(ctx, x)
	}
	found, err := sw.listed(ctx, min(x.rows, most))
	if err != nil {
		return err
	}
	sw.axis, sw.next = rows(found, sw.mostRows), 0
	return sw.to(ctx, int64(len(found)))
}

// visit sweeps the blocks of an extent.
func (sw *sweep) visit(ctx context.Context, x extent) error {
	sw.axis, sw.next = someBlocks(), int64(x.first.BlockNumber)
	return sw.to(ctx, sw.next+x.blocks())
}
