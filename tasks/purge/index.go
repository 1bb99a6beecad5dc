package purge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

const findTimeout = 5 * time.Minute

// Up to this number of blocks a table is swept even if it has an index: a few batches cover it.
const smallTable = 1024

// The values are stored.
type ScanMethod string

const (
	TableScan ScanMethod = "table"
	IndexScan ScanMethod = "index"
	KeyScan   ScanMethod = "key"
	// All rows of the partition are obsolete.
	PartitionDrop ScanMethod = "drop of the partition"
	PlannerScan   ScanMethod = "planner"
)

// How the rows of a sweep are found. The zero Scan means that nothing is known.
type Scan struct {
	Method ScanMethod
	// The name of the index, or of the column of the key; "" for other methods.
	Index string
}

// The method, followed by the index if there is one.
func (s Scan) MarshalText() ([]byte, error) {
	return []byte(strings.TrimSuffix(string(s.Method)+" "+s.Index, " ")), nil
}

func (s *Scan) UnmarshalText(text []byte) error {
	if s.Method = ScanMethod(text); s.Method != PartitionDrop {
		method, index, _ := strings.Cut(string(text), " ")
		s.Method, s.Index = ScanMethod(method), index
	}
	return nil
}

// Scan changes and locks nothing.
func (e *Engine) Scan(ctx context.Context, s Sweep) (scan Scan, err error) {
	if s.NoTIDs {
		return Scan{KeyScan, s.ByKey}, s.OtherServerError()
	}
	err = e.open(ctx, []Sweep{s}, func(t *table) error {
		info, err := t.inspect(ctx)
		if err != nil {
			return err
		}
		if scan, err = t.groupScan(ctx); err != nil || scan.Method != "" {
			return err
		}
		index, _, err := t.chooseIndex(ctx, info)
		if scan.Method = TableScan; index != "" {
			scan = Scan{IndexScan, index}
		}
		return err
	})
	return scan, err
}

// index is empty if the whole table is to be read. about is where the rows are, roughly.
func (t *table) chooseIndex(ctx context.Context, info tableInfo) (index string, about extent, err error) {
	if info.blocks <= smallTable {
		return "", about, nil
	}
	plan, err := t.explain(ctx, t.sweep.matchSQL())
	if err != nil {
		return "", about, err
	}
	if index, err = t.indexes(ctx, plan); err != nil || index == "" {
		return "", about, err
	}
	if about, err = t.sampleExtent(ctx, int64(plan.Rows)); err != nil ||
		(about.dense(info.dense) && 2*about.blocks() > info.blocks) {
		return "", about, err
	}
	return index, about, nil
}

// Empty if the plan uses none.
func (t *table) indexes(ctx context.Context, plan node) (names string, err error) {
	used := plan.indexes()
	if len(used) == 0 {
		return "", nil
	}
	const sql = `SELECT COALESCE(string_agg(x.relname, ', ' ORDER BY x.relname), '') FROM pg_index i
			JOIN pg_class x ON x.oid = i.indexrelid
		WHERE i.indrelid = $1::text::regclass AND x.relname = ANY ($2)`
	err = t.read(ctx, []any{&names}, sql, t.sweep.Relation, used)
	return names, err
}

// Where in the table the rows of a sweep are.
type extent struct {
	rows        int64
	first, last pgtype.TID
}

func (x extent) blocks() int64 { return int64(x.last.BlockNumber) - int64(x.first.BlockNumber) + 1 }

// dense: there are enough rows per block to visit all blocks rather than single rows.
func (x extent) dense(rowsPerBlock float64) bool {
	return float64(x.rows) >= rowsPerBlock*float64(x.blocks())
}

// So many of the oldest obsolete rows, and of the youngest, are read to estimate where all of them are.
const sampleRows = 500

// One block is added on both sides for so many blocks in a sample, since a sample seldom has the very first and the
// very last row.
const sampleMargin = 100

// guess is about how many rows there are. The extent has no rows if they are not chosen by age, or are too few for a
// sample.
func (t *table) sampleExtent(ctx context.Context, guess int64) (x extent, err error) {
	s := t.sweep
	if s.Older == nil {
		return x, nil
	}
	ordered := sqlexpr.Format("SELECT r.ctid AS place FROM ONLY %s AS r WHERE %s ORDER BY r.%s", s.Relation, s.Where,
		pgx.Identifier{s.Older.Column}.Sanitize())
	query := sqlexpr.Format(
		"SELECT count(*), min(place), max(place) FROM ((%[1]s LIMIT %[2]d) UNION ALL (%[1]s DESC LIMIT %[2]d)) AS s",
		ordered, sampleRows)
	err = t.query(ctx, query, &x.rows, &x.first, &x.last)
	switch {
	case sqlstate.Is(err, pgerrcode.QueryCanceled):
		return extent{}, nil
	case err != nil || x.rows < 2*sampleRows:
		return extent{}, err
	}
	x.rows = guess
	margin := uint32(x.blocks()/sampleMargin) + 1
	x.first.BlockNumber -= min(margin, x.first.BlockNumber)
	x.last.BlockNumber += margin
	return x, nil
}

// By an index on only the date, without the zero record. Negative if that takes too long.
func (t *table) countOlder(ctx context.Context) (rows int64, err error) {
	older := t.sweep.Older
	query := sqlexpr.Format("SELECT count(*) FROM ONLY %s AS r WHERE r.%s < %s", t.sweep.Relation,
		pgx.Identifier{older.Column}.Sanitize(), sqlexpr.Arg(older.Than, "timestamptz"))
	if older.Key != "" {
		query = sqlexpr.Format("SELECT (%[1]s) - (%[1]s AND r.%[2]s = 0)", query, pgx.Identifier{older.Key}.Sanitize())
	}
	if err = t.query(ctx, query, &rows); sqlstate.Is(err, pgerrcode.QueryCanceled) {
		return -1, nil
	}
	return rows, err
}

// extent also counts the rows.
func (t *table) extent(ctx context.Context) (x extent, err error) {
	query := sqlexpr.Format("SELECT count(*), min(r.ctid), max(r.ctid) FROM %s", t.sweep.matchSQL())
	err = t.find(ctx, func(tx pgx.Tx) error { return query.QueryRow(ctx, tx).Scan(&x.rows, &x.first, &x.last) })
	return x, err
}

// The TIDs are in order.
func (t *table) tids(ctx context.Context, limit int64) ([]pgtype.TID, error) {
	found := make([]pgtype.TID, 0, limit) // never grown, since it may be large
	query := sqlexpr.Format("SELECT r.ctid FROM %s LIMIT %d", t.sweep.matchSQL(), limit)
	err := t.find(ctx, func(tx pgx.Tx) error {
		var err error
		found, err = pgx.AppendRows(found[:0], query.Query(ctx, tx), pgx.RowTo[pgtype.TID])
		return err
	})
	slices.SortFunc(found, compareTIDs)
	return found, err
}

var errSlow = errors.New("an index did not find the rows in time")

func (t *table) find(ctx context.Context, query func(tx pgx.Tx) error) error {
	return t.engine.Retry(ctx, t.sweep.Name, func() error {
		tx, err := t.session.begin(ctx, func(b *pgx.Batch) {
			b.Queue(fmt.Sprintf("SET LOCAL statement_timeout = %d", findTimeout.Milliseconds()))
		})
		defer func() { _ = tx.Rollback(ctx) }()
		if err != nil {
			return err
		}
		if err = query(tx); sqlstate.Is(err, pgerrcode.QueryCanceled) {
			return errSlow
		}
		return err
	})
}
