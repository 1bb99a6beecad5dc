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

// smallTable is the number of blocks up to which a whole table is swept even if it has an index: a few batches
// cover it.
const smallTable = 1024

// ScanMethod is how the rows of a sweep are found. Its values are stored.
type ScanMethod string

const (
	TableScan ScanMethod = "table"
	IndexScan ScanMethod = "index"
	KeyScan   ScanMethod = "key"
	// PartitionDrop is for a partition whose rows are all obsolete.
	PartitionDrop ScanMethod = "drop of the partition"
	PlannerScan   ScanMethod = "planner"
)

// Scan is how the rows of a sweep are found. The zero Scan means that nothing is known.
type Scan struct {
	Method ScanMethod
	// Index is the name of the index or of the key's column; empty for other methods.
	Index string
}

// MarshalText returns the method, followed by the index if there is one.
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

// Scan returns how a sweep would find its rows. It neither changes nor locks anything.
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

// chooseIndex returns the names of the indexes that the planner would use to find the rows, and about where in the
// table the rows are. index is empty if the whole table should be read.
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

// indexes returns the names of the table's indexes that a plan uses to find its rows.
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

// extent is the part of the table in which the rows of a sweep are.
type extent struct {
	rows        int64
	first, last pgtype.TID
}

func (x extent) blocks() int64 { return int64(x.last.BlockNumber) - int64(x.first.BlockNumber) + 1 }

// dense reports whether there are enough rows per block to visit all blocks rather than single rows.
func (x extent) dense(rowsPerBlock float64) bool {
	return float64(x.rows) >= rowsPerBlock*float64(x.blocks())
}

// sampleRows is how many of the oldest and of the youngest obsolete rows are read to estimate where all of them
// are.
const sampleRows = 500

// For every sampleMargin blocks of a sample, one block is added on both sides: a sample seldom has the very first and
// the very last row.
const sampleMargin = 100

// sampleExtent estimates where the rows are. guess is about how many there are. The extent has no rows if the rule
// does not choose rows by age, or if they are too few for a sample.
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

// countOlder counts the rows by an index on the date alone, without the zero record. It returns -1 if that takes
// too long.
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

// extent counts the rows, and finds the first and the last.
func (t *table) extent(ctx context.Context) (x extent, err error) {
	query := sqlexpr.Format("SELECT count(*), min(r.ctid), max(r.ctid) FROM %s", t.sweep.matchSQL())
	err = t.find(ctx, func(tx pgx.Tx) error { return query.QueryRow(ctx, tx).Scan(&x.rows, &x.first, &x.last) })
	return x, err
}

// tids returns the TIDs of the rows, sorted, up to a limit.
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
